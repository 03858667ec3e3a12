//! The exactness contract in Rust: see docs/numerics.md.
//!
//! Everything here has a twin in `shaders/shared/` that gives the same bits.

pub mod exact;
pub mod philox;
pub mod round;
pub mod segments;

pub use exact::{
    exact_exp, exact_exp2, exact_gelu_erf, exact_gelu_tanh, exact_ln, exact_recip, exact_rsqrt, exact_sigmoid,
    exact_silu, exact_softplus, exact_tanh,
};
pub use philox::gumbel;
pub use round::{flush_small, from_f16, is_finite_bits, round_sig, to_f16};
pub use segments::{Segments, tree32, tree256};

/// A product that feeds an addition, or a sum with a constant that feeds another sum. Rust neither fuses nor regroups, so
/// it is the identity here; the twins in WGSL and CUDA keep their compilers from it.
#[inline(always)]
pub fn guard(value: f32) -> f32 {
    value
}
