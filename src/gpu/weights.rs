//! Weights on the device: planes by parts that fit a binding, vectors as f32.

use super::buffers::{Allocator, write};
use super::device::Gpu;
use super::driver::{Buffer, Usage};
use crate::engine::backend::WeightSink;
use crate::error::Result;
use crate::model::weights::WeightDesc;
use crate::plan::WeightId;
use crate::quant::{PlaneLayout, Planes};

/// Bytes written before the queue is flushed: bounds the staging memory of a load.
const FLUSH_BYTES: u64 = 64 << 20;

/// Rows of a matrix that share two buffers.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    /// `[rows, quants_stride]`
    pub(crate) quants: Buffer,
    /// The planes high, scales, supers, one after another.
    pub(crate) planes: Buffer,
}

/// A matrix on the device.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) layout: PlaneLayout,
    pub(crate) parts: Vec<Part>,
}

/// Byte offsets of the planes high, scales and supers of a part of `rows` rows.
pub(crate) fn plane_offsets(layout: &PlaneLayout, rows: usize) -> [usize; 3] {
    let scales = rows * layout.high_stride;
    [0, scales, scales + rows * layout.scales_stride]
}

/// Weights being loaded, indexed by `WeightId`.
pub struct GpuWeights {
    gpu: Gpu,
    allocator: Allocator,
    matrices: Vec<Option<Matrix>>,
    vectors: Vec<Option<Buffer>>,
    unflushed: u64,
    /// Bytes a buffer may have.
    max_part: u64,
}

impl GpuWeights {
    /// No weights yet.
    pub fn new(gpu: &Gpu) -> Self {
        GpuWeights {
            gpu: gpu.clone(),
            allocator: Allocator::new(gpu),
            matrices: Vec::new(),
            vectors: Vec::new(),
            unflushed: 0,
            max_part: gpu.max_binding(),
        }
    }

    /// Splits matrices into smaller parts than the device asks for.
    pub(crate) fn set_max_part(&mut self, bytes: Option<u64>) {
        self.max_part = bytes.unwrap_or(u64::MAX).min(self.gpu.max_binding());
    }

    /// Waits until every allocation is known to have succeeded.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.flush();
        self.allocator.finish().await
    }

    /// Whether the loader stored the weight `id`.
    pub(crate) fn has(&self, id: WeightId) -> bool {
        let at = id.0 as usize;
        self.matrices.get(at).is_some_and(Option::is_some) || self.vectors.get(at).is_some_and(Option::is_some)
    }

    /// The matrix `id`, which the loader stored.
    pub(crate) fn matrix(&self, id: WeightId) -> &Matrix {
        self.matrices[id.0 as usize].as_ref().expect("the loader stored every matrix of the plan")
    }

    /// The vector `id`, which the loader stored.
    pub(crate) fn vector(&self, id: WeightId) -> &Buffer {
        self.vectors[id.0 as usize].as_ref().expect("the loader stored every vector of the plan")
    }

    fn grow(&mut self, id: WeightId) -> usize {
        let at = id.0 as usize;
        if self.matrices.len() <= at {
            self.matrices.resize_with(at + 1, || None);
            self.vectors.resize_with(at + 1, || None);
        }
        at
    }

    fn count(&mut self, bytes: usize) {
        self.unflushed += bytes as u64;
        if self.unflushed >= FLUSH_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.gpu.driver().flush();
        self.unflushed = 0;
    }
}

/// Rows a part may have so that none of its buffers exceeds `max_part`.
fn rows_a_part(layout: &PlaneLayout, max_part: u64) -> usize {
    let others = layout.high_stride + layout.scales_stride + layout.supers_stride;
    (max_part as usize / layout.quants_stride.max(others)).max(1)
}

impl WeightSink for GpuWeights {
    fn allocate(&mut self, id: WeightId, desc: &WeightDesc, layout: &PlaneLayout) -> Result<()> {
        let at = self.grow(id);
        let step = rows_a_part(layout, self.max_part);
        let mut parts = Vec::new();
        for first_row in (0..desc.rows).step_by(step) {
            let rows = step.min(desc.rows - first_row);
            let others = rows * (layout.high_stride + layout.scales_stride + layout.supers_stride);
            let what = desc.tensors.first().map_or("weights", |t| t.name.as_str());
            let quants = self.allocator.buffer(what, (rows * layout.quants_stride) as u64, Usage::Storage);
            let planes = self.allocator.buffer(what, others as u64, Usage::Storage);
            parts.push(Part { first_row, rows, quants, planes });
        }
        self.matrices[at] = Some(Matrix { layout: *layout, parts });
        self.allocator.check()
    }

    fn write_rows(&mut self, id: WeightId, first_row: usize, n_rows: usize, planes: &Planes) -> Result<()> {
        let matrix = self.matrices[id.0 as usize].as_ref().expect("allocated before it is written");
        let layout = &matrix.layout;
        for part in &matrix.parts {
            let start = first_row.max(part.first_row);
            let end = (first_row + n_rows).min(part.first_row + part.rows);
            if start >= end {
                continue;
            }
            let rows = start - first_row..end - first_row;
            let to = start - part.first_row;
            let put = |buffer: &Buffer, offset: usize, plane: &[u8], stride: usize| {
                let data = &plane[rows.start * stride..rows.end * stride];
                write(&self.gpu, buffer, (offset + to * stride) as u64, data);
            };
            let [high, scales, supers] = plane_offsets(layout, part.rows);
            put(&part.quants, 0, &planes.quants, layout.quants_stride);
            put(&part.planes, high, &planes.high, layout.high_stride);
            put(&part.planes, scales, &planes.scales, layout.scales_stride);
            put(&part.planes, supers, &planes.supers, layout.supers_stride);
        }
        let bytes = n_rows * layout.row_bytes();
        self.count(bytes);
        self.gpu.check()
    }

    fn write_vector(&mut self, id: WeightId, values: &[f32]) -> Result<()> {
        let at = self.grow(id);
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.vectors[at] = Some(self.allocator.filled("vector", bytes, Usage::Storage));
        self.count(bytes.len());
        self.allocator.check()
    }
}
