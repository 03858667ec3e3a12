//! Several decode steps of several rows at once, and what they give.

use super::{BlockTables, Capacity, bad};
use crate::engine::ledger::Phase;
use crate::error::{Error, Result};
use crate::sample::Sampling;

/// Where a row's first token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Drawn from the logits of the slot's last `head` or `forward`: the burst's first step only samples. Either every row of a burst
    /// begins so or none. A row that had ended runs again.
    FromLogits,
    /// The last token the slot drew; it is on the device already and is fed first. Since that draw nothing else ran on the slot
    /// but `read_logits`; where the row has ended nothing is drawn.
    FromState,
    /// This token is fed first.
    Token(u32),
}

/// A sequence's part in a burst.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The sequence's slot.
    pub slot: usize,
    /// Where the first token comes from.
    pub first: First,
    /// Tokens in the cache before the burst: the position of the next token fed.
    pub position: usize,
    /// How tokens are drawn.
    pub sampling: &'a Sampling,
    /// Ids that end the row: it does no work after drawing one. At most [`MAX_STOP_IDS`].
    pub stop_ids: &'a [u32],
    /// Tokens the row may draw until it ends, counted from here where the row does not go on from its state.
    pub left: usize,
    /// The ids that may be drawn, bit `id % 32` of word `id / 32`; `None` allows all. Only where the burst has one step.
    pub mask: Option<&'a [u32]>,
}

impl<'a> Row<'a> {
    /// A row of `slot` without limits.
    pub fn new(slot: usize, first: First, position: usize, sampling: &'a Sampling) -> Self {
        Row { slot, first, position, sampling, stop_ids: &[], left: usize::MAX, mask: None }
    }
}

/// A request for several decode steps of some rows. The rows share one pass over the weights.
#[derive(Debug, Clone, Copy)]
pub struct Burst<'a> {
    /// The rows, at least one, each of its own slot.
    pub rows: &'a [Row<'a>],
    /// Tokens to draw a row, at least 1.
    pub steps: usize,
}

/// What a backend has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Vocabulary size.
    pub(crate) n_vocab: usize,
    /// Positions, sequences and pages.
    pub(crate) capacity: Capacity,
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
        match needed > self.capacity.n_ctx {
            true => Err(Error::ContextFull { needed, limit: self.capacity.n_ctx }),
            false => Ok(()),
        }
    }

    /// Checks a slot and the tokens that are in its cache.
    pub(crate) fn check_sequence(self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.check_slot(slot)?;
        self.check_tokens(tokens)?;
        self.check_room(tokens.len())
    }

    /// Checks that there is such a slot.
    pub(crate) fn check_slot(self, slot: usize) -> Result<()> {
        match slot < self.capacity.slots {
            true => Ok(()),
            false => bad("slot", slot, "below the number of slots"),
        }
    }
}

/// Checks the tokens of a feed, of which a chunk takes `max_chunk`.
pub(crate) fn check_feed(
    slot: usize,
    tokens: &[u32],
    position: usize,
    limits: Limits,
    tables: &BlockTables,
    max_chunk: usize,
) -> Result<()> {
    limits.check_slot(slot)?;
    limits.check_tokens(tokens)?;
    limits.check_room(position + tokens.len())?;
    if tokens.is_empty() || tokens.len() > max_chunk {
        return bad("tokens of a chunk", tokens.len(), "at least 1 and at most max_chunk");
    }
    tables.check(slot, position + tokens.len())
}

impl Burst<'_> {
    /// The part of a generation its time belongs to: drawing the first token ends the prefill.
    pub(crate) fn phase(&self) -> Phase {
        if self.only_draws_first() && self.steps == 1 { Phase::Prefill } else { Phase::Decode }
    }

    /// Whether the first step draws without feeding.
    pub(crate) fn only_draws_first(&self) -> bool {
        self.rows.iter().all(|row| row.first == First::FromLogits)
    }

    /// Tokens fed a row.
    pub(crate) fn fed(&self) -> usize {
        self.steps - usize::from(self.only_draws_first())
    }

    /// Checks a burst before it runs.
    ///
    /// # Errors
    /// Those of [`Burst::check_shape`], `BadToken` and `ContextFull` for what cannot be fed, `BadOption` for slots that are not there, come
    /// twice or have no page for what is fed.
    pub(crate) fn check(&self, limits: Limits, tables: &BlockTables) -> Result<()> {
        self.check_shape(limits.steps)?;
        for (at, row) in self.rows.iter().enumerate() {
            limits.check_slot(row.slot)?;
            if self.rows[..at].iter().any(|other| other.slot == row.slot) {
                return bad("slot", row.slot, "one row a slot");
            }
            if let First::Token(id) = row.first {
                limits.check_tokens(&[id])?;
            }
            row.sampling.check(limits.n_vocab)?;
            limits.check_room(row.position + self.fed())?;
            tables.check(row.slot, row.position + self.fed())?;
            if let Some(mask) = row.mask.filter(|mask| mask.len() != limits.n_vocab.div_ceil(32)) {
                return bad("words of a mask", mask.len(), "a bit for each token of the vocabulary");
            }
        }
        Ok(())
    }

    /// Checks the rows of a `forward`.
    ///
    /// # Errors
    /// Those of [`Burst::check`], and `BadOption` for rows that feed nothing.
    pub(crate) fn check_forward(&self, limits: Limits, tables: &BlockTables) -> Result<()> {
        self.check(limits, tables)?;
        match self.only_draws_first() {
            true => bad("rows that feed nothing", self.rows.len(), "none in a step without a draw"),
            false => Ok(()),
        }
    }

    /// Checks what does not depend on the sequences; a burst has at most `max_steps` steps.
    ///
    /// # Errors
    /// `BadOption` names what is out of range.
    pub(crate) fn check_shape(&self, max_steps: usize) -> Result<()> {
        if self.rows.is_empty() {
            return bad("rows", 0, "at least 1");
        }
        if self.steps == 0 || self.steps > max_steps {
            return bad("burst", self.steps, "at least 1 and at most the ring's steps");
        }
        let drawing = self.rows.iter().filter(|row| row.first == First::FromLogits).count();
        if drawing != 0 && drawing != self.rows.len() {
            return bad("rows that draw first", drawing, "all rows of a burst or none");
        }
        for row in self.rows {
            if row.left == 0 {
                return bad("tokens left", 0, "at least 1");
            }
            if row.stop_ids.len() > MAX_STOP_IDS {
                return bad("stop ids", row.stop_ids.len(), "at most 64");
            }
            if row.mask.is_some() && self.steps != 1 {
                return bad("steps under a mask", self.steps, "1");
            }
        }
        Ok(())
    }
}

