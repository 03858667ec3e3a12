//! Random blocks of each format: random codes under scales that give the weights a wanted deviation.

use half::{bf16, f16};

use super::rng::Rng;
use crate::quant::QuantType;

/// Half the width of a uniform distribution of deviation 1.
const SQRT_3: f32 = 1.732_050_8;

/// Appends a row of `k` random weights of deviation `std` and zero mean.
pub(crate) fn push_row(rng: &mut Rng, kind: QuantType, k: usize, std: f32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + kind.row_bytes(k), 0);
    for block in out[start..].chunks_exact_mut(kind.block_bytes()) {
        fill_block(rng, kind, std, block);
    }
}

/// The divisors are the deviation of a block's integers under a scale of 1: uniform codes of L levels have
/// `sqrt((L^2 - 1) / 12)`, a product of two has the root of the product of the mean squares.
fn fill_block(rng: &mut Rng, kind: QuantType, std: f32, block: &mut [u8]) {
    match kind {
        QuantType::F32 => block.copy_from_slice(&uniform(rng, std).to_le_bytes()),
        QuantType::F16 => block.copy_from_slice(&f16::from_f32(uniform(rng, std)).to_le_bytes()),
        QuantType::BF16 => block.copy_from_slice(&bf16::from_f32(uniform(rng, std)).to_le_bytes()),
        _ => {
            rng.fill(block);
            // Blocks of a real file do not share one scale.
            let std = std * rng.uniform(0.75, 1.25);
            set_scales(kind, std, block);
        }
    }
}

fn uniform(rng: &mut Rng, std: f32) -> f32 {
    rng.uniform(-SQRT_3 * std, SQRT_3 * std)
}

fn set_scales(kind: QuantType, std: f32, block: &mut [u8]) {
    match kind {
        QuantType::Q4_0 => put(block, 0, std / 4.61),
        QuantType::Q5_0 => put(block, 0, std / 9.23),
        QuantType::Q8_0 => put(block, 0, std / 73.9),
        // The minimum is minus the mean code times the scale.
        QuantType::Q4_1 => put_pair(block, std / 4.61, -7.5),
        QuantType::Q5_1 => put_pair(block, std / 9.23, -15.5),
        // Scales and minima of 6 bits are drawn apart, so their difference spreads the weights, too.
        QuantType::Q4_K => put_pair(block, std / 258.0, 7.5),
        QuantType::Q5_K => put_pair(block, std / 524.0, 15.5),
        QuantType::Q6_K => put(block, 208, std / 1366.0),
        QuantType::F32 | QuantType::F16 | QuantType::BF16 => {}
    }
}

/// The scale, and beside it a second one `ratio` times as large.
fn put_pair(block: &mut [u8], d: f32, ratio: f32) {
    put(block, 0, d);
    put(block, 2, d * ratio);
}

fn put(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}
