//! Reading buffers back as words, in the form the contract gives them.

use super::buffers::Allocator;
use super::device::Gpu;
use super::driver::{Buffer, Usage};
use super::ops::PlanBuffer;
use super::readback;
use super::recorder::Commands;
use crate::engine::backend::Readback;
use crate::error::Result;
use crate::numerics::Segments;

impl PlanBuffer {
    /// The first `rows` rows: f32 bits, or the int8 words and then scales and sums (`Q8Rows::words` of the cpu).
    pub(crate) async fn words(&self, gpu: &Gpu, purpose: Readback, rows: usize) -> Result<Vec<u32>> {
        match self {
            PlanBuffer::F32 { vectors, width, values } => {
                read_words(gpu, purpose, values, 0, rows * vectors * width).await
            }
            PlanBuffer::Q8 { vectors, width, q, s } => {
                let places = rows * vectors * Segments::of(*width).places();
                let mut words = read_words(gpu, purpose, q, 0, places * 8).await?;
                words.extend(read_words(gpu, purpose, s, 0, places * 2).await?);
                Ok(words)
            }
        }
    }
}

/// Words `first .. first + n` of a buffer, once everything submitted has run.
///
/// # Errors
/// `UnexpectedReadback` where `purpose` is not among those allowed, `Device` where the device failed.
pub(crate) async fn read_words(
    gpu: &Gpu,
    purpose: Readback,
    buffer: &Buffer,
    first: usize,
    n: usize,
) -> Result<Vec<u32>> {
    let mut allocator = Allocator::new(gpu);
    let bytes = (n * 4) as u64;
    let staging = allocator.buffer("words staging", bytes, Usage::Staging);
    allocator.finish().await?;
    let mut commands = Commands::new(gpu);
    commands.copy(buffer, (first * 4) as u64, &staging, bytes);
    commands.submit();
    let data = readback::read(gpu, purpose, &staging, bytes).await?;
    Ok(bytemuck::pod_collect_to_vec(&data))
}
