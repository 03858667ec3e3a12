//! The plan's buffers in host memory.

use super::matmul::Activations;
use super::quantise::Q8Rows;
use crate::numerics::guard;
use crate::plan::{BufferId, Plan, Shape};

/// A buffer of the plan, vector by vector; `width` is a vector's.
#[derive(Debug)]
pub(super) enum Buffer {
    F32 { values: Vec<f32> },
    Q8 { width: usize, rows: Q8Rows },
}

impl Buffer {
    fn new(shape: Shape, n_rows: usize) -> Self {
        match shape {
            Shape::F32 { vectors, width } => Buffer::F32 { values: vec![0.0; n_rows * vectors * width] },
            Shape::Q8 { vectors, width } => Buffer::Q8 { width, rows: Q8Rows::zeroed(width, n_rows * vectors) },
        }
    }

    /// Values of all rows.
    fn len(&self) -> usize {
        match self {
            Buffer::F32 { values } => values.len(),
            Buffer::Q8 { width, rows } => rows.rows() * width,
        }
    }

    pub(super) fn activations(&self) -> Activations<'_> {
        match self {
            Buffer::Q8 { rows, .. } => Activations::Q8(rows),
            Buffer::F32 { values } => Activations::F32(values),
        }
    }

    pub(super) fn f32(&self) -> &[f32] {
        match self {
            Buffer::F32 { values } => values,
            Buffer::Q8 { .. } => unreachable!("the plan reads f32 here"),
        }
    }

    pub(super) fn f32_mut(&mut self) -> &mut [f32] {
        self.f32_vec()
    }

    pub(super) fn f32_vec(&mut self) -> &mut Vec<f32> {
        match self {
            Buffer::F32 { values } => values,
            Buffer::Q8 { .. } => unreachable!("the plan writes f32 here"),
        }
    }
}

/// The plan's buffers for a number of rows.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) n_rows: usize,
    pub(super) all: Vec<Buffer>,
    /// One f32 value for every value of the widest result: what is computed before it is quantised.
    scratch: Vec<f32>,
}

impl Buffers {
    pub(super) fn new(plan: &Plan, n_rows: usize) -> Self {
        let all: Vec<_> = plan.buffers.iter().map(|shape| Buffer::new(*shape, n_rows)).collect();
        Buffers { n_rows, all, scratch: Vec::new() }
    }

    /// Makes them hold `n_rows` rows.
    pub(super) fn ensure(&mut self, plan: &Plan, n_rows: usize) {
        if self.n_rows != n_rows {
            *self = Buffers::new(plan, n_rows);
        }
    }

    pub(super) fn get(&self, id: BufferId) -> &Buffer {
        &self.all[id.0 as usize]
    }

    /// Computes `out` from the other buffers: `fill` writes f32 rows, which are added to, copied to or quantised into `out`.
    pub(super) fn produce(&mut self, out: BufferId, accumulate: bool, fill: impl FnOnce(&Self, &mut [f32])) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(self.get(out).len(), 0.0);
        fill(self, &mut scratch);
        match &mut self.all[out.0 as usize] {
            Buffer::Q8 { width, rows } => {
                for (r, row) in scratch.chunks_exact(*width).enumerate() {
                    rows.quantise_row(r, row);
                }
            }
            Buffer::F32 { values } if accumulate => {
                for (value, added) in values.iter_mut().zip(&scratch) {
                    *value += guard(*added);
                }
            }
            Buffer::F32 { values } => values.copy_from_slice(&scratch),
        }
        self.scratch = scratch;
    }
}
