//! Every kernel in every variant. The build script reads this file, too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The oldest compute capability (80 is 8.0) that has the kernels' instructions: int8 tensor cores and asynchronous copies.
pub const OLDEST_CAPABILITY: u32 = 80;

/// Weight formats.
const FORMATS: [&str; 11] = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"];
/// Types of cached keys and values.
const CACHES: [&str; 2] = ["f16", "q8_0"];
/// Rows of x a matmul's block computes: with tensor cores, which multiply integers, and without.
const TENSOR_TILES: [u32; 4] = [8, 16, 32, 64];
const TILES: [u32; 3] = [1, 2, 8];
/// Weight formats without integers.
const FLOATS: [&str; 3] = ["f32", "f16", "bf16"];

/// A kernel in one variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The operation's stem; the text is `<stem>.cu`.
    pub stem: &'static str,
    /// The kernel's name, for example `matmul_warps_q4_0_x8`.
    pub name: String,
    /// What is defined before its text, as `NAME` or `NAME=VALUE`.
    pub macros: Vec<String>,
}

impl Variant {
    fn new(stem: &'static str, suffix: &str, macros: Vec<String>) -> Self {
        Variant { stem, name: format!("{stem}{suffix}"), macros }
    }

    /// With an output form: `f32`, `add` or `q8`.
    fn output(stem: &'static str, output: &str) -> Self {
        Variant::new(stem, &format!("_{output}"), vec![upper("OUTPUT", output)])
    }

    /// Every variant.
    pub fn all() -> Vec<Variant> {
        let sampler = ["sample", "sample_adjust", "sample_filter", "sample_kept", "sample_finish"];
        let others = ["delta_prepare", "route", "combine_experts", "gated_add", "stream_read", "empty"];
        let mut all = Vec::new();
        all.extend(sampler.into_iter().chain(others).map(|stem| Variant::new(stem, "", Vec::new())));
        all.extend(["f32", "add", "q8"].map(|output| Variant::output("rms_norm", output)));
        for stem in ["attention_merge", "gated_activation", "gated_norm"] {
            all.extend(["f32", "q8"].map(|output| Variant::output(stem, output)));
        }
        for stem in ["rope_append", "attention"] {
            all.extend(CACHES.map(|cache| Variant::new(stem, &format!("_{cache}"), vec![upper("KV", cache)])));
        }
        let size = |size: u32| Variant::new("delta_rule", &format!("_{size}"), vec![format!("SIZE={size}")]);
        all.extend((32..=256).step_by(32).map(size));
        all.extend(FORMATS.into_iter().flat_map(Self::of_format));
        all
    }

    /// What `f` makes of every variant, on all processors.
    pub fn map_all<T: Send>(f: impl Fn(&Variant) -> T + Sync) -> Vec<(Variant, T)> {
        let (variants, next, done) = (Variant::all(), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(variant) = variants.get(next.fetch_add(1, Relaxed)) {
                        let made = f(variant);
                        done.lock().unwrap_or_else(|e| e.into_inner()).push((variant.clone(), made));
                    }
                });
            }
        });
        done.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    /// The kernels that read weights of a format.
    fn of_format(format: &'static str) -> Vec<Variant> {
        let quant = upper("QUANT", format);
        let matmul = |stem, tile: u32| {
            let macros = vec![quant.clone(), format!("TILE={tile}")];
            Variant { stem, name: format!("matmul_warps_{format}_x{tile}"), macros }
        };
        let tensor_tiles = if FLOATS.contains(&format) { &[][..] } else { &TENSOR_TILES };
        let tiles = TILES.iter().filter(|tile| !tensor_tiles.contains(tile));
        let mut all: Vec<_> = tiles.map(|tile| matmul("matmul", *tile)).collect();
        all.extend(tensor_tiles.iter().map(|tile| matmul("matmul_mma", *tile)));
        all.push(Variant::new("expert_matmul", &format!("_warps_{format}"), vec![quant.clone()]));
        all.push(Variant::new("embed", &format!("_{format}"), vec![quant]));
        all
    }
}

fn upper(axis: &str, value: &str) -> String {
    format!("{axis}_{}", value.to_uppercase())
}
