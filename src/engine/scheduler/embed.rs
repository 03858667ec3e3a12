//! Embeddings and scores of several texts at once, beside the answers that are under way.

use std::collections::BTreeMap;

use super::Scheduler;
use super::request::{EmbeddingRequest, Event, EventKind, Request, RequestId};
use super::score::{normalise, yes_probability};
use super::sequence::{Embedding, Task};
use crate::engine::backend::{Backend, Trip};
use crate::engine::options::GenerateOptions;
use crate::engine::step::Pooling;
use crate::error::{Error, Result};

impl Scheduler {
    /// Embeddings of texts given as tokens, in their order. What happens to other requests meanwhile is told by the next [`Scheduler::step`].
    ///
    /// # Errors
    /// Those of [`Scheduler::submit_embedding`], of a text's own failure ([`Error::NotFinite`]) and of [`Scheduler::step`]. The other texts
    /// are then given up, and so are all where the future is dropped.
    pub async fn embed(&mut self, texts: &[Vec<u32>], pooling: Pooling, normalise: bool) -> Result<Vec<Vec<f32>>> {
        let submit = |scheduler: &mut Self, at: usize| {
            scheduler.submit_embedding(EmbeddingRequest { tokens: texts[at].clone(), pooling, normalise })
        };
        self.collect(texts.len(), submit, |kind| match kind {
            EventKind::Embedded(values) => Some(values),
            _ => None,
        })
        .await
    }

    /// For each prompt, which asks a question (see [`super::rerank_prompt`]), the probability that its answer begins with the token `yes` where
    /// it begins with either `yes` or `no`: [`yes_probability`] of the logits after the prompt. Prompts with a common beginning share it.
    ///
    /// # Errors
    /// Those of [`Scheduler::submit`], of a prompt's own failure and of [`Scheduler::step`]. The other prompts are then given up, and so are all
    /// where the future is dropped.
    pub async fn rerank(&mut self, prompts: &[Vec<u32>], yes: u32, no: u32) -> Result<Vec<f32>> {
        let options = GenerateOptions { max_tokens: 1, ignore_eos: true, ..Default::default() };
        let submit = |scheduler: &mut Self, at: usize| {
            scheduler.submit(Request { keep_logits: true, ..Request::new(&prompts[at], options.clone()) })
        };
        self.collect(prompts.len(), submit, |kind| match kind {
            EventKind::Finished(completion) => completion.logits.map(|logits| yes_probability(&logits, yes, no)),
            _ => None,
        })
        .await
    }

    /// Submits `n` requests as the queue has room for them and takes steps until each has given a value.
    async fn collect<T>(
        &mut self,
        n: usize,
        submit: impl Fn(&mut Self, usize) -> Result<RequestId>,
        value: impl Fn(EventKind) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut group = Group::new(self);
        let mut values: Vec<Option<T>> = (0..n).map(|_| None).collect();
        loop {
            group.fill(n, &submit)?;
            // Where others fill the queue there may be none yet.
            if group.submitted == n && group.open.is_empty() {
                return Ok(values.into_iter().flatten().collect());
            }
            for (at, kind) in group.step().await? {
                match kind {
                    EventKind::Failed(error) => return Err(error),
                    kind => {
                        if let Some(value) = value(kind) {
                            values[at] = Some(value);
                        }
                    }
                }
            }
        }
    }

    /// Reads the hidden states that the embedding needs of the chunk that was fed. All waiting comes first, as in `take`.
    pub(super) async fn embed_chunk(&mut self, slot: usize, fed: std::ops::Range<usize>) -> Result<()> {
        let running = self.slots[slot].as_ref().expect("it was fed");
        let is_end = fed.end == running.to_feed;
        let Task::Embed(Embedding { pooling, .. }) = running.sequence.task else { return Ok(()) };
        let mut states = Vec::new();
        for row in pooling.rows(fed.len(), is_end) {
            states.push(self.engine.backend.embedding(row).await?);
        }
        let trip = if is_end { self.engine.backend.take_trip(slot).await? } else { None };
        let running = self.slots[slot].as_mut().expect("it was fed");
        if let Task::Embed(Embedding { states: pooled, .. }) = &mut running.sequence.task {
            states.iter().for_each(|state| pooling.add(pooled, state));
        }
        self.note_fed(slot, fed.end);
        if is_end { self.finish_embedding(slot, trip) } else { Ok(()) }
    }

    fn finish_embedding(&mut self, slot: usize, trip: Option<Trip>) -> Result<()> {
        let running = self.slots[slot].as_mut().expect("it was fed");
        let n = running.sequence.tokens.len();
        let kind = match (trip, &mut running.sequence.task) {
            (Some(trip), _) => EventKind::Failed(trip.into()),
            (None, Task::Embed(embedding)) => {
                let pooled = std::mem::take(&mut embedding.states);
                let mut values = embedding.pooling.finish(pooled, n);
                let width = if embedding.pooling == Pooling::None { values.len() / n } else { values.len() };
                if embedding.normalise {
                    normalise(&mut values, width);
                }
                EventKind::Embedded(values)
            }
            (None, Task::Answer(_)) => return Ok(()),
        };
        if matches!(kind, EventKind::Embedded(_)) {
            let running = self.slots[slot].as_mut().expect("it was fed");
            running.passed = running.sequence.tokens.len() - 1;
            self.share(slot)?;
        }
        self.tell(slot, kind);
        self.leave(slot);
        Ok(())
    }
}

/// Requests that one caller waits for. Those that have not ended when it is dropped are cancelled: it failed, or its future was given up.
pub(super) struct Group<'a> {
    pub(super) scheduler: &'a mut Scheduler,
    /// Requests submitted so far.
    submitted: usize,
    /// Those that have not ended, and which of all they are.
    open: BTreeMap<RequestId, usize>,
}

impl<'a> Group<'a> {
    pub(super) fn new(scheduler: &'a mut Scheduler) -> Self {
        Group { scheduler, submitted: 0, open: BTreeMap::new() }
    }

    /// Submits the next of `n` requests while there is room for them.
    pub(super) fn fill(&mut self, n: usize, submit: impl Fn(&mut Scheduler, usize) -> Result<RequestId>) -> Result<()> {
        while self.submitted < n {
            match submit(self.scheduler, self.submitted) {
                Ok(id) => _ = self.open.insert(id, self.submitted),
                // There is room once a sequence that waits has a slot.
                Err(Error::QueueFull { waiting: 1.., .. }) => break,
                Err(error) => return Err(error),
            }
            self.submitted += 1;
        }
        Ok(())
    }

    /// Goes a step on; what happened to the group's own requests. What happened to others is told by the next [`Scheduler::step`].
    pub(super) async fn step(&mut self) -> Result<Vec<(usize, EventKind)>> {
        self.scheduler.advance().await?;
        let events = std::mem::take(&mut self.scheduler.events);
        let (own, others) = events.into_iter().partition::<Vec<_>, _>(|event| self.open.contains_key(&event.request));
        self.scheduler.events = others;
        let mut told = Vec::new();
        for Event { request, kind, .. } in own {
            let at = self.open[&request];
            if !matches!(kind, EventKind::Piece(_)) {
                self.open.remove(&request);
            }
            told.push((at, kind));
        }
        Ok(told)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        for id in self.open.keys() {
            self.scheduler.cancel(*id);
        }
    }
}
