//! Bursts of all sequences that are past their prompts, and what they drew.

use super::request::{Completion, EventKind};
use super::sequence::{Running, Task};
use super::{Flying, Scheduler};
use crate::engine::backend::{Backend, Burst, Drawn, Row, RowEnd, Trip};
use crate::engine::constrained::follow;
use crate::engine::options::{Piece, StopReason};
use crate::error::{Error, Result};
use crate::sample::{Logprobs, top_logprobs};

/// Bursts in flight on a GPU: it works on one while the host reads the other.
const DEPTH: usize = 2;

/// Rows of the slots in `drawing`; `change` sees each as it goes on by itself.
pub(super) fn rows<'a>(
    slots: &'a [Option<Running>],
    drawing: &[usize],
    change: impl Fn(&Running, Row<'a>) -> Row<'a>,
) -> Vec<Row<'a>> {
    let row = |slot: &usize| {
        let running = slots[*slot].as_ref()?;
        let answering = running.decoding()?;
        let row = Row {
            slot: *slot,
            first: running.first(),
            position: running.position(),
            sampling: &answering.sampling,
            stop_ids: &answering.stop_ids,
            left: running.left(),
            mask: None,
        };
        Some(change(running, row))
    };
    drawing.iter().filter_map(row).collect()
}

impl Scheduler {
    /// Submits a burst of every sequence that can draw, and reads what is due.
    pub(super) async fn decode(&mut self) -> Result<()> {
        let submitted = self.submit_burst().await?;
        let running = || self.slots.iter().flatten();
        let depth = match self.engine.backend.is_gpu() && !running().any(Running::needs_host) {
            true => DEPTH.min(self.engine.policy.ring.slots),
            false => 1,
        };
        if !submitted {
            self.read_oldest().await?;
        }
        while self.in_flight.len() >= depth {
            self.read_oldest().await?;
        }
        Ok(())
    }

    /// The slots that can draw, the oldest sequence first.
    fn drawing(&self) -> Vec<usize> {
        let n_ctx = self.engine.info.n_ctx;
        let can_draw = |running: &Running| running.left() > 0 && running.position() < n_ctx;
        let mut slots: Vec<_> =
            (0..self.slots.len()).filter(|slot| self.slots[*slot].as_ref().is_some_and(can_draw)).collect();
        slots.sort_by_key(|slot| self.slots[*slot].as_ref().map(|running| running.sequence.age));
        slots
    }

    /// Steps of the next burst: one where somebody waits for the next chunk of its prompt or for its first token, or has to be read after each.
    fn steps(&self, drawing: &[usize]) -> usize {
        let rows = || drawing.iter().filter_map(|slot| self.slots[*slot].as_ref());
        let hurries = self.slots.iter().flatten().any(Running::is_prefilling)
            || rows().any(|running| running.needs_host() || running.is_new());
        let longest = rows().map(Running::left).max().unwrap_or(0);
        let room = rows().map(|running| self.engine.info.n_ctx - running.position()).min().unwrap_or(0);
        if hurries { 1 } else { self.burst.min(longest).min(room) }
    }

    async fn submit_burst(&mut self) -> Result<bool> {
        let drawing = self.drawing();
        let mut steps = self.steps(&drawing);
        for slot in &drawing {
            let position = self.slots[*slot].as_ref().expect("it draws").position();
            if !self.grow(*slot, position + steps)? {
                steps = 1;
            }
        }
        // The oldest take what they need from the youngest.
        for slot in drawing {
            if let Some(running) = &self.slots[slot] {
                let positions = running.position() + steps;
                self.reserve(slot, positions).await?;
            }
        }
        let mut drawing = self.drawing();
        if drawing.is_empty() {
            return Ok(false);
        }
        let is_constrained = |slot: &usize| self.slots[*slot].as_ref().is_some_and(Running::is_constrained);
        let burst = if drawing.iter().any(is_constrained) {
            match self.submit_masked(&mut drawing).await? {
                Some(burst) => burst,
                None => return Ok(false),
            }
        } else {
            let Scheduler { slots, engine, .. } = self;
            let rows = rows(slots, &drawing, |_, row| row);
            engine.backend.submit_burst(Burst { rows: &rows, steps }).await?
        };
        let slots = &mut self.slots;
        let rows = drawing.iter().map(|slot| {
            let running = slots[*slot].as_mut().expect("it draws");
            running.submitted(steps);
            (*slot, running.admission)
        });
        self.in_flight.push_back(Flying { burst, steps, rows: rows.collect() });
        self.counters.bursts += 1;
        self.counters.most_rows = self.counters.most_rows.max(drawing.len());
        Ok(true)
    }

    /// Waits for the oldest burst in flight. Says whether there was one.
    pub(super) async fn read_oldest(&mut self) -> Result<bool> {
        let Some(Flying { burst, steps, rows }) = self.in_flight.pop_front() else { return Ok(false) };
        let drawn = burst.drawn().await?;
        for ((slot, admission), drawn) in rows.into_iter().zip(drawn) {
            // Where it has left, what it drew after its end is of no use.
            if self.slots[slot].as_ref().is_some_and(|running| running.admission == admission) {
                self.take(slot, drawn, steps).await?;
            }
        }
        Ok(true)
    }

