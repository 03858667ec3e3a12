//! Streams tensors from the file to a backend: read a few rows, check, repack to planes, hand over, forget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::weights::{Role, WeightDesc, Weights};
use crate::engine::backend::WeightSink;
use crate::error::{Error, Result};
use crate::gguf::{GgufFile, TensorInfo};
use crate::plan::WeightId;
use crate::quant::{self, PlaneLayout, Planes};

/// Bytes of a tensor read at once: bounds host memory while loading.
const READ_BYTES: usize = 4 << 20;

/// How far a load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Bytes of tensors handed over so far.
    pub bytes: u64,
    /// Bytes of all tensors.
    pub total: u64,
    /// The tensor being read.
    pub tensor: &'a str,
}

/// Called after every piece of a tensor.
pub type ProgressFn<'a> = dyn FnMut(Progress<'_>) + 'a;

/// Cancels long work from elsewhere. Clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the work to stop; it ends with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// `Err(Cancelled)` once `cancel` was called.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Streams every weight into `sink`.
pub async fn load_weights(
    file: &GgufFile,
    weights: &Weights,
    sink: &mut impl WeightSink,
    progress: &mut ProgressFn<'_>,
    cancel: &CancelToken,
) -> Result<()> {
    let total = weights.file_bytes();
    let mut loader = Loader { file, buffer: Vec::new(), planes: Planes::default(), bytes: 0, total, progress, cancel };
    for (id, desc) in weights.iter() {
        match desc.role {
            Role::Matrix => loader.matrix(id, desc, sink).await?,
            Role::Vector => {
                let values = loader.vector(&desc.tensors[0]).await?;
                sink.write_vector(id, &values)?;
            }
        }
    }
    Ok(())
}

/// The values of a small tensor as f32.
pub async fn read_vector(file: &GgufFile, info: &TensorInfo) -> Result<Vec<f32>> {
    let mut bytes = vec![0; info.bytes as usize];
    file.read_tensor(info, 0..info.bytes, &mut bytes).await?;
    check_finite(info, &bytes)?;
    // Rows of floats may end inside the 32 values that are decoded at once.
    let whole = info.row_len().next_multiple_of(32);
    let (mut row, mut decoded) = (vec![0; info.kind.row_bytes(whole)], vec![0.0; whole]);
    let mut values = Vec::with_capacity(info.row_len() * info.rows());
    for bytes in bytes.chunks_exact(info.row_bytes()) {
        row[..bytes.len()].copy_from_slice(bytes);
        quant::dequantise_row(info.kind, &row, &mut decoded);
        values.extend_from_slice(&decoded[..info.row_len()]);
    }
    Ok(values)
}

struct Loader<'a, 'p> {
    file: &'a GgufFile,
    buffer: Vec<u8>,
    planes: Planes,
    bytes: u64,
    total: u64,
    progress: &'a mut ProgressFn<'p>,
    cancel: &'a CancelToken,
}

impl Loader<'_, '_> {
    async fn vector(&mut self, info: &TensorInfo) -> Result<Vec<f32>> {
        let values = read_vector(self.file, info).await?;
        self.advance(info, info.bytes)?;
        Ok(values)
    }

    async fn matrix(&mut self, id: WeightId, desc: &WeightDesc, sink: &mut impl WeightSink) -> Result<()> {
        let layout = PlaneLayout::new(desc.kind, desc.k).map_err(|reason| Error::BadTensor {
            tensor: desc.tensors[0].name.clone(),
            found: format!("{:?} with rows of {} values", desc.kind, desc.k),
            expected: reason,
        })?;
        sink.allocate(id, desc, &layout)?;
        let mut first_row = 0;
        for info in &desc.tensors {
            self.tensor(id, info, &layout, first_row, sink).await?;
            first_row += info.rows();
        }
        Ok(())
    }

    async fn tensor(
        &mut self,
        id: WeightId,
        info: &TensorInfo,
        layout: &PlaneLayout,
        first_row: usize,
        sink: &mut impl WeightSink,
    ) -> Result<()> {
        let row_bytes = info.kind.row_bytes(info.row_len());
        let rows = info.rows();
        let step = (READ_BYTES / row_bytes).max(1);
        for start in (0..rows).step_by(step) {
            let n = step.min(rows - start);
            let range = (start * row_bytes) as u64..((start + n) * row_bytes) as u64;
            self.buffer.resize(n * row_bytes, 0);
            self.file.read_tensor(info, range, &mut self.buffer).await?;
            check_finite(info, &self.buffer)?;
            self.planes.resize(layout, n);
            quant::repack_rows(layout, &self.buffer, self.planes.as_mut());
            sink.write_rows(id, first_row + start, n, &self.planes)?;
            self.advance(info, (n * row_bytes) as u64)?;
        }
        Ok(())
    }

    fn advance(&mut self, info: &TensorInfo, bytes: u64) -> Result<()> {
        self.bytes += bytes;
        (self.progress)(Progress { bytes: self.bytes, total: self.total, tensor: &info.name });
        self.cancel.check()
    }
}

fn check_finite(info: &TensorInfo, bytes: &[u8]) -> Result<()> {
    match quant::find_nonfinite(info.kind, bytes) {
        None => Ok(()),
        Some(block) => Err(Error::BadTensor {
            tensor: info.name.clone(),
            found: format!("a scale or value that is not finite, in block {block} of the part read"),
            expected: "finite numbers".into(),
        }),
    }
}
