//! The weights a plan refers to: which tensors, stacked how, in which format.

use crate::error::{Error, Result};
use crate::gguf::{Header, TensorInfo};
use crate::plan::WeightId;
use crate::quant::QuantType;

/// What a weight is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `[rows, k]`, kept in its format as planes.
    Matrix,
    /// `[rows, k]`, few values, held as f32.
    Vector,
}

/// One weight: one tensor, or several of the same type and row length stacked by rows.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightDesc {
    /// Tensors of the file, first rows first.
    pub tensors: Vec<TensorInfo>,
    /// Format in the file.
    pub kind: QuantType,
    /// Rows of all tensors together.
    pub rows: usize,
    /// Experts whose rows follow one another; 1 for what no expert has.
    pub n_experts: usize,
    /// Values a row.
    pub k: usize,
    /// Use.
    pub role: Role,
}

impl WeightDesc {
    /// Rows of one expert; all where there are none.
    pub fn expert_rows(&self) -> usize {
        self.rows / self.n_experts
    }
}

/// The list of weights, indexed by `WeightId`.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    descs: Vec<WeightDesc>,
}

impl Weights {
    /// The description of a weight.
    pub fn desc(&self, id: WeightId) -> &WeightDesc {
        &self.descs[id.0 as usize]
    }

    /// All weights in order.
    pub fn iter(&self) -> impl Iterator<Item = (WeightId, &WeightDesc)> {
        self.descs.iter().enumerate().map(|(i, d)| (WeightId(i as u32), d))
    }

    /// Bytes of all tensors in the file.
    pub fn file_bytes(&self) -> u64 {
        self.descs.iter().flat_map(|d| &d.tensors).map(|t| t.bytes).sum()
    }

    fn push(&mut self, desc: WeightDesc) -> WeightId {
        self.descs.push(desc);
        WeightId(self.descs.len() as u32 - 1)
    }

    /// A vector of `k` values.
    pub fn vector(&mut self, header: &Header, name: &str, k: usize) -> Result<WeightId> {
        self.table(header, name, 1, k)
    }

    /// A small table of `rows` rows of `k` values, held as f32.
    pub fn table(&mut self, header: &Header, name: &str, rows: usize, k: usize) -> Result<WeightId> {
        let info = header.require(name)?;
        expect_shape(info, rows, k)?;
        let tensors = vec![info.clone()];
        Ok(self.push(WeightDesc { tensors, kind: info.kind, rows, n_experts: 1, k, role: Role::Vector }))
    }

    /// A matrix of `rows` rows of `k` values.
    pub fn matrix(&mut self, header: &Header, name: &str, rows: usize, k: usize) -> Result<WeightId> {
        Ok(self.stack(header, &[(name, rows)], k)?[0])
    }

    /// Matrices that read the same input: neighbours of one type become one weight.
    pub fn stack(&mut self, header: &Header, parts: &[(&str, usize)], k: usize) -> Result<Vec<WeightId>> {
        let mut groups: Vec<WeightDesc> = Vec::new();
        for &(name, rows) in parts {
            let info = header.require(name)?;
            expect_matrix(info, rows, k)?;
            match groups.last_mut() {
                Some(group) if group.kind == info.kind => {
                    group.tensors.push(info.clone());
                    group.rows += rows;
                }
                _ => groups.push(WeightDesc {
                    tensors: vec![info.clone()],
                    kind: info.kind,
                    rows,
                    n_experts: 1,
                    k,
                    role: Role::Matrix,
                }),
            }
        }
        Ok(groups.into_iter().map(|g| self.push(g)).collect())
    }

    /// The matrices of `n_experts` experts, `rows` rows of `k` values each: one tensor of three dimensions.
    pub fn experts(
        &mut self,
        header: &Header,
        name: &str,
        n_experts: usize,
        rows: usize,
        k: usize,
    ) -> Result<WeightId> {
        let info = header.require(name)?;
        if info.dims != [k, rows, n_experts].map(|n| n as u64) {
            return Err(Error::BadTensor {
                tensor: info.name.clone(),
                found: format!("dimensions {:?}", info.dims),
                expected: format!("[{k}, {rows}, {n_experts}]"),
            });
        }
        expect_matrix(info, n_experts * rows, k)?;
        let (tensors, rows) = (vec![info.clone()], n_experts * rows);
        Ok(self.push(WeightDesc { tensors, kind: info.kind, rows, n_experts, k, role: Role::Matrix }))
    }
}

fn expect_shape(info: &TensorInfo, rows: usize, k: usize) -> Result<()> {
    if info.row_len() == k && info.rows() == rows {
        return Ok(());
    }
    Err(Error::BadTensor {
        tensor: info.name.clone(),
        found: format!("shape [{}, {}]", info.rows(), info.row_len()),
        expected: format!("[{rows}, {k}]"),
    })
}

fn expect_matrix(info: &TensorInfo, rows: usize, k: usize) -> Result<()> {
    expect_shape(info, rows, k)?;
    if k.is_multiple_of(32) {
        return Ok(());
    }
    Err(Error::BadTensor {
        tensor: info.name.clone(),
        found: format!("rows of {k} values"),
        expected: "a multiple of 32".into(),
    })
}