/// Checks that a row is asked of the slot that fed last.
pub(crate) fn check_fed(slot: usize, fed: usize) -> Result<()> {
    if slot == fed { Ok(()) } else { bad("slot", slot, "the slot of the last chunk") }
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

/// What a burst drew for one row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Token ids, one a step that ran.
    pub ids: Vec<u32>,
    /// Why the row ended, where it did in this burst.
    pub end: Option<RowEnd>,
}

/// What a burst of one row drew.
pub(crate) fn only(drawn: Vec<Drawn>) -> Drawn {
    drawn.into_iter().next().unwrap_or_default()
}

/// In a result word: the row had ended before the step.
const NOT_RUN: u32 = 255;

impl Drawn {
    /// Whether every token that was fed led to one that was drawn.
    pub(crate) fn is_whole(&self) -> bool {
        !matches!(self.end, Some(RowEnd::Guard | RowEnd::NoCandidate))
    }

    /// Reads a row's result words: a token id in the low 24 bits, and above it why the row ended with the step, 0 where it goes on.
    pub(crate) fn from_words(words: impl IntoIterator<Item = u32>) -> Self {
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
            let found = Drawn::from_words(words.iter().copied());
            assert_eq!(found, Drawn { ids: ids.into(), end }, "{words:x?}");
        }
    }

    #[test]
    fn a_burst_is_checked_row_by_row() {
        let capacity = Capacity { n_ctx: 128, slots: 3, pages: 2, ..Capacity::from(128) };
        let limits = Limits { n_vocab: 40, capacity, steps: 8 };
        let mut tables = BlockTables::new(capacity);
        tables.set(1, 0, &[1]).unwrap();
        let mask = [u32::MAX; 1];
        let greedy = Sampling::GREEDY;
        let plain = Row::new(0, First::FromState, 0, &greedy);
        let check = |rows: &[Row<'_>], steps| match (Burst { rows, steps }).check(limits, &tables) {
            Ok(()) => "",
            Err(Error::BadOption { option, .. }) => option,
            Err(Error::ContextFull { .. }) => "context",
            Err(Error::BadToken { .. }) => "token",
            Err(_) => "another error",
        };
        let one = Row { slot: 1, ..plain };
        assert_eq!(check(&[plain, one], 8), "");
        assert_eq!(check(&[], 8), "rows");
        assert_eq!(check(&[plain], 9), "burst");
        assert_eq!(check(&[plain, plain], 1), "slot");
        assert_eq!(check(&[Row { slot: 3, ..plain }], 1), "slot");
        assert_eq!(check(&[Row { first: First::FromLogits, ..plain }, one], 1), "rows that draw first");
        assert_eq!(check(&[plain, Row { position: 60, ..one }], 4), "");
        assert_eq!(check(&[plain, Row { position: 60, ..one }], 5), "pages of a sequence");
        assert_eq!(check(&[Row { position: 127, ..plain }], 2), "context");
        assert_eq!(check(&[Row { position: 127, first: First::FromLogits, ..plain }], 2), "");
        assert_eq!(check(&[Row { first: First::Token(40), ..plain }], 1), "token");
        assert_eq!(check(&[Row { mask: Some(&mask), ..plain }], 1), "words of a mask");
        assert_eq!(check(&[Row { mask: Some(&[0, 0]), ..plain }], 1), "");
        assert_eq!(check(&[Row { mask: Some(&[0, 0]), ..plain }], 2), "steps under a mask");
        assert_eq!(check(&[Row { left: 0, ..plain }], 1), "tokens left");
    }
}
