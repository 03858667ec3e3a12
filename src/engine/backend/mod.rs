//! The contract between the engine and a backend.

mod burst;
mod guard;
mod tables;

pub use burst::{Burst, Drawn, First, MAX_STOP_IDS, Row, RowEnd};
pub(crate) use burst::{ID_BITS, Limits, check_fed, check_feed, only};
pub use guard::Trip;
pub(crate) use guard::{MAX_GUARDED_LAYERS, UNTRIPPED};
pub(crate) use tables::{BlockTables, check_page, check_page_bytes, check_snapshot, check_state_bytes};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::model::weights::WeightDesc;
use crate::plan::{PAGE, WeightId};
use crate::quant::{PlaneLayout, Planes};

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

/// Why the host reads from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readback {
    /// Results of bursts: four bytes a step.
    Tokens,
    /// A row of logits.
    Logits,
    /// A hidden state after the output norm.
    Embedding,
    /// Where the guard tripped.
    Guard,
    /// Times of operations.
    Profile,
    /// A page of the cache, or a snapshot of recurrent states.
    Page,
    /// Results of single operations.
    Trace,
    /// A measurement of the device, or a test case.
    Test,
}

/// How much a ring holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSize {
    /// Bursts that may be in flight at once, 1 to 16.
    pub slots: usize,
    /// Steps of a burst, 1 to 256.
    pub steps: usize,
}

impl Default for RingSize {
    fn default() -> Self {
        RingSize { slots: 4, steps: 64 }
    }
}

impl RingSize {
    /// Checks both numbers.
    ///
    /// # Errors
    /// `BadOption` names the one that is out of range.
    pub fn check(self) -> Result<()> {
        if !(1..=16).contains(&self.slots) {
            return bad("ring slots", self.slots, "1 to 16");
        }
        if !(1..=256).contains(&self.steps) {
            return bad("ring steps", self.steps, "1 to 256");
        }
        Ok(())
    }
}

/// What a ring has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RingCounters {
    /// Slots handed out.
    pub acquisitions: u64,
    /// Of these, slots that had been used before.
    pub reuses: u64,
    /// Times the ring was made anew.
    pub reallocations: u64,
}

/// Work of the device, counted since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
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
    /// Bytes of the device buffers created.
    pub buffer_bytes: u64,
    /// Bind groups created.
    pub bind_groups_created: u64,
    /// Query sets created.
    pub query_sets_created: u64,
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
            buffer_bytes: self.buffer_bytes - earlier.buffer_bytes,
            bind_groups_created: self.bind_groups_created - earlier.bind_groups_created,
            query_sets_created: self.query_sets_created - earlier.query_sets_created,
        }
    }
}

/// How a backend runs what it is asked; the bits are the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Execution {
    /// Size of the ring.
    pub ring: RingSize,
    /// Whether every dispatch is a submit of its own.
    pub split_submits: bool,
    /// The magnitude from which the guard trips: infinity for non-finite values alone, `None` for nothing.
    pub guard_limit: Option<f32>,
    /// What of the device's work is timed.
    pub timing: Timing,
}

/// What of a device's work is timed, where it has timestamps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Timing {
    /// Nothing.
    #[default]
    Off,
    /// Each submit as a whole, at no cost.
    Submits,
    /// Each operation, which slows them down.
    Ops,
}

impl Default for Execution {
    fn default() -> Self {
        let guard_limit = Some(f32::INFINITY);
        Execution { ring: RingSize::default(), split_submits: false, guard_limit, timing: Timing::Off }
    }
}

fn bad<T>(option: &'static str, found: usize, expected: &'static str) -> Result<T> {
    Err(Error::BadOption { option, found: found.to_string(), expected })
}

/// Most sequences a backend holds: rows of a decode step.
pub const MAX_SLOTS: usize = 64;

/// What a backend has room for. A number of positions is one sequence of that length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Positions a sequence may have.
    pub n_ctx: usize,
    /// Sequences, 1 to [`MAX_SLOTS`].
    pub slots: usize,
    /// Pages of the cache, which all sequences share.
    pub pages: usize,
    /// Snapshots of recurrent states; a model without such states needs none.
    pub snapshots: usize,
}

