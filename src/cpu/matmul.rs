//! `out[r, j] = weight[j] · x[r] (+ residual)` (docs/numerics.md, "Dot products").
//!
//! `dot` is the specification; the vector paths in `dot/` give the same bits.

use super::matrix::PackedMatrix;
use super::pool::Pool;
use super::quantise::Q8Rows;
use crate::numerics::segments::MAX_SEGMENTS;
use crate::quant::{Decode, PlaneLayout, PlanesRef, QuantType, codec};

/// The right-hand side of a product.
#[derive(Debug, Clone, Copy)]
pub enum Activations<'a> {
    /// For quantised weights.
    Q8(&'a Q8Rows),
    /// For float weights: `[rows, k]`.
    F32(&'a [f32]),
}

/// What is added to a product, indexed like the output.
#[derive(Debug, Clone, Copy)]
pub enum Residual<'a> {
    /// Nothing.
    None,
    /// The output's old values.
    Out,
    /// Another buffer of the output's shape.
    From(&'a [f32]),
}

/// Writes `out[r * out_stride + out_offset + j] = w[j] · x[r] (+ residual)` for all rows r of `x` and j of `w`.
///
/// # Panics
/// If the activations do not match the weights' type and width, or a row does not fit `out`.
pub fn matmul(
    w: &PackedMatrix,
    x: Activations<'_>,
    residual: Residual<'_>,
    out: &mut [f32],
    out_stride: usize,
    out_offset: usize,
    pool: &Pool,
) {
    let rows = rows_of(w.layout(), x);
    let mut products = vec![0.0; w.rows() * rows];
    let chunk = w.rows().div_ceil(4 * pool.threads()).next_multiple_of(16);
    pool.for_chunks(&mut products, chunk * rows.max(1), |i, products| {
        for (j, products) in products.chunks_exact_mut(rows).enumerate() {
            let row = w.planes().row(w.layout(), i * chunk + j);
            for (r, product) in products.iter_mut().enumerate() {
                *product = dot(w.layout(), &row, x, r);
            }
        }
    });
    for r in 0..rows {
        let first = r * out_stride + out_offset;
        let out = &mut out[first..first + w.rows()];
        for (j, out) in out.iter_mut().enumerate() {
            let product = products[j * rows + r];
            *out = match residual {
                Residual::None => product,
                Residual::Out => product + *out,
                Residual::From(other) => product + other[first + j],
            };
        }
    }
}

/// Rows of the activations, which must fit the weights.
fn rows_of(layout: &PlaneLayout, x: Activations<'_>) -> usize {
    match x {
        Activations::Q8(q8) => {
            assert!(layout.kind.is_quantised() && q8.segments == layout.segments, "int8 rows of {} values", layout.k);
            q8.rows()
        }
        Activations::F32(values) => {
            assert!(!layout.kind.is_quantised() && values.len().is_multiple_of(layout.k), "rows of {} f32", layout.k);
            values.len() / layout.k
        }
    }
}

/// One weight row times row `r` of the activations: the specification of every product.
pub(crate) fn dot(layout: &PlaneLayout, row: &PlanesRef<'_>, x: Activations<'_>, r: usize) -> f32 {
    let segments = layout.segments;
    let mut lanes = [0.0; MAX_SEGMENTS];
    for (s, acc) in lanes[..segments.count].iter_mut().enumerate() {
        for i in (0..segments.len).map(|t| t * segments.count + s) {
            *acc = match x {
                Activations::Q8(x) => *acc + q8_term(layout, row, x, r * segments.places() + i, i),
                Activations::F32(x) => fold_floats(layout, row, &x[r * layout.k..][..layout.k], i, *acc),
            };
        }
    }
    tree(&lanes)
}

/// The term of the block at place `i` of a weight row and block `at` of the activations.
fn q8_term(layout: &PlaneLayout, row: &PlanesRef<'_>, x: &Q8Rows, at: usize, i: usize) -> f32 {
    let Decode::Integers(decode) = codec(layout.kind).decode else { return 0.0 };
    let w = decode(layout.block(row, i));
    let half_dot = |half: usize| -> i32 {
        (half * 16..half * 16 + 16).map(|e| i32::from(w.q[e]) * i32::from(x.q[at * 32 + e])).sum()
    };
    let isum = w.sub[0] * half_dot(0) + w.sub[1] * half_dot(1);
    let term = (w.dw * x.d[at]) * isum as f32;
    match w.dm {
        Some(dm) => term + (dm * x.d[at]) * x.sum[at] as f32,
        None => term,
    }
}

/// Folds the 32 values of the block at place `i` into `acc`, in ascending order.
fn fold_floats(layout: &PlaneLayout, row: &PlanesRef<'_>, x: &[f32], i: usize, acc: f32) -> f32 {
    let Decode::Floats(values) = codec(layout.kind).decode else { return acc };
    let b = layout.segments.block(i);
    if b >= layout.segments.blocks {
        return acc;
    }
    let mut w = [0.0; 32];
    values(layout.block(row, i).quants, &mut w);
    w.iter().zip(&x[b * 32..]).fold(acc, |acc, (w, &x)| acc + w * rounded(layout.kind, x))
}

/// An activation as weights of type `kind` take it: rounded where that makes products exact.
pub(crate) fn rounded(kind: QuantType, x: f32) -> f32 {
    match kind {
        QuantType::F16 => round_sig(x, 12),
        QuantType::BF16 => round_sig(x, 16),
        _ => x,
    }
}

/// `x` rounded to `n` significant bits, ties to even; finite below 2^127.
fn round_sig(x: f32, n: u32) -> f32 {
    let (bits, drop) = (x.to_bits(), 24 - n);
    let rounded = bits.wrapping_add((1 << (drop - 1)) - 1 + (bits >> drop & 1));
    f32::from_bits(rounded >> drop << drop)
}

/// The sum of adjacent pairs, five times.
fn tree(lanes: &[f32; MAX_SEGMENTS]) -> f32 {
    let mut v = *lanes;
    for width in [16, 8, 4, 2, 1] {
        for i in 0..width {
            v[i] = v[2 * i] + v[2 * i + 1];
        }
    }
    v[0]
}
