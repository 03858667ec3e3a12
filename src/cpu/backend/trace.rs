//! Single operations of the last feed, and what they wrote.

use std::borrow::Cow;
use std::ops::Range;

use super::CpuBackend;
use crate::cpu::attention::{Visible, unit_partials};
use crate::cpu::buffers::{Buffer, Buffers};
use crate::cpu::machine::{Place, Rows};
use crate::plan::{BufferId, Heads, List, Op};

impl CpuBackend {
    /// Whether a list works on the buffers of the single row.
    fn is_single(&self, list: List) -> bool {
        self.fed_single || list != List::Body
    }

    fn traced(&self, list: List) -> &Buffers {
        if self.is_single(list) { &self.single } else { &self.chunk }
    }

    /// Position of the first row of the last feed.
    fn fed_position(&self) -> usize {
        self.slots[self.fed_slot].history.len() - self.traced(List::Body).n_rows
    }

    /// Runs operation `at` of the body, as the last `feed` did, or of the head, as the last `head` did.
    pub(crate) fn trace_op(&mut self, list: List, at: usize) {
        let plan = self.machine.plan.clone();
        let position = self.fed_position();
        let single = self.is_single(list);
        let slot = self.fed_slot;
        let (machine, tokens) = (&mut self.machine, &self.slots[slot].history[position..]);
        let buffers = if single { &mut self.single } else { &mut self.chunk };
        let places: Vec<_> = (position..).take(buffers.n_rows).map(|position| Place { slot, position }).collect();
        let rows = Rows { tokens, places: &places };
        machine.pool.clone().enter(|| machine.step(&plan.list(list)[at], buffers, rows));
    }

    /// What a buffer holds, every row: f32 bits, or int8 words and then scales and sums.
    pub(crate) fn trace_words(&self, list: List, id: BufferId) -> Cow<'_, [u32]> {
        match self.traced(list).get(id) {
            Buffer::F32 { values } => Cow::Borrowed(bytemuck::cast_slice(values)),
            Buffer::Q8 { rows, .. } => Cow::Owned(rows.words()),
        }
    }

    /// The columns of its output that an operation writes; the query's alone of `RopeAppend`, whose keys and values go to the cache.
    pub(crate) fn trace_columns(&self, op: &Op, width: usize) -> Range<usize> {
        match *op {
            Op::MatMul { weight, out_offset, .. } => {
                out_offset..out_offset + self.machine.weights.matrix(weight).rows()
            }
            Op::ExpertMatMul { weight, n_experts, out_offset, .. } => {
                out_offset..out_offset + self.machine.weights.matrix(weight).rows() / n_experts
            }
            Op::RopeAppend { heads, .. } => 0..heads.first_key(),
            _ => 0..width,
        }
    }

    /// The bytes of the fed sequence's page `page`, its keys and then its values, as [`KvShape`](crate::plan::KvShape) says.
    pub(crate) fn trace_page(&self, layer: usize, page: usize) -> Vec<u8> {
        let page = self.machine.tables.of(self.fed_slot)[page];
        self.machine.cache[layer].page_bytes(page as usize)
    }

    /// Attention's partial results over units of `chunks_per_unit` chunks, from the prepared queries in `qkv`: a row's units one after
    /// another, f32 bits, `[units, n_heads, 2 + head_dim]`.
    pub(crate) fn trace_partials(&self, qkv: BufferId, heads: Heads, layer: usize, chunks_per_unit: usize) -> Vec<u32> {
        let buffers = self.traced(List::Body);
        let seen = Visible { cache: &self.machine.cache[layer], pages: self.machine.tables.of(self.fed_slot) };
        let group = heads.n_heads / heads.n_kv_heads;
        let mut words = Vec::new();
        for (row, qkv) in buffers.get(qkv).f32().chunks_exact(heads.row_width()).enumerate() {
            let position = self.fed_position() + row;
            let of_head = |head: usize| {
                let query = &qkv[head * heads.query_stride()..][..heads.head_dim];
                unit_partials(query, seen, heads, head / group, position, chunks_per_unit)
            };
            let by_head: Vec<Vec<Vec<f32>>> = (0..heads.n_heads).map(of_head).collect();
            for unit in 0..by_head.first().map_or(0, Vec::len) {
                words.extend(by_head.iter().flat_map(|units| &units[unit]).map(|x| x.to_bits()));
            }
        }
        words
    }
}
