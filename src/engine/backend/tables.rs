//! Pages and snapshots: which of them a slot has, and whether what is asked for exists.

use super::{Capacity, bad};
use crate::error::Result;
use crate::plan::{PAGE, Plan};

/// The host's copy of the block tables: which physical page holds each logical page of a slot.
#[derive(Debug, Clone)]
pub(crate) struct BlockTables {
    n_pages: usize,
    /// Logical pages a slot may have.
    pub(crate) pages_a_slot: usize,
    /// `[slots, pages_a_slot]`.
    entries: Vec<u32>,
}

/// An entry that names no page.
const NO_PAGE: u32 = u32::MAX;

impl BlockTables {
    /// Tables whose first slot has the first pages in order, as many as there are; the others are empty.
    pub(crate) fn new(capacity: Capacity) -> Self {
        let pages_a_slot = capacity.n_ctx.div_ceil(PAGE);
        let mut entries = vec![NO_PAGE; pages_a_slot * capacity.slots];
        for (page, entry) in entries.iter_mut().take(pages_a_slot.min(capacity.pages)).enumerate() {
            *entry = page as u32;
        }
        BlockTables { n_pages: capacity.pages, pages_a_slot, entries }
    }

    /// The pages of a slot.
    pub(crate) fn of(&self, slot: usize) -> &[u32] {
        &self.entries[slot * self.pages_a_slot..][..self.pages_a_slot]
    }

    /// All entries as a device has them, which needs a page everywhere.
    pub(crate) fn words(&self) -> Vec<u32> {
        self.entries.iter().map(|page| if *page == NO_PAGE { 0 } else { *page }).collect()
    }

    /// Names the physical pages of the logical pages `first ..` of a slot. Returns the index of the first entry.
    ///
    /// # Errors
    /// `BadOption` where there is no such slot or page.
    pub(crate) fn set(&mut self, slot: usize, first: usize, pages: &[u32]) -> Result<usize> {
        if slot * self.pages_a_slot >= self.entries.len() {
            return bad("slot", slot, "below the number of slots");
        }
        if first + pages.len() > self.pages_a_slot {
            return bad("pages of a sequence", first + pages.len(), "at most those of the context");
        }
        if let Some(page) = pages.iter().find(|page| **page as usize >= self.n_pages) {
            return bad("page", *page as usize, "below the number of pages");
        }
        let at = slot * self.pages_a_slot + first;
        self.entries[at..at + pages.len()].copy_from_slice(pages);
        Ok(at)
    }

    /// Checks that the first `positions` positions of a slot have pages.
    pub(super) fn check(&self, slot: usize, positions: usize) -> Result<()> {
        let needed = positions.div_ceil(PAGE);
        match self.of(slot).iter().take(needed).position(|page| *page == NO_PAGE) {
            Some(at) => bad("pages of a sequence", at, "a page for every position that is fed"),
            None => Ok(()),
        }
    }
}

/// Checks that there is such a page.
pub(crate) fn check_page(page: u32, capacity: Capacity) -> Result<()> {
    match (page as usize) < capacity.pages {
        true => Ok(()),
        false => bad("page", page as usize, "below the number of pages"),
    }
}

/// Checks the size of a page's keys and values.
pub(crate) fn check_page_bytes(plan: &Plan, bytes: &[u8]) -> Result<()> {
    match bytes.len() == plan.page_bytes() {
        true => Ok(()),
        false => bad("bytes of a page", bytes.len(), "keys and values of every layer"),
    }
}

/// Checks that there is such a snapshot.
pub(crate) fn check_snapshot(snapshot: usize, capacity: Capacity) -> Result<()> {
    match snapshot < capacity.snapshots {
        true => Ok(()),
        false => bad("snapshot", snapshot, "below the number of snapshots"),
    }
}

/// Checks the size of a snapshot.
pub(crate) fn check_state_bytes(plan: &Plan, bytes: &[u8]) -> Result<()> {
    match bytes.len() == plan.state_bytes() {
        true => Ok(()),
        false => bad("bytes of a snapshot", bytes.len(), "states and ring of every recurrent layer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_refuse_pages_that_are_not_there() {
        let capacity = Capacity { slots: 2, pages: 3, ..Capacity::from(192) };
        let mut tables = BlockTables::new(capacity);
        assert_eq!(tables.of(0), [0, 1, 2]);
        assert_eq!(tables.set(1, 1, &[2, 0]).unwrap(), 4);
        assert_eq!(tables.words(), [0, 1, 2, 0, 2, 0]);
        for (slot, first, pages) in [(2, 0, &[0][..]), (1, 2, &[0, 0]), (0, 0, &[3])] {
            assert!(tables.set(slot, first, pages).is_err(), "{slot} {first} {pages:?}");
        }
    }
}
