//! Weights in host memory.

use super::matrix::PackedMatrix;
use crate::engine::backend::WeightSink;
use crate::error::Result;
use crate::model::weights::WeightDesc;
use crate::plan::WeightId;
use crate::quant::{PlaneLayout, Planes};

/// Weights in host memory, indexed by `WeightId`.
#[derive(Debug, Default)]
pub struct CpuWeights {
    matrices: Vec<Option<PackedMatrix>>,
    vectors: Vec<Option<Vec<f32>>>,
}

impl CpuWeights {
    fn grow(&mut self, id: WeightId) -> usize {
        let at = id.0 as usize;
        if self.matrices.len() <= at {
            self.matrices.resize_with(at + 1, || None);
            self.vectors.resize_with(at + 1, || None);
        }
        at
    }

    pub(super) fn has(&self, id: WeightId) -> bool {
        let at = id.0 as usize;
        self.matrices.get(at).is_some_and(Option::is_some) || self.vectors.get(at).is_some_and(Option::is_some)
    }

    /// The matrix `id`, which the loader stored.
    pub fn matrix(&self, id: WeightId) -> &PackedMatrix {
        self.matrices[id.0 as usize].as_ref().expect("the loader stored every matrix of the plan")
    }

    /// The vector `id`, which the loader stored.
    pub fn vector(&self, id: WeightId) -> &[f32] {
        self.vectors[id.0 as usize].as_deref().expect("the loader stored every vector of the plan")
    }
}

impl WeightSink for CpuWeights {
    fn allocate(&mut self, id: WeightId, desc: &WeightDesc, layout: &PlaneLayout) -> Result<()> {
        let at = self.grow(id);
        self.matrices[at] = Some(PackedMatrix::zeroed(*layout, desc.rows));
        Ok(())
    }

    fn write_rows(&mut self, id: WeightId, first_row: usize, n_rows: usize, planes: &Planes) -> Result<()> {
        let matrix = self.matrices[id.0 as usize].as_mut().expect("allocated before it is written");
        matrix.write_rows(first_row, n_rows, planes);
        Ok(())
    }

    fn write_vector(&mut self, id: WeightId, values: &[f32]) -> Result<()> {
        let at = self.grow(id);
        self.vectors[at] = Some(values.to_vec());
        Ok(())
    }
}
