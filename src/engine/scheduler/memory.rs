//! Pages of running sequences: given before they are needed, shared as soon as they are known to be good, taken back.

use super::Scheduler;
use super::request::{Event, EventKind};
use super::sequence::Task;
use crate::engine::backend::Backend;
use crate::error::{Error, Result};
use crate::plan::PAGE;

impl Scheduler {
    /// Gives a sequence pages for its first `positions` positions, free or cached ones. Says whether there were enough.
    pub(super) fn grow(&mut self, slot: usize, positions: usize) -> Result<bool> {
        let Scheduler { slots, pool, engine, .. } = self;
        let pages = &mut slots[slot].as_mut().expect("it is running").pages;
        let (before, wanted) = (pages.len(), positions.div_ceil(PAGE));
        pages.extend(std::iter::from_fn(|| pool.alloc()).take(wanted.saturating_sub(before)));
        if pages.len() > before {
            engine.backend.set_pages(slot, before, &pages[before..])?;
        }
        Ok(pages.len() >= wanted)
    }

    /// The same, where younger sequences have to give theirs up if it must be. Says whether the sequence is still running: it may have ended meanwhile, or
    /// be the youngest itself.
    pub(super) async fn reserve(&mut self, slot: usize, positions: usize) -> Result<bool> {
        loop {
            if self.slots[slot].is_none() {
                return Ok(false);
            }
            if self.grow(slot, positions)? {
                return Ok(true);
            }
            // Somebody may have ended.
            if self.read_oldest().await? {
                continue;
            }
            match self.youngest() {
                Some(youngest) if self.slots.iter().flatten().count() > 1 => {
                    self.preempt(youngest);
                    self.counters.preemptions += 1;
                }
                _ => return Err(Error::Device { reason: "the cache has no page for its only sequence".into() }),
            }
        }
    }

    /// The slot of the sequence that came last.
    pub(super) fn youngest(&self) -> Option<usize> {
        let age = |slot: &usize| self.slots[*slot].as_ref().map(|running| running.sequence.age);
        (0..self.slots.len()).filter(|slot| age(slot).is_some()).max_by_key(age)
    }

    /// Sends a sequence back to its place in the queue, which is before all that came later, without its pages.
    pub(super) fn preempt(&mut self, slot: usize) {
        self.share_rest(slot);
        if let Some(mut sequence) = self.leave(slot) {
            sequence.preemptions += 1;
            if let Task::Embed(embedding) = &mut sequence.task {
                embedding.states.clear();
            }
            let at = self.waiting.partition_point(|other| other.age < sequence.age);
            self.waiting.insert(at, sequence);
        }
    }

    /// Frees a slot and its pages. What is in flight for it will be dropped.
    pub(super) fn leave(&mut self, slot: usize) -> Option<super::Sequence> {
        let running = self.slots[slot].take()?;
        self.pool.release_all(&running.pages);
        running.snapshots.iter().for_each(|(_, snapshot)| self.pool.release_snapshot(*snapshot));
        Some(running.sequence)
    }

    /// Makes a sequence's pages findable as far as its tokens were drawn, which says that the guard let their values pass. A token was fed when
    /// the one after it has been drawn.
    pub(super) fn share(&mut self, slot: usize) -> Result<()> {
        let running = self.slots[slot].as_ref().expect("it is running");
        let known = running.passed;
        self.share_pages(slot, known)?;
        let running = self.slots[slot].as_mut().expect("it is running");
        if !std::mem::replace(&mut running.is_shared, true) {
            self.share_partial(slot, known);
        }
        Ok(())
    }

    /// Makes the full pages of the first `known` tokens findable.
    pub(super) fn share_pages(&mut self, slot: usize, known: usize) -> Result<()> {
        let Scheduler { slots, pool, engine, .. } = self;
        let running = slots[slot].as_mut().expect("it is running");
        for at in running.in_tree..known / PAGE {
            let parent = at.checked_sub(1).map(|before| running.pages[before]);
            let own = running.pages[at];
            let page = pool.register(parent, &running.sequence.tokens[at * PAGE..][..PAGE], own);
            running.pages[at] = page;
            running.in_tree = at + 1;
            if page != own {
                engine.backend.set_pages(slot, at, &[page])?;
            }
        }
        let in_tree = running.in_tree;
        for (n, snapshot) in running.snapshots.extract_if(.., |(n, _)| *n <= in_tree * PAGE) {
            pool.attach_snapshot(running.pages[n / PAGE - 1], snapshot);
        }
        Ok(())
    }

    /// Makes the last page of the first `known` tokens findable, which has room. Where layers are recurrent nobody could go on from within a page.
    fn share_partial(&mut self, slot: usize, known: usize) {
        let Some(running) = self.slots[slot].as_ref().filter(|_| !self.is_recurrent) else { return };
        let at = running.in_tree;
        if let Some(page) = running.pages.get(at).filter(|_| known / PAGE == at) {
            let parent = at.checked_sub(1).map(|before| running.pages[before]);
            self.pool.register_partial(parent, &running.sequence.tokens[at * PAGE..known], *page);
        }
    }

    /// The same for a sequence that leaves, where its values are known to be good.
    pub(super) fn share_rest(&mut self, slot: usize) {
        let Some(running) = self.slots[slot].as_ref().filter(|running| running.is_shared) else { return };
        let known = running.passed;
        self.share_partial(slot, known);
    }

    pub(super) fn tell(&mut self, slot: usize, kind: EventKind) {
        if let Some(running) = &self.slots[slot] {
            let (request, completion) = (running.sequence.request, running.sequence.completion);
            self.events.push(Event { request, completion, kind });
        }
    }
}
