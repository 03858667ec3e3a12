//! The contract between the engine and a backend.

use serde::Serialize;

use super::ledger::Phase;
use crate::error::{Error, Result};
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
    /// The last token the previous burst drew; it is on the device already and is fed first. Between the two bursts nothing else runs
    /// but `read_logits`; where the row has ended nothing is drawn.
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
    /// Ids that end the row: it does no work after drawing one. At most [`MAX_STOP_IDS`].
    pub stop_ids: &'a [u32],
    /// Tokens the row may draw until it ends, counted from here where the burst does not follow another one.
    pub left: usize,
}

/// What a backend has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Vocabulary size.
    pub(crate) n_vocab: usize,
    /// Positions of the cache.
    pub(crate) n_ctx: usize,
    /// Steps of a burst.
    pub(crate) steps: usize,
}

impl Limits {
    fn check_tokens(self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|id| **id as usize >= self.n_vocab) {
            Some(&id) => Err(Error::BadToken { id, n_vocab: self.n_vocab }),
            None => Ok(()),
        }
    }

    fn check_room(self, needed: usize) -> Result<()> {
        match needed > self.n_ctx {
            true => Err(Error::ContextFull { needed, limit: self.n_ctx }),
            false => Ok(()),
        }
    }
}

/// Checks the tokens of a feed, of which a chunk takes `max_chunk`.
pub(crate) fn check_feed(tokens: &[u32], position: usize, limits: Limits, max_chunk: usize) -> Result<()> {
    limits.check_tokens(tokens)?;
    limits.check_room(position + tokens.len())?;
    if tokens.is_empty() || tokens.len() > max_chunk {
        let found = tokens.len().to_string();
        return Err(Error::BadOption {
            option: "tokens of a chunk",
            found,
            expected: "at least 1 and at most max_chunk",
        });
    }
    Ok(())
}

impl Burst<'_> {
    /// The part of a generation its time belongs to: drawing the first token ends the prefill.
    pub(crate) fn phase(&self) -> Phase {
        if self.first == First::FromLogits && self.steps == 1 { Phase::Prefill } else { Phase::Decode }
    }

    /// Checks a burst before it runs.
    ///
    /// # Errors
    /// Those of [`Burst::check_shape`], `BadToken` and `ContextFull` for what cannot be fed.
    pub(crate) fn check(&self, limits: Limits) -> Result<()> {
        self.check_shape(limits.steps)?;
        if let First::Token(id) = self.first {
            limits.check_tokens(&[id])?;
        }
        limits.check_room(self.position + self.steps - usize::from(self.first == First::FromLogits))
    }

    /// Checks what does not depend on the sequence; a burst has at most `max_steps` steps.
    ///
    /// # Errors
    /// `BadOption` names what is out of range.
    pub(crate) fn check_shape(&self, max_steps: usize) -> Result<()> {
        let bad = |option, found: usize, expected| Err(Error::BadOption { option, found: found.to_string(), expected });
        if self.steps == 0 || self.steps > max_steps {
            return bad("burst", self.steps, "at least 1 and at most the ring's steps");
        }
        if self.left == 0 {
            return bad("tokens left", 0, "at least 1");
        }
        if self.stop_ids.len() > MAX_STOP_IDS {
            return bad("stop ids", self.stop_ids.len(), "at most 64");
        }
        Ok(())
    }
}

/// Most ids that end a row on the device.
pub const MAX_STOP_IDS: usize = 64;
/// Bits of a result word that hold the token id.
pub(crate) const ID_BITS: u32 = 24;

/// Why a row has ended. It then stays ended until a burst starts it anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowEnd {
    /// It drew one of the stop ids.
    StopId,
    /// It drew as many tokens as it may.
    MaxTokens,
    /// The cache has no position for the token it drew last.
    ContextFull,
    /// The guard tripped; the step drew nothing.
    Guard,
    /// Every id is banned or has a logit that is NaN or -infinity; the step drew nothing.
    NoCandidate,
}

/// What a burst drew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Token ids, one a step that ran.
    pub ids: Vec<u32>,
    /// Why the row ended, where it did in this burst.
    pub end: Option<RowEnd>,
}

/// In a result word: the row had ended before the step.
const NOT_RUN: u32 = 255;

impl Drawn {
    /// Reads result words: a token id in the low 24 bits, and above it why the row ended with the step, 0 where it goes on.
    pub(crate) fn from_words(words: &[u32]) -> Self {
        let mut drawn = Drawn::default();
        for word in words {
            let id = word & ((1 << ID_BITS) - 1);
            let (emits, end) = match word >> ID_BITS {
                0 => (true, None),
                1 => (true, Some(RowEnd::StopId)),
                2 => (true, Some(RowEnd::MaxTokens)),
                3 => (true, Some(RowEnd::ContextFull)),
                4 => (false, Some(RowEnd::Guard)),
                NOT_RUN => (false, None),
                _ => (false, Some(RowEnd::NoCandidate)),
            };
            drawn.ids.extend(emits.then_some(id));
            drawn.end = drawn.end.or(end);
        }
        drawn
    }
}

