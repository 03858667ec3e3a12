//! The cache of one sequence in host memory: f16 pages, allocated as they are first written.

use crate::plan::{KvShape, PAGE};

/// Keys and values of one layer.
#[derive(Debug, Clone)]
pub struct LayerCache {
    shape: KvShape,
    /// Keys a page, `[n_kv_heads, PAGE, head_dim]` f16 bits.
    keys: Vec<Vec<u16>>,
    /// Values a page, the same layout.
    values: Vec<Vec<u16>>,
}

impl LayerCache {
    /// An empty cache.
    pub fn new(shape: KvShape) -> Self {
        LayerCache { shape, keys: Vec::new(), values: Vec::new() }
    }

    fn offset(&self, head: usize, slot: usize) -> usize {
        (head * PAGE + slot) * self.shape.head_dim
    }

    /// Makes sure that `position` has a page.
    pub fn reserve(&mut self, position: usize) {
        while self.keys.len() <= position / PAGE {
            self.keys.push(vec![0; self.shape.page_len()]);
            self.values.push(vec![0; self.shape.page_len()]);
        }
    }

    /// Where the key and the value `[head_dim]` of a position are written.
    pub fn entry(&mut self, head: usize, position: usize) -> (&mut [u16], &mut [u16]) {
        let at = self.offset(head, position % PAGE);
        let range = at..at + self.shape.head_dim;
        let page = position / PAGE;
        (&mut self.keys[page][range.clone()], &mut self.values[page][range])
    }

    /// Keys and values of a head in one page, `[PAGE, head_dim]` each.
    pub fn page(&self, head: usize, page: usize) -> (&[u16], &[u16]) {
        let at = self.offset(head, 0);
        let range = at..at + PAGE * self.shape.head_dim;
        (&self.keys[page][range.clone()], &self.values[page][range])
    }
}
