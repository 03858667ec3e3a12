//! Activations rearranged once a product for the kernels.

use crate::cpu::matmul::{Activations, rounded};
use crate::cpu::quantise::Q8Rows;
use crate::quant::{PlaneLayout, QuantType};

/// Blocks after a row that a vector load may touch.
const SLACK: usize = 16;

/// Sixteen integers of each of four blocks: a cache line.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Quad([[i8; 16]; 4]);

/// Rows of activations in the order kernels read them. Every array has `stride` blocks a row.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Rows.
    pub(crate) rows: usize,
    /// Blocks a row, padding and slack included.
    pub(super) stride: usize,
    /// The first 16 integers of each block.
    pub(super) first: Vec<Quad>,
    /// The last 16 integers of each block.
    pub(super) last: Vec<Quad>,
    /// Scales.
    pub(super) d: Vec<f32>,
    /// Sums of the integers.
    pub(super) sum: Vec<f32>,
    /// Sums of the integers (Q6_K: of the first 16, and of the last 16) times the offset of the stored weights.
    pub(super) bias: Vec<i32>,
    pub(super) bias_last: Vec<i32>,
    /// Byte offsets in a row's `supers` by place.
    pub(super) supers: Vec<u32>,
    /// For float weights: value j of the block at step t of segment s is `[t][j][s]`, 32 segments.
    pub(super) floats: Vec<[[f32; 32]; 32]>,
}

impl Prepared {
    /// Rearranges `x` for weights of `layout`;
    pub(crate) fn new(layout: &PlaneLayout, x: Activations<'_>, rows: usize) -> Self {
        match x {
            Activations::Q8(x) => quantised(layout, x, rows),
            Activations::F32(x) => Self { rows, floats: transposed(layout, x), ..Self::default() },
        }
    }
}

fn quantised(layout: &PlaneLayout, x: &Q8Rows, rows: usize) -> Prepared {
    let places = layout.segments.places();
    let stride = (places + SLACK).next_multiple_of(16);
    let none = Quad([[0; 16]; 4]);
    let mut p = Prepared {
        rows,
        stride,
        first: vec![none; rows * stride / 4],
        last: vec![none; rows * stride / 4],
        d: vec![0.0; rows * stride],
        sum: vec![0.0; rows * stride],
        bias: vec![0; rows * stride],
        ..Prepared::default()
    };
    let offset = offset(layout.kind);
    for (at, block) in x.q.as_chunks::<32>().0.iter().enumerate() {
        let to = at / places * stride + at % places;
        p.first[to / 4].0[to % 4].copy_from_slice(&block[..16]);
        p.last[to / 4].0[to % 4].copy_from_slice(&block[16..]);
        p.d[to] = x.d[at];
        p.sum[to] = x.sum[at] as f32;
        p.bias[to] = offset * x.sum[at];
    }
    if layout.kind == QuantType::Q6_K {
        let scaled = |half: &[i8; 16]| offset * half.iter().map(|&q| i32::from(q)).sum::<i32>();
        p.bias = p.first.iter().flat_map(|quad| &quad.0).map(scaled).collect();
        p.bias_last = p.last.iter().flat_map(|quad| &quad.0).map(scaled).collect();
    }
    if layout.supers_stride > 0 {
        let offset = |i| layout.super_offset(layout.segments.block(i)) as u32;
        p.supers = (0..stride).map(|i| if i < places { offset(i) } else { 0 }).collect();
    }
    p
}

/// What the stored integers of a type exceed the weights by.
fn offset(kind: QuantType) -> i32 {
    match kind {
        QuantType::Q4_0 => 8,
        QuantType::Q5_0 => 16,
        QuantType::Q6_K => 32,
        QuantType::Q8_0 => 128,
        _ => 0,
    }
}

fn transposed(layout: &PlaneLayout, x: &[f32]) -> Vec<[[f32; 32]; 32]> {
    let segments = layout.segments;
    let mut out = vec![[[0.0; 32]; 32]; x.len() / layout.k * segments.len];
    for (row, out) in x.chunks_exact(layout.k).zip(out.chunks_exact_mut(segments.len)) {
        for (i, &x) in row.iter().enumerate() {
            let (s, t) = (i / 32 / segments.len, i / 32 % segments.len);
            out[t][i % 32][s] = rounded(layout.kind, x);
        }
    }
    out
}
