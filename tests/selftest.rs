//! The self-test passes on a device that computes right and names the operation on one that does not.

mod common;

use blueshift::Error;
use blueshift::gpu::{Gpu, ShaderPatch, selftest};
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use pollster::block_on;

#[test]
fn passes() {
    if !common::has_adapter() {
        return;
    }
    let gpu = block_on(Gpu::open(None)).unwrap();
    let report = block_on(selftest::run(&gpu, &QuantType::ALL, true, KvType::Q8_0)).unwrap();
    assert!(report.exact, "first difference: {:?}", report.first_difference);
}

/// A kernel broken so much that answers would be wrong.
#[test]
fn a_broken_kernel_is_an_error_that_names_it() {
    if !common::has_adapter() {
        return;
    }
    let broken = [
        ShaderPatch { stem: "matmul", from: "f32(isum)", to: "f32(isum + 40)" },
        ShaderPatch { stem: "rms_norm", from: "let r = exact_rsqrt(", to: "let r = exact_recip(" },
        ShaderPatch { stem: "attention", from: "exact_exp2(s - chunk_max)", to: "exact_exp2(2.0 * (s - chunk_max))" },
        ShaderPatch { stem: "rope_append", from: "guard(x0 * angle.x) -", to: "guard(x0 * angle.x) +" },
        ShaderPatch { stem: "route", from: "other > key", to: "other < key" },
        ShaderPatch { stem: "combine_experts", from: "sum = sum + guard(", to: "sum = sum - guard(" },
        ShaderPatch { stem: "embed", from: "i % 8u) * params.scale", to: "i % 8u) * 3.0" },
    ];
    for patch in broken {
        let gpu = block_on(Gpu::open_patched(patch)).unwrap();
        match block_on(selftest::run(&gpu, &[QuantType::Q4_0], true, KvType::F16)) {
            Err(Error::SelfTest { op, .. }) => assert!(op.starts_with(patch.stem), "{op} for a broken {}", patch.stem),
            other => panic!("a broken {} gave {other:?}", patch.stem),
        }
    }
}

/// A kernel that rounds otherwise: the answers are fine, the bits are not.
#[test]
fn other_bits_are_not_exact() {
    if !common::has_adapter() {
        return;
    }
    let patch = ShaderPatch {
        stem: "gated_activation",
        from: "activated = exact_silu(",
        to: "activated = 1.0000005 * exact_silu(",
    };
    let gpu = block_on(Gpu::open_patched(patch)).unwrap();
    let report = block_on(selftest::run(&gpu, &[QuantType::Q4_0], true, KvType::F16)).unwrap();
    assert!(!report.exact);
    assert!(report.first_difference.unwrap().starts_with("gated_activation"));
}
