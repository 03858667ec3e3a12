//! The contract between the engine and a backend.

use crate::error::Result;
use crate::model::weights::WeightDesc;
use crate::plan::WeightId;
use crate::quant::{PlaneLayout, Planes};
use crate::sample::Sampling;

/// Receives weights while they stream in. Every row arrives once, in ascending order within a weight.
pub trait WeightSink {
    /// Makes room for a matrix.
    fn allocate(&mut self, id: WeightId, desc: &WeightDesc, layout: &PlaneLayout) -> Result<()>;
    /// Stores rows `first_row ..` of a matrix; `planes` holds `n_rows` rows.
    fn write_rows(&mut self, id: WeightId, first_row: usize, n_rows: usize, planes: &Planes) -> Result<()>;
    /// Stores a vector.
    fn write_vector(&mut self, id: WeightId, values: &[f32]) -> Result<()>;
}

/// Who computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendInfo {
    /// `cpu` or `wgpu`.
    pub backend: &'static str,
    /// The processor's instruction set or the adapter's name.
    pub adapter: String,
}

/// Where a burst's first token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Drawn from the logits of the last `head`: the burst's first step only samples.
    FromLogits,
    /// The last token the previous burst drew; it is on the device already and is fed first.
    FromState,
    /// This token is fed first.
    Token(u32),
}

/// A request for several decode steps.
#[derive(Debug, Clone, Copy)]
pub struct Burst<'a> {
    /// Where the first token comes from.
    pub first: First,
    /// Tokens in the cache before the burst: the position of the next token fed.
    pub position: usize,
    /// Tokens to draw, at least 1.
    pub steps: usize,
    /// How they are drawn.
    pub sampling: &'a Sampling,
    /// Ids after which the result does not matter; a backend may end the burst after one.
    pub stop_ids: &'a [u32],
}

/// Work of the device, counted since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Command buffers submitted.
    pub submits: u64,
    /// Compute dispatches recorded.
    pub dispatches: u64,
    /// Buffers mapped for reading.
    pub maps: u64,
    /// Bytes copied from device to host.
    pub bytes_read: u64,
    /// Device buffers created.
    pub buffers_created: u64,
    /// Bind groups created.
    pub bind_groups_created: u64,
}

impl std::ops::Sub for Counters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Counters {
            submits: self.submits - earlier.submits,
            dispatches: self.dispatches - earlier.dispatches,
            maps: self.maps - earlier.maps,
            bytes_read: self.bytes_read - earlier.bytes_read,
            buffers_created: self.buffers_created - earlier.buffers_created,
            bind_groups_created: self.bind_groups_created - earlier.bind_groups_created,
        }
    }
}

/// An interpreter of plans holding one sequence.
#[allow(async_fn_in_trait)]
pub trait Backend {
    /// Who computes.
    fn info(&self) -> &BackendInfo;
    /// Most tokens one `feed` takes.
    fn max_chunk(&self) -> usize;
    /// Runs the plan's body over `tokens` at positions `position ..`, appending to the cache.
    async fn feed(&mut self, tokens: &[u32], position: usize) -> Result<()>;
    /// Computes the logits of row `row` of the last `feed`; they stay with the backend.
    async fn head(&mut self, row: usize) -> Result<()>;
    /// The logits of the last `head` or burst step, `[n_vocab]`.
    async fn read_logits(&mut self) -> Result<Vec<f32>>;
    /// Draws up to `steps` tokens.
    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<u32>>;
    /// Counters so far.
    fn counters(&self) -> Counters;
}
