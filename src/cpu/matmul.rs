//! `out[r, j] = weight[j] · x[r]`, or `+=` (docs/numerics.md, "Dot products").
//!
//! `dot_row` is the specification; the vector paths in `dot/` give the same bits.

use std::ops::Range;

use super::dot;
use super::matrix::PackedMatrix;
use super::pool::Pool;
use super::quantise::Q8Rows;
use crate::numerics::round::round_sig;
use crate::numerics::segments::tree32;
use crate::quant::{Decode, PlaneLayout, PlanesRef, QuantType, codec};

/// The right-hand side of a product.
#[derive(Debug, Clone, Copy)]
pub enum Activations<'a> {
    /// For quantised weights.
    Q8(&'a Q8Rows),
    /// For float weights: `[rows, k]`.
    F32(&'a [f32]),
}

/// Writes `out[r * out_stride + out_offset + j] = w[j] · x[r]` for all rows r of `x` and j of `w`; adds to the old values where
/// `accumulate` is set.
///
/// # Panics
/// If the activations do not match the weights' type and width, or a row does not fit `out`.
pub fn matmul(
    w: &PackedMatrix,
    x: Activations<'_>,
    accumulate: bool,
    out: &mut [f32],
    out_stride: usize,
    out_offset: usize,
    pool: &Pool,
) {
    matmul_on(dot::paths().next(), w, x, accumulate, out, out_stride, out_offset, pool);
}

/// `matmul` on a given path; `None` is the specification itself.
fn matmul_on(
    path: Option<&dot::Path>,
    w: &PackedMatrix,
    x: Activations<'_>,
    accumulate: bool,
    out: &mut [f32],
    out_stride: usize,
    out_offset: usize,
    pool: &Pool,
) {
    let rows = rows_of(w.layout(), x);
    if rows == 0 {
        return;
    }
    let products = products(path, w, 0..w.rows(), x, rows, pool);
    // By tiles, so that the products, of which a row's lie apart, are read while they are near.
    for (tile, products) in products.chunks(TILE * rows).enumerate() {
        for r in 0..rows {
            let first = r * out_stride + out_offset + tile * TILE;
            let products = products.chunks_exact(rows).map(|products| products[r]);
            let len = products.len();
            store(accumulate, &mut out[first..first + len], products);
        }
    }
}

/// `[w_rows, rows]`: the products of some rows of `w` with all `rows` rows of `x`, at least one.
fn products(
    path: Option<&dot::Path>,
    w: &PackedMatrix,
    w_rows: Range<usize>,
    x: Activations<'_>,
    rows: usize,
    pool: &Pool,
) -> Vec<f32> {
    let mut products = vec![0.0; w_rows.len() * rows];
    let chunk = w_rows.len().div_ceil(4 * pool.threads()).next_multiple_of(16);
    let first = |i: usize| w_rows.start + i * chunk;
    if let Some(path) = path {
        let (kernel, x) = (path.kernel(w.layout().kind), dot::Prepared::new(w.layout(), x, rows));
        // SAFETY: `paths` gave a path that this processor has; `x` was prepared for this layout.
        pool.for_chunks(&mut products, chunk * rows, |i, out| unsafe { kernel(w, &x, first(i), out) });
    } else {
        pool.for_chunks(&mut products, chunk * rows, |i, out| {
            for (j, out) in out.chunks_exact_mut(rows).enumerate() {
                let row = w.planes().row(w.layout(), first(i) + j);
                out.iter_mut().enumerate().for_each(|(r, out)| *out = dot_row(w.layout(), &row, x, r));
            }
        });
    }
    products
}

/// `[w_rows, rows of x]`: the products of some rows of `w` with all rows of `x`.
///
/// # Panics
/// If the activations do not match the weights' type and width, or `w` has fewer rows.
pub(super) fn products_of_rows(w: &PackedMatrix, w_rows: Range<usize>, x: Activations<'_>, pool: &Pool) -> Vec<f32> {
    assert!(w_rows.end <= w.rows(), "rows up to {} of {}", w_rows.end, w.rows());
    let rows = rows_of(w.layout(), x);
    products(dot::paths().next(), w, w_rows, x, rows, pool)
}

/// Weight rows whose products are moved to the output together.
const TILE: usize = 64;

/// Writes products to a part of the output.
fn store(accumulate: bool, out: &mut [f32], products: impl Iterator<Item = f32>) {
    if accumulate {
        out.iter_mut().zip(products).for_each(|(out, product)| *out += product);
    } else {
        out.iter_mut().zip(products).for_each(|(out, product)| *out = product);
    }
}

/// Rows of the activations, which must fit the weights.
pub(super) fn rows_of(layout: &PlaneLayout, x: Activations<'_>) -> usize {
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
fn dot_row(layout: &PlaneLayout, row: &PlanesRef<'_>, x: Activations<'_>, r: usize) -> f32 {
    let segments = layout.segments;
    let mut lanes = [0.0; 32];
    for (s, acc) in lanes[..segments.count].iter_mut().enumerate() {
        for i in (0..segments.len).map(|t| t * segments.count + s) {
            *acc = match x {
                Activations::Q8(x) => *acc + q8_term(layout, row, x, r * segments.places() + i, i),
                Activations::F32(x) => fold_floats(layout, row, &x[r * layout.k..][..layout.k], i, *acc),
            };
        }
    }
    tree32(&lanes)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of words that looks random.
    struct Words(u32);

    impl Words {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.0 ^ self.0 >> 15
        }

        fn uniform(&mut self) -> f32 {
            (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    /// Random rows whose scales are about `scale`.
    fn matrix(kind: QuantType, k: usize, rows: usize, scale: f32) -> PackedMatrix {
        let mut words = Words(k as u32 + rows as u32);
        let mut bytes: Vec<u8> = (0..rows * kind.row_bytes(k)).map(|_| (words.next() >> 9) as u8).collect();
        for block in bytes.chunks_exact_mut(kind.block_bytes()) {
            let value = words.uniform() * scale;
            let half = half::f16::from_f32(value).to_le_bytes();
            match kind {
                QuantType::F32 => block.copy_from_slice(&value.to_le_bytes()),
                QuantType::BF16 => block.copy_from_slice(&value.to_le_bytes()[2..]),
                QuantType::Q6_K => block[208..].copy_from_slice(&half),
                _ => block[..2].copy_from_slice(&half),
            }
            if matches!(kind, QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q4_K | QuantType::Q5_K) {
                block[2..4].copy_from_slice(&half::f16::from_f32(words.uniform() * scale).to_le_bytes());
            }
        }
        let mut matrix = PackedMatrix::zeroed(PlaneLayout::new(kind, k).unwrap(), rows);
        matrix.fill_rows(0, &bytes);
        matrix
    }

    fn q8_rows(k: usize, rows: usize, scale: f32) -> Q8Rows {
        let (mut x, mut words) = (Q8Rows::zeroed(k, rows), Words(7));
        for i in 0..x.d.len() {
            if x.segments.block(i % x.segments.places()) >= x.segments.blocks {
                continue;
            }
            x.d[i] = words.uniform().abs() * scale;
            let q = &mut x.q[i * 32..][..32];
            q.iter_mut().for_each(|q| *q = (words.uniform() * 127.9) as i8);
            x.sum[i] = q.iter().map(|&q| i32::from(q)).sum();
        }
        x
    }

    /// Both kinds of activations of the same shape.
    fn activations(k: usize, rows: usize, scale: f32) -> (Q8Rows, Vec<f32>) {
        let mut words = Words(11);
        (q8_rows(k, rows, scale), (0..k * rows).map(|_| words.uniform() * scale).collect())
    }

    fn fitting<'a>(kind: QuantType, (q8, f32s): &'a (Q8Rows, Vec<f32>)) -> Activations<'a> {
        if kind.is_quantised() { Activations::Q8(q8) } else { Activations::F32(f32s) }
    }

    fn product(path: Option<&dot::Path>, w: &PackedMatrix, x: Activations<'_>, rows: usize, pool: &Pool) -> Vec<u32> {
        let mut out = vec![0.0; w.rows() * rows];
        matmul_on(path, w, x, false, &mut out, w.rows(), 0, pool);
        out.iter().map(|v| v.to_bits()).collect()
    }

    /// One block; fewer than, and just more than a vector of segments; P = 18, 19; padding (37 blocks); several steps.
    const WIDTHS: [usize; 10] = [32, 64, 96, 512, 576, 608, 1184, 1536, 2048, 2560];

    #[test]
    fn vector_paths_give_the_bits_of_the_specification() {
        let pool = Pool::serial();
        for kind in QuantType::ALL {
            for k in WIDTHS.into_iter().chain([37 * 256]) {
                if PlaneLayout::new(kind, k).is_err() {
                    continue;
                }
                for (w_rows, rows, scale) in [(1, 1, 1.0), (17, 2, 1e-3), (3, 3, 6e4), (2, 9, 0.0)] {
                    let w = matrix(kind, k, w_rows, scale);
                    let x = activations(k, rows, if scale == 0.0 { 0.0 } else { 1.0 / scale });
                    let expected = product(None, &w, fitting(kind, &x), rows, &pool);
                    for path in dot::paths() {
                        let found = product(Some(path), &w, fitting(kind, &x), rows, &pool);
                        assert_eq!(found, expected, "{} {kind:?} k = {k}, {w_rows} x {rows}", path.name);
                    }
                }
            }
        }
    }

    #[test]
    fn neither_threads_nor_neighbouring_rows_change_bits() {
        let k = 1536;
        for kind in QuantType::ALL {
            let (w, x) = (matrix(kind, k, 70, 0.1), activations(k, 5, 1.0));
            let all = product(dot::paths().next(), &w, fitting(kind, &x), 5, &Pool::serial());
            assert_eq!(product(dot::paths().next(), &w, fitting(kind, &x), 5, &Pool::new(3)), all, "{kind:?}");
            let q8 = &x.0;
            let places = q8.segments.places();
            let last = (
                Q8Rows {
                    segments: q8.segments,
                    q: q8.q[4 * places * 32..].to_vec(),
                    d: q8.d[4 * places..].to_vec(),
                    sum: q8.sum[4 * places..].to_vec(),
                },
                x.1[4 * k..].to_vec(),
            );
            let alone = product(dot::paths().next(), &w, fitting(kind, &last), 1, &Pool::serial());
            assert_eq!(alone, all[4 * 70..], "{kind:?}");
        }
    }

    #[test]
    fn products_are_close_to_those_of_dequantised_numbers() {
        for kind in QuantType::ALL {
            let k = 2560;
            let (w, x) = (matrix(kind, k, 3, 0.1), activations(k, 1, 1.0));
            let found = product(None, &w, fitting(kind, &x), 1, &Pool::serial());
            let segments = x.0.segments;
            let x_value = |i: usize| match kind.is_quantised() {
                true => {
                    f64::from(x.0.d[segments.place(i / 32)]) * f64::from(x.0.q[segments.place(i / 32) * 32 + i % 32])
                }
                false => f64::from(x.1[i]),
            };
            for (j, found) in found.iter().enumerate() {
                let mut weights = vec![0.0; k];
                w.dequantise_row(j, &mut weights);
                let products = weights.iter().enumerate().map(|(i, &w)| f64::from(w) * x_value(i));
                let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
                let error = (f64::from(f32::from_bits(*found)) - sum).abs();
                // F16 rounds activations to 12 bits.
                assert!(error <= size * 3e-4, "{kind:?} row {j}: {found} against {sum}");
            }
        }
    }

    #[test]
    fn accumulation_and_places_in_the_output() {
        let (w, x) = (matrix(QuantType::Q4_1, 64, 3, 0.1), activations(64, 2, 1.0));
        let x = fitting(QuantType::Q4_1, &x);
        let pool = Pool::serial();
        let plain: Vec<f32> = product(None, &w, x, 2, &pool).into_iter().map(f32::from_bits).collect();
        let old: Vec<f32> = (0..14).map(|i| i as f32).collect();
        for (accumulate, keeps) in [(false, 0.0), (true, 1.0)] {
            let mut out = old.clone();
            matmul(&w, x, accumulate, &mut out, 7, 2, &pool);
            for i in 0..14 {
                let expected = match i % 7 {
                    2..5 => plain[i / 7 * 3 + i % 7 - 2] + keeps * old[i],
                    _ => old[i],
                };
                assert_eq!(out[i], expected, "accumulate {accumulate}, at {i}");
            }
        }
    }

    #[test]
    #[ignore = "prints a table of speeds"]
    fn speed() {
        for (threads, n_x) in [(1, 1), (2, 1), (1, 16)] {
            let pool = Pool::new(threads);
            for (kind, k, rows) in QuantType::ALL.into_iter().flat_map(|kind| [(kind, 576, 24576), (kind, 1536, 8192)])
            {
                let Ok(layout) = PlaneLayout::new(kind, k) else { continue };
                let (w, x) = (matrix(kind, k, rows, 0.1), activations(k, n_x, 1.0));
                let (bytes, mut out) = (rows * layout.row_bytes(), vec![0.0; rows * n_x]);
                let best = (0..10)
                    .map(|_| {
                        let start = std::time::Instant::now();
                        matmul(&w, fitting(kind, &x), false, &mut out, rows, 0, &pool);
                        start.elapsed().as_secs_f64()
                    })
                    .fold(f64::MAX, f64::min);
                let (bytes, products) = (bytes as f64 * 1e-9 / best, (rows * k * n_x) as f64 * 1e-9 / best);
                println!(
                    "{threads} threads, {kind:?} {rows} x {k}, {n_x} rows: {bytes:.1} GB/s, {products:.0} G products/s"
                );
            }
        }
    }
}
