//! The merging loop that both kinds of tokenizer share: of all neighbours that may merge, the pair of highest priority
//! merges first, the leftmost of equals, until none may.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::index::NONE;

/// A stretch of the text, in a list linked by positions in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// The token it is, `NONE` for text that is none.
    pub(super) id: u32,
    /// First byte in the text.
    pub(super) start: u32,
    /// Bytes; 0 once merged into its left neighbour.
    pub(super) len: u32,
    prev: u32,
    next: u32,
}

/// A pair that may merge: priority, left symbol, right symbol, bytes of both, id of the result.
type Candidate = (u32, Reverse<u32>, u32, u32, u32);

/// The list and the queue, kept from word to word so that they are allocated once.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

impl Merger {
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol of `len > 0` bytes.
    pub(super) fn push(&mut self, id: u32, len: usize) {
        let at = self.symbols.len() as u32;
        let start = self.symbols.last().map_or(0, |s| s.start + s.len);
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        self.symbols.push(Symbol { id, start, len: len as u32, prev: at.wrapping_sub(1), next: NONE });
    }

    /// Merges. `pair` gives the priority and the id of what two neighbours merge into.
    pub(super) fn run(&mut self, pair: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        for right in 1..self.symbols.len() as u32 {
            self.consider(right - 1, right, &pair);
        }
        while let Some((_, Reverse(left), right, len, id)) = self.queue.pop() {
            let (l, r) = (self.symbols[left as usize], self.symbols[right as usize]);
            // A pair is stale once either side has merged with something else: lengths only grow, or become 0.
            if l.len == 0 || r.len == 0 || l.len + r.len != len {
                continue;
            }
            self.symbols[right as usize].len = 0;
            self.symbols[left as usize] = Symbol { id, len, next: r.next, ..l };
            if let Some(after) = self.symbols.get_mut(r.next as usize) {
                after.prev = left;
            }
            self.consider(l.prev, left, &pair);
            self.consider(left, r.next, &pair);
        }
    }

    /// The symbols left, in order.
    pub(super) fn merged(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|s| s.len > 0)
    }

    fn consider(&mut self, left: u32, right: u32, pair: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let (Some(l), Some(r)) = (self.symbols.get(left as usize), self.symbols.get(right as usize)) else { return };
        if let Some((priority, id)) = pair(l, r) {
            self.queue.push((priority, Reverse(left), right, l.len + r.len, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Left, right, result.
    type Pair = (u32, u32, u32);

    /// Merges one-byte symbols; the first pair is of highest priority.
    fn merge(ids: &[u32], pairs: &[Pair]) -> Vec<u32> {
        let mut merger = Merger::default();
        ids.iter().for_each(|id| merger.push(*id, 1));
        merger.run(|l, r| {
            let rank = pairs.iter().position(|p| (p.0, p.1) == (l.id, r.id))?;
            Some((u32::MAX - rank as u32, pairs[rank].2))
        });
        merger.merged().map(|s| s.id).collect()
    }

    #[test]
    fn highest_priority_first_then_leftmost() {
        let cases: [(&[u32], &[Pair], &[u32]); 6] = [
            (&[], &[], &[]),
            (&[1], &[(1, 1, 2)], &[1]),
            (&[1, 1, 1], &[(1, 1, 2)], &[2, 1]),
            (&[1, 1, 1, 1], &[(1, 1, 2), (2, 2, 3)], &[3]),
            (&[1, 2, 3], &[(2, 3, 5), (1, 2, 4)], &[1, 5]),
            (&[1, 2, 3], &[(1, 2, 4), (2, 3, 5), (4, 3, 6)], &[6]),
        ];
        for (ids, pairs, expected) in cases {
            assert_eq!(merge(ids, pairs), expected, "{ids:?} with {pairs:?}");
        }
    }
}
