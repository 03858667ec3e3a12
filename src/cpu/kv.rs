//! The cache in host memory: f16 pages, allocated as they are first written.

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

    /// Makes sure that the page is there.
    pub fn reserve(&mut self, page: usize) {
        if self.keys.len() <= page {
            self.keys.resize(page + 1, Vec::new());
            self.values.resize(page + 1, Vec::new());
        }
        if self.keys[page].is_empty() {
            self.keys[page] = vec![0; self.shape.page_len()];
            self.values[page] = vec![0; self.shape.page_len()];
        }
    }

    /// Where the key and the value `[head_dim]` of slot `slot` of a page are written; the page was reserved.
    pub fn entry(&mut self, head: usize, page: usize, slot: usize) -> (&mut [u16], &mut [u16]) {
        let at = self.offset(head, slot);
        let range = at..at + self.shape.head_dim;
        (&mut self.keys[page][range.clone()], &mut self.values[page][range])
    }

    /// All keys and all values of a page, `[n_kv_heads, PAGE, head_dim]` each.
    pub fn whole_page(&mut self, page: usize) -> (&mut [u16], &mut [u16]) {
        self.reserve(page);
        (&mut self.keys[page], &mut self.values[page])
    }

    /// Copies a page.
    pub fn copy_page(&mut self, from: usize, to: usize) {
        self.reserve(from);
        self.reserve(to);
        self.keys[to] = self.keys[from].clone();
        self.values[to] = self.values[from].clone();
    }

    /// Keys and values of a head in one page, `[PAGE, head_dim]` each.
    pub fn page(&self, head: usize, page: usize) -> (&[u16], &[u16]) {
        let at = self.offset(head, 0);
        let range = at..at + PAGE * self.shape.head_dim;
        (&self.keys[page][range.clone()], &self.values[page][range])
    }
}
