//! `activation(gate) * up`, zero below 2^-100.

use crate::numerics::{exact_gelu_tanh, exact_silu, flush_small};
use crate::plan::Activation;

/// Combines one row `gate_up [2 width]` into `out [width]`.
pub fn gated_activation(gate_up: &[f32], activation: Activation, out: &mut [f32]) {
    let (gate, up) = gate_up.split_at(out.len());
    let apply = match activation {
        Activation::Silu => exact_silu,
        Activation::GeluTanh => exact_gelu_tanh,
    };
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = flush_small(apply(*gate) * up);
    }
}
