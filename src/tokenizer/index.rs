//! A lean hash index: numbers of entries that live elsewhere, 4 bytes a slot.

/// Marks a free slot, and "no token" throughout the tokenizer.
pub(super) const NONE: u32 = u32::MAX;

/// Open addressing with linear probing over a power of two of slots, at most half full.
#[derive(Debug, Clone)]
pub(super) struct Index {
    slots: Vec<u32>,
}

impl Index {
    /// An index for at most `n` entries.
    pub(super) fn with_capacity(n: usize) -> Self {
        Self { slots: vec![NONE; (n.max(1) * 2).next_power_of_two()] }
    }

    /// The entry with `hash` for which `same` holds.
    pub(super) fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let slot = self.slots[self.probe(hash, same)];
        (slot != NONE).then_some(slot)
    }

    /// Adds `entry`, or gives it the place of the one for which `same` holds, which is returned.
    pub(super) fn insert(&mut self, hash: u64, entry: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.probe(hash, same);
        let old = std::mem::replace(&mut self.slots[at], entry);
        (old != NONE).then_some(old)
    }

    /// The slot of the entry sought, or the free one where it belongs.
    fn probe(&self, hash: u64, same: impl Fn(u32) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != NONE && !same(self.slots[at]) {
            at = (at + 1) & mask;
        }
        at
    }
}

/// Hash of a byte string.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    spread(hash)
}

/// Hash of a pair of ids.
pub(super) fn hash_pair(left: u32, right: u32) -> u64 {
    spread((u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Lets high bits decide low ones, which pick the slot.
fn spread(hash: u64) -> u64 {
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_and_the_last_of_equals() {
        let words = ["a", "b", "ab", "", "a"];
        let mut index = Index::with_capacity(words.len());
        let mut replaced = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let same = |j: u32| words[j as usize] == *word;
            replaced.push(index.insert(hash_bytes(word.as_bytes()), i as u32, same));
        }
        assert_eq!(replaced, [None, None, None, None, Some(0)]);
        for (word, expected) in [("a", Some(4)), ("b", Some(1)), ("ab", Some(2)), ("", Some(3)), ("c", None)] {
            let same = |j: u32| words[j as usize] == word;
            assert_eq!(index.find(hash_bytes(word.as_bytes()), same), expected, "{word:?}");
        }
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        assert_eq!(Index::with_capacity(0).find(hash_pair(1, 2), |_| true), None);
    }
}
