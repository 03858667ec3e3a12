//! Random operations on a pool beside a naive model, which knows what was written to every page.

use std::collections::BTreeMap;

use super::{PagePool, Prefix};
use crate::micro::rng::Rng;
use crate::plan::PAGE;

/// A sequence: its tokens, all of which were written to its pages.
#[derive(Debug, Clone, Default)]
struct Sequence {
    tokens: Vec<u32>,
    pages: Vec<u32>,
    registered: usize,
}

/// A pool, the sequences that use it, and for each page every token from the first position to its own last one.
struct World {
    pool: PagePool,
    rng: Rng,
    live: Vec<Sequence>,
    written: BTreeMap<u32, Vec<u32>>,
    /// States saved, by snapshot.
    saved: BTreeMap<u32, Vec<u32>>,
    n_pages: usize,
    hits: usize,
    copies: usize,
}

impl World {
    fn new(n_pages: usize, seed: u64) -> Self {
        let pool = PagePool::new(n_pages, 3);
        let (live, written, saved) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        World { pool, rng: Rng::new(seed, "pages"), live, written, saved, n_pages, hits: 0, copies: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.rng.u64() % n as u64) as usize
    }

    /// Tokens with many common beginnings.
    fn some_tokens(&mut self) -> Vec<u32> {
        let mut tokens = Vec::new();
        for _ in 0..=self.below(4) {
            let token = self.below(2) as u32;
            let n = if self.below(3) == 0 { 1 + self.below(PAGE) } else { PAGE };
            tokens.resize(tokens.len() + n, token);
        }
        tokens
    }

    /// Writes a sequence's tokens from `from` on, allocating pages; false where there are none left.
    fn write(&mut self, sequence: &mut Sequence, from: usize) -> bool {
        while sequence.pages.len() < sequence.tokens.len().div_ceil(PAGE) {
            match self.pool.alloc() {
                Some(page) => sequence.pages.push(page),
                None => return false,
            }
        }
        for position in from..sequence.tokens.len() {
            let page = sequence.pages[position / PAGE];
            self.written.insert(page, sequence.tokens[..=position].to_vec());
        }
        true
    }

    fn register(&mut self, sequence: &mut Sequence, with_partial: bool) {
        for at in sequence.registered..sequence.tokens.len() / PAGE {
            let parent = at.checked_sub(1).map(|at| sequence.pages[at]);
            let part = &sequence.tokens[at * PAGE..][..PAGE];
            sequence.pages[at] = self.pool.register(parent, part, sequence.pages[at]);
            sequence.registered = at + 1;
        }
        let rest = &sequence.tokens[sequence.registered * PAGE..];
        if with_partial && !rest.is_empty() {
            let parent = sequence.registered.checked_sub(1).map(|at| sequence.pages[at]);
            self.pool.register_partial(parent, rest, sequence.pages[sequence.registered]);
        }
    }

    /// Every page that is found holds the tokens it is found for, and all before them.
    fn check_prefix(&self, tokens: &[u32], prefix: &Prefix) {
        for (at, page) in prefix.pages.iter().enumerate() {
            assert_eq!(self.written[page], tokens[..(at + 1) * PAGE], "page {page}");
        }
        if let Some((page, n)) = prefix.partial {
            let end = prefix.pages.len() * PAGE + n;
            assert!(n < PAGE && self.written[&page].starts_with(&tokens[..end]), "{n} positions of page {page}");
        }
        if let Some(snapshot) = prefix.snapshot {
            assert_eq!(self.saved[&snapshot], tokens[..prefix.pages.len() * PAGE]);
        }
    }

    fn start(&mut self, tokens: Vec<u32>) {
        let needs_snapshot = self.below(4) == 0;
        let Prefix { pages, partial, .. } = {
            let prefix = self.pool.lookup(&tokens, needs_snapshot);
            self.check_prefix(&tokens, &prefix);
            assert!(!needs_snapshot || prefix.snapshot.is_some() || prefix.pages.is_empty());
            prefix
        };
        self.hits += pages.len();
        let mut from = pages.len() * PAGE;
        let mut sequence = Sequence { tokens, registered: pages.len(), pages };
        if let Some((page, n)) = partial {
            if let Some(copy) = self.pool.alloc() {
                assert_ne!(copy, page);
                self.written.insert(copy, sequence.tokens[..from + n].to_vec());
                sequence.pages.push(copy);
                from += n;
                self.copies += 1;
            }
            self.pool.release(page);
        }
        match self.write(&mut sequence, from) {
            true => {
                self.register(&mut sequence, true);
                self.live.push(sequence);
            }
            false => self.pool.release_all(&sequence.pages),
        }
    }