    /// Takes what a row drew. All waiting comes first: a call that is given up has then either taken it or not.
    async fn take(&mut self, slot: usize, drawn: Drawn, steps: usize) -> Result<()> {
        let trip = match drawn.end {
            Some(RowEnd::Guard) => self.engine.backend.take_trip(slot).await?,
            _ => None,
        };
        let running = self.slots[slot].as_ref().expect("it has drawn");
        let Some(answering) = running.decoding() else { return Ok(()) };
        let ends_on_host = answering.has_stop_strings || answering.constraint.is_some();
        let keeps = answering.keep_logits && (ends_on_host || drawn.end.is_some());
        let mut logits = None;
        if !drawn.ids.is_empty() && (keeps || answering.logprobs.is_some()) {
            logits = Some(self.engine.backend.read_logits(slot).await?);
        }
        self.accept(slot, &drawn, steps, trip, logits)
    }

    fn accept(
        &mut self,
        slot: usize,
        drawn: &Drawn,
        steps: usize,
        trip: Option<Trip>,
        logits: Option<Vec<f32>>,
    ) -> Result<()> {
        let n_vocab = self.engine.info.n_vocab;
        let running = self.slots[slot].as_mut().expect("it has drawn");
        running.ahead -= steps;
        let Task::Answer(answering) = &mut running.sequence.task else { return Ok(()) };
        let logprobs = |n: usize| -> Vec<Logprobs> {
            drawn.ids.iter().zip(&logits).map(|(id, logits)| top_logprobs(logits, *id, n)).collect()
        };
        let mut piece = Piece { logprobs: answering.logprobs.map(logprobs).unwrap_or_default(), ..Piece::default() };
        let (mut stopped, mut invalid) = (None, None);
        let is_first = answering.answer.drawn() == 0;
        // Each token that is told has its log-probability, so with them every token is drawn.
        let most = if answering.logprobs.is_some() { 1 } else { answering.answer.room() };
        let (mut ids, mut broken, mut is_complete) = (drawn.ids.clone(), None, false);
        if let (Some(constraint), [id]) = (&mut answering.constraint, &drawn.ids[..]) {
            match follow(constraint, *id, most) {
                Ok(followed) => (ids, is_complete) = (followed, constraint.is_finished()),
                Err(error) => (ids, broken) = (Vec::new(), Some(error)),
            }
        }
        let cached = running.sequence.tokens.len() + drawn.ids.len().max(1) - 1;
        for &id in &ids {
            if id as usize >= n_vocab || answering.sampling.biases.contains(&(id, f32::NEG_INFINITY)) {
                invalid = Some(id);
                break;
            }
            running.sequence.tokens.push(id);
            piece.ids.push(id);
            stopped = answering.answer.push(&self.engine.tokenizer, id, &mut piece.text);
            if stopped.is_some() {
                break;
            }
        }
        if is_complete && stopped.is_none() && invalid.is_none() {
            answering.answer.flush(&mut piece.text);
            stopped = Some(StopReason::GrammarEnd);
        }
        let (position, keeps) = (answering.answer.position(), answering.keep_logits);
        if running.sequence.tokens.len() > cached + 1 {
            running.feed_again(cached);
        }
        self.counters.drawn += piece.ids.len() as u64;
        if !piece.ids.is_empty() {
            // What was drawn was fed, all but the last; what was forced was not.
            running.passed = (running.sequence.tokens.len() - 1).min(cached);
            if is_first {
                running.sequence.note_first_token();
            }
            self.share(slot)?;
            self.tell(slot, EventKind::Piece(piece));
        }
        let failed = match (stopped, invalid, drawn.end) {
            _ if broken.is_some() => broken.expect("it is there"),
            (Some(reason), ..) => {
                self.finish(slot, reason, logits.filter(|_| keeps));
                return Ok(());
            }
            (None, None, None) if drawn.ids.len() == steps => return Ok(()),
            (None, Some(id), _) => device(format!("it drew the id {id} at position {position}, which cannot be")),
            (None, None, Some(RowEnd::NoCandidate)) => Error::NoCandidate { position, n_vocab },
            (None, None, Some(RowEnd::Guard)) => match trip {
                Some(trip) => trip.into(),
                None => device("the guard tripped and does not say where".into()),
            },
            (None, None, end) => device(format!("{} of {steps} steps ran, the row's end is {end:?}", drawn.ids.len())),
        };
        self.tell(slot, EventKind::Failed(failed));
        self.leave(slot);
        Ok(())
    }

    fn finish(&mut self, slot: usize, stop_reason: StopReason, logits: Option<Vec<f32>>) {
        let sequence = &self.slots[slot].as_ref().expect("it has ended").sequence;
        let drawn = sequence.tokens.len() - sequence.timings.prompt_tokens;
        let timings = sequence.final_timings(drawn);
        let completion = Completion { stop_reason, timings, preemptions: sequence.preemptions, logits };
        self.tell(slot, EventKind::Finished(completion));
        self.share_rest(slot);
        self.leave(slot);
    }
}

fn device(reason: String) -> Error {
    Error::Device { reason }
}
