//! Waiting sequences join, and prompts are fed a chunk a step.

use super::Scheduler;
use super::sequence::{Running, Sequence, Task};
use crate::engine::backend::Backend;
use crate::engine::pages::Prefix;
use crate::engine::recurrent::next_stop;
use crate::error::Result;
use crate::plan::PAGE;

impl Scheduler {
    /// Gives free slots to those who wait, first come first served.
    pub(super) fn admit(&mut self) -> Result<()> {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            let Some(next) = self.waiting.iter().position(|sequence| !self.is_held(sequence)) else { break };
            if !self.place(slot, next)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether somebody is computing its beginning already: soon it will be in the cache.
    fn is_held(&self, sequence: &Sequence) -> bool {
        self.slots.iter().flatten().any(|running| running.saves_work_of(sequence, self.is_recurrent))
    }

    /// Moves a waiting sequence into a slot if there are pages for all it has to feed, beside those that the others will soon need.
    fn place(&mut self, slot: usize, next: usize) -> Result<bool> {
        let sequence = &self.waiting[next];
        let found = self.pool.lookup(&sequence.tokens[..sequence.reusable()], self.is_recurrent);
        let Prefix { pages, partial, snapshot } = found;
        let wanted = sequence.tokens.len().div_ceil(PAGE) - pages.len();
        if self.slots.iter().any(Option::is_some) && self.pool.available() < wanted + self.promised() {
            partial.iter().for_each(|(page, _)| self.pool.release(*page));
            self.pool.release_all(&pages);
            return Ok(false);
        }
        let sequence = self.waiting.remove(next).expect("it waits");
        self.admissions += 1;
        self.slots[slot] = Some(Running::new(sequence, self.admissions, pages));
        if let Some((from, n)) = partial {
            let copied = self.copy_into(slot, from, n);
            self.pool.release(from);
            copied?;
        }
        let Scheduler { slots, engine, counters, .. } = self;
        let running = slots[slot].as_mut().expect("it was placed");
        running.found = running.fed;
        counters.found += running.fed as u64;
        running.sequence.start(running.fed);
        engine.backend.begin(slot, &running.sequence.tokens[..running.fed])?;
        engine.backend.set_pages(slot, 0, &running.pages)?;
        if let Some(snapshot) = snapshot {
            engine.backend.load_state(slot, snapshot as usize)?;
        }
        Ok(true)
    }

    /// Pages that running sequences need for what they feed next, and one more each as far as the context goes.
    fn promised(&self) -> usize {
        let most = self.engine.info.n_ctx.div_ceil(PAGE);
        let missing = |r: &Running| {
            let needed = r.sequence.tokens.len().div_ceil(PAGE).saturating_sub(r.pages.len()) + 1;
            needed.min(most.saturating_sub(r.pages.len()))
        };
        self.slots.iter().flatten().map(missing).sum()
    }

    /// Goes on from the first `n` positions of another's page, in a copy.
    fn copy_into(&mut self, slot: usize, from: u32, n: usize) -> Result<()> {
        let Some(page) = self.pool.alloc() else { return Ok(()) };
        let running = self.slots[slot].as_mut().expect("it was placed");
        running.pages.push(page);
        self.engine.backend.copy_page(from, page)?;
        running.fed += n;
        self.counters.copies += 1;
        Ok(())
    }

    /// Feeds a chunk of one prompt; each that has something to feed has its turn.
    pub(super) async fn prefill(&mut self) -> Result<()> {
        let n = self.slots.len();
        let in_turn = (1..=n).map(|step| (self.turn + step) % n);
        let is_prefilling = |slot: &usize| self.slots[*slot].as_ref().is_some_and(Running::is_prefilling);
        let Some(slot) = in_turn.into_iter().find(is_prefilling) else { return Ok(()) };
        self.turn = slot;
        let running = self.slots[slot].as_ref().expect("it is prefilling");
        let from = running.fed;
        let limits = [self.options.chunk, running.sequence.chunk].into_iter().filter(|limit| *limit > 0);
        let chunk = limits.fold(self.engine.backend.max_chunk(), usize::min);
        let stop = self.is_recurrent.then(|| next_stop(from, running.sequence.tokens.len()));
        let to = running.to_feed.min(from + chunk).min(stop.unwrap_or(usize::MAX));
        if !self.reserve(slot, to).await? {
            return Ok(());
        }
        let Scheduler { slots, engine, .. } = self;
        let running = slots[slot].as_ref().expect("it has pages");
        let is_embedding = matches!(running.sequence.task, Task::Embed(_));
        engine.backend.feed(slot, &running.sequence.tokens[from..to], from).await?;
        self.counters.chunks += 1;
        self.counters.prefilled += (to - from) as u64;
        if stop == Some(to) {
            self.save_state(slot, to)?;
        }
        if is_embedding {
            return self.embed_chunk(slot, from..to).await;
        }
        self.note_fed(slot, to);
        Ok(())
    }

    /// Saves the recurrent state after the first `to` tokens, whole pages.
    fn save_state(&mut self, slot: usize, to: usize) -> Result<()> {
        if !to.is_multiple_of(PAGE) {
            return Ok(());
        }
        let Some(snapshot) = self.pool.reserve_snapshot() else { return Ok(()) };
        self.slots[slot].as_mut().expect("it was fed").snapshots.push((to, snapshot));
        self.engine.backend.save_state(slot, snapshot as usize)
    }

    /// Notes that the first `to` tokens were fed.
    pub(super) fn note_fed(&mut self, slot: usize, to: usize) {
        let running = self.slots[slot].as_mut().expect("it was fed");
        running.fed = to;
        if !running.is_prefilling() {
            running.sequence.note_prefilled();
        }
    }
}