    fn grow(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.below(self.live.len());
        let mut sequence = self.live.swap_remove(at);
        let from = sequence.tokens.len();
        let more = self.some_tokens();
        sequence.tokens.extend(more);
        let fits = self.write(&mut sequence, from);
        if fits {
            let with_partial = self.below(2) == 0;
            self.register(&mut sequence, with_partial);
            self.live.push(sequence);
        } else {
            self.pool.release_all(&sequence.pages);
        }
    }

    fn end(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.below(self.live.len());
        let mut sequence = self.live.swap_remove(at);
        if self.below(2) == 0 {
            self.register(&mut sequence, true);
        }
        self.pool.release_all(&sequence.pages);
    }

    fn snapshot(&mut self) {
        let Some(sequence) = self.live.iter().find(|sequence| sequence.registered > 0) else { return };
        let n = sequence.registered;
        let snapshot = self.pool.reserve_snapshot().expect("none stays reserved");
        self.saved.insert(snapshot, sequence.tokens[..n * PAGE].to_vec());
        match self.rng.u64().is_multiple_of(8) {
            true => self.pool.release_snapshot(snapshot),
            false => self.pool.attach_snapshot(sequence.pages[n - 1], snapshot),
        }
    }

    fn step(&mut self) {
        match self.below(8) {
            0..=2 => {
                let tokens = self.some_tokens();
                self.start(tokens);
            }
            3 | 4 => self.grow(),
            5 => self.snapshot(),
            _ => self.end(),
        }
        self.check();
    }

    /// Every page is free, used by as many as the model says, or cached, and the counters agree.
    fn check(&self) {
        let pool = &self.pool;
        let mut users = vec![0; self.n_pages];
        self.live.iter().flat_map(|s| &s.pages).for_each(|page| users[*page as usize] += 1);
        let (mut in_use, mut cached, mut free) = (0, 0, 0);
        for (page, wanted) in users.iter().enumerate() {
            let found = &pool.pages[page];
            assert_eq!(found.users, *wanted, "users of page {page}");
            let is_free = pool.free.iter().filter(|free| **free as usize == page).count();
            match (found.users, &found.node) {
                (0, None) => free += 1,
                (0, Some(_)) => cached += 1,
                _ => in_use += 1,
            }
            assert_eq!(is_free, usize::from(found.users == 0 && found.node.is_none()), "page {page}");
            let is_leaf = found.node.as_ref().is_some_and(|node| node.children == 0);
            let evictable = pool.leaves.contains(&(found.released, page as u32));
            assert_eq!(evictable, found.users == 0 && is_leaf, "page {page}");
            if let Some(parent) = found.node.as_ref().and_then(|node| node.parent) {
                assert!(
                    pool.pages[parent as usize].users >= found.users || found.users == 0,
                    "users before page {page}"
                );
                assert!(pool.pages[parent as usize].node.as_ref().is_some_and(|parent| parent.children > 0));
            }
        }
        let counters = pool.counters();
        assert_eq!((counters.in_use, counters.cached, counters.free), (in_use, cached, free));
        assert_eq!(pool.tree.len(), pool.pages.iter().filter(|page| page.node.is_some()).count());
        assert_eq!(pool.free_snapshots.len() + pool.snapshots.len(), 3);
    }
}

#[test]
fn random_operations_keep_every_page_accounted_for() {
    let (mut hits, mut evictions, mut copies) = (0, 0, 0);
    for seed in 0..40 {
        let mut world = World::new(6 + 3 * seed as usize, seed);
        (0..400).for_each(|_| world.step());
        // Nothing leaks: once nobody is left every page can be had.
        for sequence in std::mem::take(&mut world.live) {
            world.pool.release_all(&sequence.pages);
        }
        world.check();
        let counters = world.pool.counters();
        (hits, evictions) = (hits + world.hits, evictions + counters.evictions);
        copies += world.copies;
        for _ in 0..world.n_pages {
            assert!(world.pool.alloc().is_some(), "seed {seed}");
        }
        assert_eq!(world.pool.alloc(), None);
        assert!(world.pool.tree.is_empty());
    }
    assert!(hits > 1000 && evictions > 1000 && copies > 200, "{hits} hits, {evictions} evictions, {copies} copies");
}

#[test]
#[should_panic(expected = "page")]
fn a_page_with_other_content_is_noticed() {
    let mut world = World::new(40, 7);
    for _ in 0..400 {
        // What a tree that did not look at the tokens before would find.
        if let Some(tokens) = world.written.values_mut().next() {
            tokens[0] = 9;
        }
        world.step();
    }
}

