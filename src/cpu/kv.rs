//! The cache in host memory: pages, allocated as they are first written.

use super::kv_q8_0;
use crate::numerics::{from_f16, to_f16};
use crate::plan::{KV_BLOCK, KvShape, KvType, PAGE};

/// Keys and values of one layer.
#[derive(Debug, Clone)]
pub struct LayerCache {
    shape: KvShape,
    /// Keys and values by page; `None` where nothing was written yet.
    pages: Vec<Option<[Page; 2]>>,
}

/// Keys or values of a page, `[n_kv_heads, PAGE, head_dim]`.
#[derive(Debug, Clone)]
enum Page {
    /// f16 bits.
    F16(Vec<u16>),
    /// Integers, and the bits of the blocks' scales.
    Q8_0 { q: Vec<i8>, d: Vec<u16> },
}

impl Page {
    fn zeroed(shape: KvShape) -> Self {
        match shape.kv {
            KvType::F16 => Page::F16(vec![0; shape.page_len()]),
            KvType::Q8_0 => Page::Q8_0 { q: vec![0; shape.page_len()], d: vec![0; shape.page_blocks()] },
        }
    }

    /// Stores whole blocks from value `at` on.
    fn store(&mut self, at: usize, x: &[f32]) {
        match self {
            Page::F16(all) => {
                for (out, x) in all[at..].iter_mut().zip(x) {
                    *out = to_f16(*x);
                }
            }
            Page::Q8_0 { q, d } => kv_q8_0::quantise(x, &mut q[at..][..x.len()], &mut d[at / KV_BLOCK..]),
        }
    }

    fn push_bytes(&self, bytes: &mut Vec<u8>) {
        match self {
            Page::F16(all) => bytes.extend_from_slice(bytemuck::cast_slice(all)),
            Page::Q8_0 { q, d } => {
                bytes.extend_from_slice(bytemuck::cast_slice(q));
                bytes.extend_from_slice(bytemuck::cast_slice(d));
            }
        }
    }

    /// Takes what `push_bytes` gave.
    fn take_bytes(&mut self, bytes: &[u8]) {
        match self {
            Page::F16(all) => bytemuck::cast_slice_mut(all).copy_from_slice(bytes),
            Page::Q8_0 { q, d } => {
                let (of_q, of_d) = bytes.split_at(q.len());
                bytemuck::cast_slice_mut(q).copy_from_slice(of_q);
                bytemuck::cast_slice_mut(d).copy_from_slice(of_d);
            }
        }
    }
}

/// A head's keys or values in a page, `[PAGE, head_dim]`.
pub(super) trait Eights {
    /// The eight values from `8 at` on; all have at most 11 significant bits.
    fn eight(&self, at: usize) -> [f32; 8];
}

/// f16 bits.
pub(super) struct F16Head<'a>(&'a [[u16; 8]]);

impl Eights for F16Head<'_> {
    #[inline(always)]
    fn eight(&self, at: usize) -> [f32; 8] {
        self.0[at].map(from_f16)
    }
}

/// Integers, and the bits of their blocks' scales.
pub(super) struct Q8Head<'a> {
    q: &'a [[i8; 8]],
    d: &'a [u16],
}

impl Eights for Q8Head<'_> {
    #[inline(always)]
    fn eight(&self, at: usize) -> [f32; 8] {
        kv_q8_0::decode(&self.q[at], self.d[at / (KV_BLOCK / 8)])
    }
}

/// Keys and values of a head in one page.
pub(super) enum HeadPage<'a> {
    F16([F16Head<'a>; 2]),
    Q8_0([Q8Head<'a>; 2]),
}

impl LayerCache {
    /// An empty cache.
    pub fn new(shape: KvShape) -> Self {
        LayerCache { shape, pages: Vec::new() }
    }

    fn offset(&self, head: usize, slot: usize) -> usize {
        (head * PAGE + slot) * self.shape.head_dim
    }

    /// The page, which is made where it is not there.
    fn reserved(&mut self, page: usize) -> &mut [Page; 2] {
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let shape = self.shape;
        self.pages[page].get_or_insert_with(|| [Page::zeroed(shape), Page::zeroed(shape)])
    }

    /// Stores the key and the value `[head_dim]` of slot `slot` of a page.
    pub fn store(&mut self, head: usize, page: usize, slot: usize, key: &[f32], value: &[f32]) {
        let at = self.offset(head, slot);
        let [keys, values] = self.reserved(page);
        keys.store(at, key);
        values.store(at, value);
    }

    /// Copies a page.
    pub fn copy_page(&mut self, from: usize, to: usize) {
        let copy = self.reserved(from).clone();
        *self.reserved(to) = copy;
    }

    /// The bytes of a page's keys and then of its values, as [`KvShape`] says; zeros where nothing was written.
    pub fn page_bytes(&self, page: usize) -> Vec<u8> {
        let Some(Some(sides)) = self.pages.get(page) else { return vec![0; 2 * self.shape.page_bytes()] };
        let mut bytes = Vec::new();
        sides.iter().for_each(|side| side.push_bytes(&mut bytes));
        bytes
    }

    /// Writes what `page_bytes` gave.
    pub fn write_page(&mut self, page: usize, bytes: &[u8]) {
        let sides = bytes.chunks_exact(self.shape.page_bytes());
        self.reserved(page).iter_mut().zip(sides).for_each(|(side, bytes)| side.take_bytes(bytes));
    }

    /// Keys and values of a head in one page, which something was written to.
    pub(super) fn page(&self, head: usize, page: usize) -> HeadPage<'_> {
        let at = self.offset(head, 0);
        let range = at..at + self.offset(1, 0);
        match self.pages[page].as_ref().expect("attention reads what was appended") {
            [Page::F16(keys), Page::F16(values)] => {
                HeadPage::F16([keys, values].map(|all| F16Head(all[range.clone()].as_chunks().0)))
            }
            [Page::Q8_0 { q: key_q, d: key_d }, Page::Q8_0 { q, d }] => {
                let blocks = range.start / KV_BLOCK..range.end / KV_BLOCK;
                let keys = Q8Head { q: key_q[range.clone()].as_chunks().0, d: &key_d[blocks.clone()] };
                HeadPage::Q8_0([keys, Q8Head { q: q[range].as_chunks().0, d: &d[blocks] }])
            }
            _ => unreachable!("keys and values are of one type"),
        }
    }
}