/// Where the guard found a hidden state it does not let pass: the earliest position, the first layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// The layer that wrote it; `None` for the embedding.
    pub layer: Option<usize>,
    /// Position of its token.
    pub position: usize,
    /// Whether it is infinite or NaN; else its magnitude reached the limit.
    pub not_finite: bool,
}

/// The guard's word before it trips.
pub(crate) const UNTRIPPED: u32 = u32::MAX;
/// Layers the guard's word can name.
pub(crate) const MAX_GUARDED_LAYERS: usize = 1022;

impl Trip {
    /// The word of a trip: the least of several is the earliest.
    pub(crate) fn word(self) -> u32 {
        let source = self.layer.map_or(0, |layer| layer as u32 + 1);
        ((self.position as u32).min(0xf_ffff) << 12) | (source << 2) | if self.not_finite { 1 } else { 2 }
    }

    /// Reads the guard's word.
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        (word != UNTRIPPED).then(|| Trip {
            layer: ((word >> 2) & 0x3ff).checked_sub(1).map(|layer| layer as usize),
            position: (word >> 12) as usize,
            not_finite: word & 3 == 1,
        })
    }
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
        let bad = |option, found: usize, expected| Err(Error::BadOption { option, found: found.to_string(), expected });
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

/// An interpreter of plans holding one sequence.
#[allow(async_fn_in_trait)]
pub trait Backend {
    /// Who computes.
    fn info(&self) -> &BackendInfo;
    /// Most tokens one `feed` takes.
    fn max_chunk(&self) -> usize;
    /// How to run from now on; nothing may be in flight. Resets the guard.
    fn configure(&mut self, execution: Execution) -> Result<()>;
    /// Runs the plan's body over `tokens` at positions `position ..`, appending to the cache.
    async fn feed(&mut self, tokens: &[u32], position: usize) -> Result<()>;
    /// Computes the logits of row `row` of the last `feed`; they stay with the backend.
    async fn head(&mut self, row: usize) -> Result<()>;
    /// The logits of the last `head` or burst step, `[n_vocab]`.
    async fn read_logits(&mut self) -> Result<Vec<f32>>;
    /// The hidden state of row `row` of the last `feed` after the output norm, `[d]`.
    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>>;
    /// Draws up to `steps` tokens.
    async fn burst(&mut self, burst: Burst<'_>) -> Result<Drawn>;
    /// Where the guard tripped since `configure`, and resets it.
    async fn take_trip(&mut self) -> Result<Option<Trip>>;
    /// Counters so far.
    fn counters(&self) -> Counters;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_words() {
        let word = |status: u32, id: u32| (status << ID_BITS) | id;
        let cases: [(&[u32], &[u32], Option<RowEnd>); 7] = [
            (&[], &[], None),
            (&[word(0, 7), word(0, 9)], &[7, 9], None),
            (&[word(0, 7), word(1, 9), word(255, 0)], &[7, 9], Some(RowEnd::StopId)),
            (&[word(2, 0xff_ffff)], &[0xff_ffff], Some(RowEnd::MaxTokens)),
            (&[word(0, 1), word(3, 2)], &[1, 2], Some(RowEnd::ContextFull)),
            (&[word(0, 1), word(4, 2), word(255, 0)], &[1], Some(RowEnd::Guard)),
            (&[word(5, 0)], &[], Some(RowEnd::NoCandidate)),
        ];
        for (words, ids, end) in cases {
            assert_eq!(Drawn::from_words(words), Drawn { ids: ids.into(), end }, "{words:x?}");
        }
    }

    #[test]
    fn trips_are_ordered_by_position_then_layer() {
        let trip = |layer, position, not_finite| Trip { layer, position, not_finite };
        let ordered = [trip(None, 0, true), trip(Some(0), 0, false), trip(Some(9), 0, true), trip(None, 1, false)];
        assert!(ordered.windows(2).all(|w| w[0].word() < w[1].word()));
        for trip in ordered {
            assert_eq!(Trip::from_word(trip.word()), Some(trip));
        }
        assert_eq!(Trip::from_word(UNTRIPPED), None);
        let last = trip(Some(MAX_GUARDED_LAYERS), 0xf_ffff, false);
        assert_ne!(last.word(), UNTRIPPED);
        assert_eq!(Trip::from_word(last.word()), Some(last));
    }
}
