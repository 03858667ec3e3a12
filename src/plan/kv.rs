//! How a layer's keys and values are kept.

use super::{PAGE, Plan};
use crate::error::{Error, Result};

/// Values of a block of [`KvType::Q8_0`].
pub const KV_BLOCK: usize = 32;

/// What keys and values are stored as (docs/numerics.md, "Attention").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KvType {
    /// f16.
    #[default]
    F16,
    /// int8 and an f16 scale for each [`KV_BLOCK`] values of a head: 34 bytes where f16 takes 64.
    Q8_0,
}

impl KvType {
    /// Every type.
    pub const ALL: [KvType; 2] = [KvType::F16, KvType::Q8_0];

    /// `f16` or `q8_0`.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        }
    }
}

/// A layer's cache geometry.
///
/// A page's keys, as hosts see them, are `[n_kv_heads, PAGE, head_dim]` f16, or as many int8 and then the scales `[n_kv_heads, PAGE, blocks]`
/// f16. Its values are the same. Devices have orders of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Key/value heads.
    pub n_kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// What they are stored as.
    pub kv: KvType,
}

impl KvShape {
    /// Values of one page, of keys or of values.
    pub fn page_len(&self) -> usize {
        self.n_kv_heads * self.head_dim * PAGE
    }

    /// Blocks of one page, of keys or of values; none of f16.
    pub fn page_blocks(&self) -> usize {
        match self.kv {
            KvType::F16 => 0,
            KvType::Q8_0 => self.page_len() / KV_BLOCK,
        }
    }

    /// Bytes of one page's keys; its values have as many.
    pub fn page_bytes(&self) -> usize {
        match self.kv {
            KvType::F16 => self.page_len() * 2,
            KvType::Q8_0 => self.page_len() + self.page_blocks() * 2,
        }
    }

    /// What position `slot` of a page's keys (or values) holds, a word each, heads in order: f16 bits, or int8 and then the bits of all scales.
    pub(crate) fn words(&self, page: &[u8], slot: usize) -> Vec<u32> {
        let halves = |bytes: &[u8]| -> Vec<u32> {
            bytes.as_chunks::<2>().0.iter().map(|half| u32::from(u16::from_le_bytes(*half))).collect()
        };
        // `n` bytes a position and head.
        let of_slot = |bytes: &[u8], n: usize| -> Vec<u8> {
            (0..self.n_kv_heads).flat_map(|head| &bytes[(head * PAGE + slot) * n..][..n]).copied().collect()
        };
        match self.kv {
            KvType::F16 => halves(&of_slot(page, self.head_dim * 2)),
            KvType::Q8_0 => {
                let (q, d) = page.split_at(self.page_len());
                let mut words: Vec<u32> = of_slot(q, self.head_dim).into_iter().map(u32::from).collect();
                words.extend(halves(&of_slot(d, self.head_dim / KV_BLOCK * 2)));
                words
            }
        }
    }
}

impl Plan {
    /// The same plan with a cache of another type.
    ///
    /// # Errors
    /// `BadOption` where a layer's heads are not whole blocks of the type.
    pub fn with_kv(mut self, kv: KvType) -> Result<Plan> {
        let odd = |layer: &&KvShape| kv == KvType::Q8_0 && !layer.head_dim.is_multiple_of(KV_BLOCK);
        if let Some(layer) = self.layers.iter().find(odd) {
            let found = format!("{} for heads of {} values", kv.name(), layer.head_dim);
            return Err(Error::BadOption {
                option: "cache type",
                found,
                expected: "f16, or heads of a multiple of 32 values",
            });
        }
        self.layers.iter_mut().for_each(|layer| layer.kv = kv);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_q8_0_page_takes_34_of_64_bytes() {
        for (n_kv_heads, head_dim) in [(1, 32), (3, 64), (2, 96), (8, 128), (1, 256)] {
            let bytes = |kv| KvShape { n_kv_heads, head_dim, kv }.page_bytes();
            assert_eq!(bytes(KvType::F16), n_kv_heads * head_dim * PAGE * 2);
            assert_eq!(bytes(KvType::Q8_0) * 64, bytes(KvType::F16) * 34, "{n_kv_heads} heads of {head_dim}");
        }
    }

    #[test]
    fn words_of_a_position() {
        let shape = KvShape { n_kv_heads: 2, head_dim: 32, kv: KvType::Q8_0 };
        let mut page = vec![0; shape.page_bytes()];
        // Head 1, slot 5, value 3, and the scale of its block.
        page[(PAGE + 5) * 32 + 3] = 0x81;
        page[shape.page_len() + (PAGE + 5) * 2 + 1] = 0x3c;
        let words = shape.words(&page, 5);
        let found: Vec<_> = words.iter().enumerate().filter(|(_, word)| **word != 0).collect();
        assert_eq!((words.len(), found), (66, vec![(35, &0x81), (65, &0x3c00)]));
        assert!(shape.words(&page, 4).iter().all(|word| *word == 0));
    }
}
