//! Going back where layers are recurrent. A recurrent state cannot be shortened: it is loaded from a snapshot of an earlier position, and the
//! tokens from there on are fed again, when the sequence goes on from where the state is not.
//!
//! Snapshots are taken while a prompt is fed, where a page ends: at every [`SPACING`]th position, and at the last one before the prompt's last
//! token, so that the next question about a conversation, or the same prompt again, finds one close by. Where the backend has no room
//! left, the one closest behind another is given up.

use super::backend::Backend;
use super::{Engine, SLOT};
use crate::error::Result;
use crate::plan::PAGE;

/// Positions between snapshots.
const SPACING: usize = 16 * PAGE;

/// What is known of the recurrent state and its snapshots.
#[derive(Debug)]
pub(super) struct Recurrent {
    /// Tokens the state has seen, the first of the sequence; `None` where it has seen others.
    at: Option<usize>,
    /// By snapshot: tokens that it has seen.
    snapshots: Vec<Option<usize>>,
}

impl Recurrent {
    /// The state of an empty sequence, and room for `n` snapshots.
    pub(super) fn new(n: usize) -> Self {
        Recurrent { at: Some(0), snapshots: vec![None; n] }
    }

    /// Forgets the snapshots that have seen more than the first `position` tokens.
    fn forget_after(&mut self, position: usize) {
        for snapshot in &mut self.snapshots {
            *snapshot = snapshot.filter(|at| *at <= position);
        }
    }

    /// The snapshot that has seen most: its index and the tokens it has seen.
    fn latest(&self) -> Option<(usize, usize)> {
        let taken = self.snapshots.iter().enumerate().filter_map(|(i, at)| at.map(|at| (i, at)));
        taken.max_by_key(|(_, at)| *at)
    }

    /// The index of a new snapshot at `position`, which is behind all others; `None` where there is one, or room for none.
    fn place(&mut self, position: usize) -> Option<usize> {
        if self.latest().is_some_and(|(_, at)| at == position) {
            return None;
        }
        let free = self.snapshots.iter().position(Option::is_none);
        let index = free.or_else(|| self.closest(position))?;
        self.snapshots[index] = Some(position);
        Some(index)
    }

    /// The index of the snapshot that is followed soonest by another, or by one at `position`.
    fn closest(&self, position: usize) -> Option<usize> {
        let mut taken: Vec<_> = self.snapshots.iter().enumerate().filter_map(|(i, at)| at.map(|at| (at, i))).collect();
        taken.sort_unstable();
        let next = taken.iter().skip(1).map(|(at, _)| *at).chain([position]);
        taken.iter().zip(next).min_by_key(|((at, _), next)| next - at).map(|((_, i), _)| *i)
    }
}

/// Where a snapshot is wanted next on the way from `position` to the end of a prompt of `end` tokens; `end` where nowhere.
pub(super) fn next_stop(position: usize, end: usize) -> usize {
    let spaced = (position / SPACING + 1) * SPACING;
    let last = (end - 1) / PAGE * PAGE;
    let stop = if last > position { spaced.min(last) } else { spaced };
    stop.min(end)
}

impl Engine {
    /// How many of the next `n` tokens of a prompt of `end` tokens to feed at once: up to where a snapshot is wanted.
    pub(super) fn up_to_stop(&self, n: usize, end: usize) -> usize {
        match self.recurrent {
            None => n,
            Some(_) => n.min(next_stop(self.cached.len(), end) - self.cached.len()),
        }
    }

    /// Feeds tokens that follow those in the cache; the caller then counts them among these.
    pub(super) async fn feed_next(&mut self, tokens: &[u32]) -> Result<()> {
        self.settle().await?;
        let position = self.cached.len();
        self.leave(None);
        self.backend.feed(SLOT, tokens, position).await?;
        self.leave(Some(position + tokens.len()));
        Ok(())
    }

    /// Takes a snapshot where one is wanted in a prompt of `end` tokens; the cached ones were just fed.
    pub(super) fn keep_snapshot(&mut self, end: usize) -> Result<()> {
        let position = self.cached.len();
        let Some(recurrent) = &mut self.recurrent else { return Ok(()) };
        if position > 0
            && position < end
            && next_stop(position - 1, end) == position
            && let Some(index) = recurrent.place(position)
        {
            self.backend.save_state(SLOT, index)?;
        }
        Ok(())
    }

    /// Notes what the recurrent state has seen: the first tokens of the sequence, or others.
    pub(super) fn leave(&mut self, at: Option<usize>) {
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.at = at;
        }
    }

    /// Brings the recurrent state to the end of the cached tokens. Whatever is fed next follows them.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let end = self.cached.len();
        let Some(recurrent) = &mut self.recurrent else { return Ok(()) };
        recurrent.forget_after(end);
        if recurrent.at == Some(end) {
            return Ok(());
        }
        recurrent.at = None;
        let mut position = 0;
        if let Some((snapshot, at)) = recurrent.latest() {
            self.backend.load_state(SLOT, snapshot)?;
            position = at;
        }
        let tokens = self.cached[position..].to_vec();
        for part in tokens.chunks(self.chunk_len(0)) {
            self.backend.feed(SLOT, part, position).await?;
            position += part.len();
        }
        self.leave(Some(end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_wanted_at_spaced_positions_and_before_the_last_token() {
        let stops = |end: usize| {
            let mut stops = vec![0];
            while stops[stops.len() - 1] < end {
                stops.push(next_stop(stops[stops.len() - 1], end));
            }
            stops
        };
        assert_eq!(stops(40), [0, 40]);
        assert_eq!(stops(64), [0, 64]);
        assert_eq!(stops(65), [0, 64, 65]);
        assert_eq!(stops(2500), [0, 1024, 2048, 2496, 2500]);
        assert_eq!(stops(1024), [0, 960, 1024]);
    }

    #[test]
    fn the_snapshot_closest_behind_another_makes_room() {
        let mut recurrent = Recurrent::new(3);
        for (position, index) in [(64, Some(0)), (1024, Some(1)), (1024, None), (2048, Some(2)), (2112, Some(2))] {
            assert_eq!(recurrent.place(position), index, "{position}");
        }
        assert_eq!(recurrent.snapshots, [Some(64), Some(1024), Some(2112)]);
        assert_eq!(recurrent.latest(), Some((2, 2112)));
        recurrent.forget_after(2000);
        assert_eq!(recurrent.latest(), Some((1, 1024)));
        assert_eq!(Recurrent::new(0).place(64), None);
    }
}
