//! Who has which page of the cache, and which pages can be found again by their tokens.
//!
//! A page holds the keys and values of [`PAGE`] positions. Those depend on the tokens at these positions and on every token before them, so
//! cached pages form a tree: a node is a page, found by the node before it and by its own tokens, all of which are compared. A prefix that
//! is found has the same bits as one computed anew.
//!
//! ```text
//!                                 users                     a page is, at any time, one of
//!   (start) --64 tokens--> page 4   2     two sequences       free     nobody's, its content is lost
//!              |--64 tokens--> page 7  1                      in use   some sequences' (users > 0), in the tree or not
//!              |--64 tokens--> page 2  0  cached              cached   nobody's, in the tree: found again or evicted
//!              `--9 tokens---> page 5  0  cached, a leaf with room: copied before it is written
//! ```
//! A sequence that uses a page uses those before it, too. So whatever follows a cached page is cached, and every cached page can be
//! evicted, leaves first.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::plan::PAGE;

/// What a pool holds, and what it has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PageCounters {
    /// Pages that sequences use.
    pub in_use: usize,
    /// Pages that nobody uses and that can be found again.
    pub cached: usize,
    /// Pages without content.
    pub free: usize,
    /// Cached pages given up for others.
    pub evictions: u64,
}

/// Cached pages of the beginning of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Whole pages from the first position on. The caller uses them now and releases them.
    pub pages: Vec<u32>,
    /// A page whose first positions go on after these, and how many do. The caller uses it now: it copies it and releases it.
    pub partial: Option<(u32, usize)>,
    /// The recurrent state after the last of `pages`, where one was needed. It is there until the next one is reserved.
    pub snapshot: Option<u32>,
}

/// A page in the tree.
#[derive(Debug)]
struct Node {
    parent: Option<u32>,
    /// At most [`PAGE`]; only a node with as many has children.
    tokens: Arc<[u32]>,
    children: usize,
    snapshot: Option<u32>,
}

#[derive(Debug, Default)]
struct Page {
    users: u32,
    node: Option<Node>,
    /// When its last user released it.
    released: u64,
}

/// The pages of a cache. It only counts: copying and writing are the caller's.
#[derive(Debug)]
pub struct PagePool {
    pages: Vec<Page>,
    free: Vec<u32>,
    /// The page after `parent` that holds these tokens. Ordered by tokens, so that the nearest ones are neighbours.
    tree: BTreeMap<(Option<u32>, Arc<[u32]>), u32>,
    /// Cached pages without children, the least recently used first.
    leaves: BTreeSet<(u64, u32)>,
    clock: u64,
    in_use: usize,
    free_snapshots: Vec<u32>,
    /// Pages with a snapshot, the least recently used first.
    snapshots: BTreeSet<(u64, u32)>,
    evictions: u64,
}

impl PagePool {
    /// A pool of the pages `0..n_pages`, all free, with room for `n_snapshots` recurrent states.
    pub fn new(n_pages: usize, n_snapshots: usize) -> Self {
        PagePool {
            pages: (0..n_pages).map(|_| Page::default()).collect(),
            free: (0..n_pages as u32).rev().collect(),
            tree: BTreeMap::new(),
            leaves: BTreeSet::new(),
            clock: 0,
            in_use: 0,
            free_snapshots: (0..n_snapshots as u32).rev().collect(),
            snapshots: BTreeSet::new(),
            evictions: 0,
        }
    }

    /// Pages that [`PagePool::alloc`] can give: free and cached ones.
    pub fn available(&self) -> usize {
        self.pages.len() - self.in_use
    }

    /// What the pool holds and has done.
    pub fn counters(&self) -> PageCounters {
        let (in_use, free) = (self.in_use, self.free.len());
        let cached = self.pages.len() - in_use - free;
        PageCounters { in_use, cached, free, evictions: self.evictions }
    }