impl From<usize> for Capacity {
    fn from(n_ctx: usize) -> Self {
        let n_ctx = n_ctx.max(1);
        Capacity { n_ctx, slots: 1, pages: n_ctx.div_ceil(PAGE), snapshots: 4 }
    }
}

impl Capacity {
    /// Checks every number.
    ///
    /// # Errors
    /// `BadOption` names the one that is out of range.
    pub fn check(self) -> Result<()> {
        if self.n_ctx == 0 {
            return bad("context", 0, "at least 1 token");
        }
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            return bad("slots", self.slots, "1 to 64");
        }
        if self.pages == 0 || self.pages > MAX_PAGES {
            return bad("pages", self.pages, "1 to 16,777,216");
        }
        Ok(())
    }
}

/// Most pages of a cache: their indices and counts stay far from the limits of 32 bits.
const MAX_PAGES: usize = 1 << 24;

/// An interpreter of plans. It holds sequences, each in a slot; a slot's keys and values lie in the pages that its block table names, its logits
/// stay until the slot computes new ones. What runs on one slot never changes another one's.
#[allow(async_fn_in_trait)]
pub trait Backend {
    /// Who computes.
    fn info(&self) -> &BackendInfo;
    /// What there is room for.
    fn capacity(&self) -> Capacity;
    /// Most tokens one `feed` takes.
    fn max_chunk(&self) -> usize;
    /// How to run from now on; nothing may be in flight. Resets the guard of every slot.
    fn configure(&mut self, execution: Execution) -> Result<()>;
    /// Names the pages that hold the logical pages `first ..` of a slot. At the beginning the first slot has the first pages, in order.
    fn set_pages(&mut self, slot: usize, first: usize, pages: &[u32]) -> Result<()>;
    /// Begins a sequence in a slot: `tokens` are those whose keys and values are in its pages already. Resets the slot's guard.
    fn begin(&mut self, slot: usize, tokens: &[u32]) -> Result<()>;
    /// Copies a page's keys and values of every layer.
    fn copy_page(&mut self, from: u32, to: u32) -> Result<()>;
    /// A page's keys and values, layer by layer, the same bytes on every backend.
    async fn read_page(&mut self, page: u32) -> Result<Vec<u8>>;
    /// Writes what `read_page` gave.
    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<()>;
    /// Copies a slot's recurrent states to a snapshot.
    fn save_state(&mut self, slot: usize, snapshot: usize) -> Result<()>;
    /// Makes a snapshot the recurrent states of a slot, whose next token then is the one that followed when it was saved. At position 0 a
    /// slot needs none.
    fn load_state(&mut self, slot: usize, snapshot: usize) -> Result<()>;
    /// A snapshot, layer by layer, the same bytes on every backend.
    async fn read_state(&mut self, snapshot: usize) -> Result<Vec<u8>>;
    /// Writes what `read_state` gave.
    fn write_state(&mut self, snapshot: usize, bytes: &[u8]) -> Result<()>;
    /// Runs the plan's body over `tokens` at positions `position ..` of a slot, appending to its cache.
    async fn feed(&mut self, slot: usize, tokens: &[u32], position: usize) -> Result<()>;
    /// Computes a slot's logits from row `row` of the last `feed`.
    async fn head(&mut self, slot: usize, row: usize) -> Result<()>;
    /// Feeds a token of each row and computes its logits: a step of a burst without its draw, which a burst from logits can follow. No row is
    /// `First::FromLogits`.
    async fn forward(&mut self, rows: &[Row<'_>]) -> Result<()>;
    /// A slot's logits, `[n_vocab]`.
    async fn read_logits(&mut self, slot: usize) -> Result<Vec<f32>>;
    /// The hidden state of row `row` of the last `feed` after the output norm, `[d]`.
    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>>;
    /// Draws up to `steps` tokens a row; results in the order of the rows.
    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<Drawn>>;
    /// Where the guard tripped on a slot since `configure`, and resets it.
    async fn take_trip(&mut self, slot: usize) -> Result<Option<Trip>>;
    /// Counters so far.
    fn counters(&self) -> Counters;
}
