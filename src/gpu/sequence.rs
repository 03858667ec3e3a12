//! What sequences keep on the device: their states, the pages of the cache, the ring of results.

use super::buffers::Allocator;
use super::device::Gpu;
use super::driver::{Buffer, Usage};
use super::params::{BATCH_BYTES, RowsHeader, State, state_at};
use super::recurrent::Recurrent;
use super::ring::Ring;
use super::sampler::{BORDER_BYTES, LOGITS_A_GROUP, RULES_BYTES};
use crate::engine::backend::{BlockTables, Capacity, MAX_STOP_IDS, RingSize, UNTRIPPED};
use crate::error::{Error, Result};
use crate::plan::{PAGE, Plan};

/// Buffers of all slots and the tables their kernels read.
pub(crate) struct Sequence {
    pub(crate) capacity: Capacity,
    /// A [`RowsHeader`] and a [`State`] a slot.
    pub(crate) state: Buffer,
    pub(crate) tables: BlockTables,
    /// `[slots, pages_a_slot]`: physical page of each logical page.
    pub(crate) block_table: Buffer,
    /// Keys and values by layer.
    pub(crate) cache: Vec<(Buffer, Buffer)>,
    /// By recurrent layer.
    pub(crate) recurrent: Vec<Recurrent>,
    /// `[n_ctx, pairs, 2]` by variant.
    pub(crate) ropes: Vec<Buffer>,
    /// `[rows, groups]`: the best candidates of the sampler's workgroups: order key, token id.
    pub(crate) candidates: Buffer,
    /// By slot: what the sampler does to logits.
    pub(crate) rules: Buffer,
    /// By row: adjusted logits as order keys, padded to vectors of four with 0.
    pub(crate) keys: Buffer,
    /// By row: which keys stay in the draw.
    pub(crate) borders: Buffer,
    /// `[slots, ceil(n_vocab / 32)]`: which ids masked rows may draw.
    pub(crate) masks: Buffer,
    /// `[slots, n_ctx + 1]`: tokens by position, the one drawn after the last position included.
    pub(crate) history: Buffer,
    /// Results of the steps in flight.
    pub(crate) ring: Ring,
    /// `[slots, MAX_STOP_IDS]`: ids that end the row.
    pub(crate) stops: Buffer,
    /// By slot: the guard's word.
    pub(crate) tripped: Buffer,
    /// By slot: the token the next decode step feeds.
    pub(crate) tokens: Buffer,
    /// Bound where an operation has no weight.
    pub(crate) nothing: Buffer,
}

impl Sequence {
    /// Empty slots.
    ///
    /// # Errors
    /// `BadOption` for a capacity that cannot be, `ContextFull` where the cache of a layer exceeds what the device can bind.
    pub(crate) fn new(gpu: &Gpu, allocator: &mut Allocator, plan: &Plan, capacity: Capacity) -> Result<Self> {
        capacity.check()?;
        let Capacity { n_ctx, slots, pages, .. } = capacity;
        let mut cache = Vec::new();
        for shape in &plan.layers {
            let bytes = pages as u64 * shape.page_bytes() as u64;
            if bytes > gpu.max_binding() {
                let limit = (gpu.max_binding() as usize / shape.page_bytes()) * PAGE;
                return Err(Error::ContextFull { needed: pages * PAGE, limit });
            }
            cache.push((
                allocator.buffer("keys", bytes, Usage::Storage),
                allocator.buffer("values", bytes, Usage::Storage),
            ));
        }
        let recurrent = plan.recurrent.iter().map(|heads| Recurrent::new(allocator, *heads, capacity));
        let recurrent = recurrent.collect();
        let ropes = plan.ropes.iter().map(|table| {
            allocator.filled(
                "rope table",
                bytemuck::cast_slice(&table.values(n_ctx.next_multiple_of(PAGE))),
                Usage::Storage,
            )
        });
        let tables = BlockTables::new(capacity);
        let mut state = vec![0; BATCH_BYTES];
        state[..size_of::<RowsHeader>()].copy_from_slice(bytemuck::bytes_of(&RowsHeader::single(0)));
        for slot in 0..slots {
            state[state_at(slot) as usize..][..size_of::<State>()].copy_from_slice(bytemuck::bytes_of(&State::at(0)));
        }
        Ok(Sequence {
            capacity,
            ropes: ropes.collect(),
            state: allocator.filled("state", &state, Usage::State),
            block_table: allocator.filled("block table", bytemuck::cast_slice(&tables.words()), Usage::Storage),
            tables,
            cache,
            recurrent,
            candidates: allocator.buffer(
                "candidates",
                (slots * plan.n_vocab.div_ceil(LOGITS_A_GROUP) * 8) as u64,
                Usage::Storage,
            ),
            rules: allocator.buffer("sampler rules", (slots * RULES_BYTES) as u64, Usage::Storage),
            keys: allocator.buffer(
                "sampler keys",
                (slots * plan.n_vocab.next_multiple_of(4) * 4) as u64,
                Usage::Storage,
            ),
            borders: allocator.buffer("sampler borders", slots as u64 * BORDER_BYTES, Usage::Storage),
            masks: allocator.buffer("masks", (slots * plan.n_vocab.div_ceil(32) * 4) as u64, Usage::Storage),
            history: allocator.buffer("history", (slots * (n_ctx + 1) * 4) as u64, Usage::Storage),
            ring: Ring::new(gpu, allocator, RingSize::default(), slots)?,
            stops: allocator.buffer("stop ids", (slots * MAX_STOP_IDS * 4) as u64, Usage::Storage),
            tripped: allocator.filled("guard", bytemuck::cast_slice(&vec![UNTRIPPED; slots]), Usage::Storage),
            tokens: allocator.buffer("tokens drawn", (slots * 4) as u64, Usage::Storage),
            nothing: allocator.buffer("nothing", 16, Usage::Storage),
        })
    }

    /// Entries of a slot in `history`.
    pub(crate) fn history_a_slot(&self) -> usize {
        self.capacity.n_ctx + 1
    }
}