    /// A page for one user. Where none is free the cached leaf that was used least recently is evicted. `None` where every page is in use.
    pub fn alloc(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.evict()?,
        };
        self.pages[page as usize].users = 1;
        self.in_use += 1;
        Some(page)
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, page) = self.leaves.pop_first()?;
        self.remove_node(page);
        self.evictions += 1;
        Some(page)
    }

    /// Takes a page without children out of the tree.
    fn remove_node(&mut self, page: u32) {
        self.take_snapshot(page);
        let node = self.pages[page as usize].node.take().expect("the page is in the tree");
        self.tree.remove(&(node.parent, node.tokens));
        if let Some(parent) = node.parent {
            self.node_mut(parent).children -= 1;
            self.note_leaf(parent);
        }
    }

    fn node_mut(&mut self, page: u32) -> &mut Node {
        self.pages[page as usize].node.as_mut().expect("the page is in the tree")
    }

    /// Makes a page evictable where nothing stands against it.
    fn note_leaf(&mut self, page: u32) {
        let Page { users, node, released } = &self.pages[page as usize];
        if *users == 0 && node.as_ref().is_some_and(|node| node.children == 0) {
            self.leaves.insert((*released, page));
        }
    }

    /// One more user of a page that is in use or cached.
    fn retain(&mut self, page: u32) {
        let Page { users, released, .. } = &mut self.pages[page as usize];
        *users += 1;
        if *users == 1 {
            let released = *released;
            self.leaves.remove(&(released, page));
            self.in_use += 1;
        }
    }

    /// One user less. The last one leaves a page cached where it is in the tree, else free.
    pub fn release(&mut self, page: u32) {
        self.clock += 1;
        let clock = self.clock;
        let Page { users, node, released } = &mut self.pages[page as usize];
        *users = users.checked_sub(1).expect("the page is in use");
        if *users > 0 {
            return;
        }
        self.in_use -= 1;
        *released = clock;
        if node.is_none() {
            self.free.push(page);
        }
        self.note_leaf(page);
    }

    /// Releases the pages of a sequence, the last one first, so that it is the first to be evicted.
    pub fn release_all(&mut self, pages: &[u32]) {
        pages.iter().rev().for_each(|page| self.release(*page));
    }

    /// The longest cached beginning of `tokens`. With `needs_snapshot` it ends at a page that has one, or is empty.
    pub fn lookup(&mut self, tokens: &[u32], needs_snapshot: bool) -> Prefix {
        let mut pages = Vec::new();
        for part in tokens.chunks_exact(PAGE) {
            match self.tree.get(&(pages.last().copied(), part.into())) {
                Some(page) => pages.push(*page),
                None => break,
            }
        }
        let mut snapshot = None;
        if needs_snapshot {
            let found = pages.iter().rposition(|page| self.snapshot_of(*page).is_some());
            pages.truncate(found.map_or(0, |at| at + 1));
            snapshot = pages.last().and_then(|page| self.use_snapshot(*page));
        }
        let partial = match needs_snapshot {
            true => None,
            false => self.nearest(pages.last().copied(), &tokens[pages.len() * PAGE..]),
        };
        let partial_page = partial.map(|(page, _)| page);
        pages.iter().chain(&partial_page).for_each(|page| self.retain(*page));
        Prefix { pages, partial, snapshot }
    }

    /// The page after `parent` that begins with most of `tokens`, and how many they are. Among ordered texts it is next to them.
    fn nearest(&self, parent: Option<u32>, tokens: &[u32]) -> Option<(u32, usize)> {
        let key = (parent, tokens[..tokens.len().min(PAGE)].into());
        let shared = |((of, other), page): ((&Option<u32>, &Arc<[u32]>), u32)| {
            let n = tokens.iter().zip(other.iter()).take_while(|(a, b)| a == b).count();
            (*of == parent && n > 0).then_some((page, n))
        };
        let before = self.tree.range(..&key).next_back();
        let after = self.tree.range(&key..).next();
        let found = before.into_iter().chain(after).filter_map(|((of, tokens), page)| shared(((of, tokens), *page)));
        found.max_by_key(|(_, n)| *n)
    }

    /// Puts a full page of a sequence, which comes after its page `parent`, into the tree. Where the tree has these tokens already its own page
    /// is returned: it has the same content, and the caller uses that one from now on instead of `page`.
    pub fn register(&mut self, parent: Option<u32>, tokens: &[u32], page: u32) -> u32 {
        assert_eq!(tokens.len(), PAGE, "a full page");
        match self.insert(parent, tokens, page) {
            Some(other) if other != page => {
                self.retain(other);
                self.release(page);
                other
            }
            _ => page,
        }
    }

    /// Puts the page a sequence is writing into the tree with the tokens written so far, fewer than [`PAGE`]. It may be written on; others only
    /// copy it. Does nothing where the tree has these tokens already.
    pub fn register_partial(&mut self, parent: Option<u32>, tokens: &[u32], page: u32) {
        assert!(tokens.len() < PAGE, "a page with room");
        if !tokens.is_empty() {
            self.insert(parent, tokens, page);
        }
    }

    /// Makes `page` a node, instead of the node with fewer tokens it may have been. Returns the page that has these tokens already.
    fn insert(&mut self, parent: Option<u32>, tokens: &[u32], page: u32) -> Option<u32> {
        let key = (parent, Arc::from(tokens));
        let present = self.tree.get(&key).copied();
        if present == Some(page) {
            return present;
        }
        if self.pages[page as usize].node.is_some() {
            self.remove_node(page);
        }
        if present.is_none() {
            if let Some(parent) = parent {
                self.node_mut(parent).children += 1;
            }
            let tokens = key.1.clone();
            self.pages[page as usize].node = Some(Node { parent, tokens, children: 0, snapshot: None });
            self.tree.insert(key, page);
        }
        present
    }

    /// Where a recurrent state is to be saved; the one found least recently may have to go. `None` where the pool has no room for states, or all of it
    /// is reserved.
    pub fn reserve_snapshot(&mut self) -> Option<u32> {
        if self.free_snapshots.is_empty() {
            let (_, oldest) = *self.snapshots.first()?;
            self.take_snapshot(oldest);
        }
        self.free_snapshots.pop()
    }

    /// Gives back what was reserved.
    pub fn release_snapshot(&mut self, snapshot: u32) {
        self.free_snapshots.push(snapshot);
    }

    /// Makes what was saved findable: it is the state after a full page of the tree. Where the page has one already, that one stays.
    pub fn attach_snapshot(&mut self, page: u32, snapshot: u32) {
        if self.snapshot_of(page).is_some() {
            return self.release_snapshot(snapshot);
        }
        self.node_mut(page).snapshot = Some(snapshot);
        self.use_snapshot(page);
    }

    fn snapshot_of(&self, page: u32) -> Option<u32> {
        self.pages[page as usize].node.as_ref().and_then(|node| node.snapshot)
    }

    /// Makes a page's snapshot the most recently used one.
    fn use_snapshot(&mut self, page: u32) -> Option<u32> {
        let snapshot = self.snapshot_of(page)?;
        self.clock += 1;
        self.snapshots.retain(|(_, other)| *other != page);
        self.snapshots.insert((self.clock, page));
        Some(snapshot)
    }

    fn take_snapshot(&mut self, page: u32) {
        if let Some(snapshot) = self.pages[page as usize].node.as_mut().and_then(|node| node.snapshot.take()) {
            self.snapshots.retain(|(_, other)| *other != page);
            self.free_snapshots.push(snapshot);
        }
    }
}