/// Tokens of whole pages, one value a page.
fn pages_of(values: &[u32]) -> Vec<u32> {
    values.iter().flat_map(|value| [*value; PAGE]).collect()
}

/// Adds a sequence of whole pages and ends it.
fn cache(pool: &mut PagePool, values: &[u32]) -> Vec<u32> {
    let tokens = pages_of(values);
    let mut pages: Vec<u32> = Vec::new();
    for part in tokens.chunks(PAGE) {
        let page = pool.alloc().expect("a page");
        pages.push(pool.register(pages.last().copied(), part, page));
    }
    pool.release_all(&pages);
    pages
}

#[test]
fn the_least_recently_used_leaf_goes_first() {
    let mut pool = PagePool::new(4, 0);
    let first = cache(&mut pool, &[1, 2]);
    let second = cache(&mut pool, &[3, 4]);
    let found = pool.lookup(&pages_of(&[1, 2]), false);
    assert_eq!(found.pages, first);
    pool.release_all(&found.pages);
    // The second text was used before the first one was found again; of each the end goes before the beginning.
    let order: Vec<_> = (0..4).map(|_| pool.alloc().expect("a page")).collect();
    assert_eq!(order, [second[1], second[0], first[1], first[0]]);
}

#[test]
fn the_same_tokens_after_others_are_another_page() {
    let mut pool = PagePool::new(8, 0);
    let a = cache(&mut pool, &[1, 7]);
    let b = cache(&mut pool, &[2, 7]);
    assert!(a[0] != b[0] && a[1] != b[1]);
    let found = pool.lookup(&pages_of(&[2, 7]), false);
    assert_eq!((found.pages, found.partial), (b, None));
}

#[test]
fn two_that_compute_the_same_share_it_afterwards() {
    let mut pool = PagePool::new(4, 0);
    let pages = [pool.alloc().unwrap(), pool.alloc().unwrap()];
    let kept = pages.map(|page| pool.register(None, &[5; PAGE], page));
    assert_eq!(kept, [pages[0]; 2]);
    assert_eq!((pool.counters().in_use, pool.counters().free), (1, 3));
}

#[test]
fn a_page_with_room_is_found_by_its_beginning() {
    let mut pool = PagePool::new(4, 0);
    let page = pool.alloc().unwrap();
    pool.register_partial(None, &[1, 2, 3], page);
    let found = |pool: &mut PagePool, tokens: &[u32]| {
        let prefix = pool.lookup(tokens, false);
        prefix.partial.iter().for_each(|(page, _)| pool.release(*page));
        prefix.partial
    };
    assert_eq!(found(&mut pool, &[1, 2, 3, 4]), Some((page, 3)));
    assert_eq!(found(&mut pool, &[1, 2, 9]), Some((page, 2)));
    assert_eq!(found(&mut pool, &[2, 2]), None);
    // It is written on, and found with all it holds then.
    pool.register_partial(None, &[1, 2, 3, 4, 5], page);
    assert_eq!(found(&mut pool, &[1, 2, 3, 4, 5]), Some((page, 5)));
    assert_eq!(pool.tree.len(), 1);
}

#[test]
fn a_lookup_that_needs_a_state_ends_where_one_is() {
    let mut pool = PagePool::new(8, 2);
    let pages = cache(&mut pool, &[1, 2, 3]);
    let lookup = |pool: &mut PagePool| {
        let found = pool.lookup(&pages_of(&[1, 2, 3]), true);
        pool.release_all(&found.pages);
        (found.pages.len(), found.snapshot)
    };
    let attach = |pool: &mut PagePool, page| {
        let snapshot = pool.reserve_snapshot();
        snapshot.iter().for_each(|snapshot| pool.attach_snapshot(page, *snapshot));
        snapshot
    };
    assert_eq!(lookup(&mut pool), (0, None));
    let first = attach(&mut pool, pages[1]);
    assert_eq!(lookup(&mut pool), (2, first));
    let second = attach(&mut pool, pages[2]);
    assert!(first.is_some() && second.is_some() && first != second);
    assert_eq!(lookup(&mut pool), (3, second));
    // The last page's state was used last, so another one takes the other's place.
    assert_eq!(attach(&mut pool, pages[0]), first);
    assert_eq!(lookup(&mut pool), (3, second));
    // A page that has a state keeps it.
    assert_eq!(attach(&mut pool, pages[2]), first);
    assert_eq!(lookup(&mut pool), (3, second));
    assert_eq!([pool.reserve_snapshot(), pool.reserve_snapshot(), pool.reserve_snapshot()], [first, second, None]);
    assert_eq!(PagePool::new(1, 0).reserve_snapshot(), None);
}
