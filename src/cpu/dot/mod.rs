//! Vector paths of the matrix product: the bits of `matmul::dot`, faster.
//!
//! One kernel (`quantised`, `float`) is written over the operations of an instruction set (`Isa`), which each
//! architecture supplies. Lanes are segments: at a step t the blocks of all segments are neighbours, so a vector of
//! block sums is scaled and added to a vector of accumulators, and nothing crosses lanes before the tree.

#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")),
    allow(dead_code, unused_macros, unused_imports, reason = "there is no vector path")
)]

mod float;
mod isa;
mod prepare;
mod quantised;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;

use super::matrix::PackedMatrix;
use crate::quant::QuantType;
pub(crate) use prepare::Prepared;

/// Computes `out[j - first, r] = w[j] · x[r]` for the weight rows from `first` on, as many as `out` (`[rows of w, rows of
/// x]`) holds.
///
/// # Safety
/// The processor has the instructions of the path the kernel comes from, and `x` was prepared for the layout of `w`.
pub(crate) type Kernel = unsafe fn(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]);

/// An instruction set that this processor may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// Its name.
    pub(crate) name: &'static str,
    available: fn() -> bool,
    kernel: fn(QuantType) -> Kernel,
}

/// All paths of the architecture, the fastest first.
const PATHS: &[Path] = &[
    #[cfg(target_arch = "x86_64")]
    avx512::PATH,
    #[cfg(target_arch = "x86_64")]
    avx2::PATH,
    #[cfg(target_arch = "aarch64")]
    neon::PATH,
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    simd128::PATH,
];

/// The paths this processor has, the fastest first.
pub(crate) fn paths() -> impl Iterator<Item = &'static Path> {
    PATHS.iter().filter(|path| (path.available)())
}

/// Name of the path in use.
pub(crate) fn instruction_set() -> &'static str {
    paths().next().map_or("scalar", |path| path.name)
}

impl Path {
    /// The path's kernel for a type.
    pub(crate) fn kernel(&self, kind: QuantType) -> Kernel {
        (self.kernel)(kind)
    }
}

/// The `kernel` function of a path: one instance of `run_quantised` or `run_float` a type.
macro_rules! kernel_table {
    () => {
        fn kernel(kind: crate::quant::QuantType) -> crate::cpu::dot::Kernel {
            use crate::cpu::dot::{float, quantised};
            use crate::quant::QuantType;
            match kind {
                QuantType::F32 => run_float::<float::F32>,
                QuantType::F16 => run_float::<float::F16>,
                QuantType::BF16 => run_float::<float::BF16>,
                QuantType::Q4_0 => run_quantised::<quantised::Q4_0>,
                QuantType::Q4_1 => run_quantised::<quantised::Q4_1>,
                QuantType::Q5_0 => run_quantised::<quantised::Q5_0>,
                QuantType::Q5_1 => run_quantised::<quantised::Q5_1>,
                QuantType::Q8_0 => run_quantised::<quantised::Q8_0>,
                QuantType::Q4_K => run_quantised::<quantised::Q4K>,
                QuantType::Q5_K => run_quantised::<quantised::Q5K>,
                QuantType::Q6_K => run_quantised::<quantised::Q6K>,
            }
        }
    };
}
use kernel_table;
