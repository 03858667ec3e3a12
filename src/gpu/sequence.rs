//! What a sequence keeps on the device: its state, its cache, the ring of results.

use super::buffers::{Allocator, STATE, STORAGE};
use super::device::Gpu;
use super::params::State;
use super::ring::Ring;
use super::sampler::{BORDER_BYTES, LOGITS_A_GROUP, RULES_BYTES};
use crate::engine::backend::{MAX_STOP_IDS, RingSize, UNTRIPPED};
use crate::error::{Error, Result};
use crate::plan::{PAGE, Plan};

/// Buffers of one sequence and the tables its kernels read.
pub(crate) struct Sequence {
    pub(crate) n_ctx: usize,
    /// One [`State`].
    pub(crate) state: wgpu::Buffer,
    /// Physical page of each logical page.
    pub(crate) block_table: wgpu::Buffer,
    /// Keys and values by layer.
    pub(crate) cache: Vec<(wgpu::Buffer, wgpu::Buffer)>,
    /// `[n_ctx, pairs, 2]` by variant.
    pub(crate) ropes: Vec<wgpu::Buffer>,
    /// The best candidates of the sampler's workgroups: order key, token id.
    pub(crate) candidates: wgpu::Buffer,
    /// What the sampler does to logits.
    pub(crate) rules: wgpu::Buffer,
    /// Adjusted logits as order keys, padded to vectors of four with 0.
    pub(crate) keys: wgpu::Buffer,
    /// Which keys stay in the draw.
    pub(crate) border: wgpu::Buffer,
    /// Tokens by position, the one drawn after the last position included.
    pub(crate) history: wgpu::Buffer,
    /// Results of the steps in flight.
    pub(crate) ring: Ring,
    /// Ids that end the row.
    pub(crate) stops: wgpu::Buffer,
    /// The guard's word.
    pub(crate) tripped: wgpu::Buffer,
    /// The token the next decode step feeds.
    pub(crate) token: wgpu::Buffer,
    /// Bound where an operation has no weight.
    pub(crate) nothing: wgpu::Buffer,
}

impl Sequence {
    /// An empty sequence of at most `n_ctx` positions.
    pub(crate) fn new(gpu: &Gpu, allocator: &mut Allocator, plan: &Plan, n_ctx: usize) -> Result<Self> {
        let n_pages = n_ctx.div_ceil(PAGE);
        let identity: Vec<u32> = (0..n_pages as u32).collect();
        let mut cache = Vec::new();
        for shape in &plan.layers {
            let bytes = n_pages as u64 * shape.page_len() as u64 * 2;
            if bytes > gpu.max_binding() {
                let limit = (gpu.max_binding() as usize / (shape.page_len() * 2)) * PAGE;
                return Err(Error::ContextFull { needed: n_ctx, limit });
            }
            cache.push((allocator.buffer("keys", bytes, STORAGE), allocator.buffer("values", bytes, STORAGE)));
        }
        let ropes = plan
            .ropes
            .iter()
            .map(|table| allocator.filled("rope table", bytemuck::cast_slice(&table.values(n_pages * PAGE)), STORAGE));
        Ok(Sequence {
            n_ctx,
            ropes: ropes.collect(),
            state: allocator.filled("state", bytemuck::bytes_of(&State::at(0)), STATE),
            block_table: allocator.filled("block table", bytemuck::cast_slice(&identity), STORAGE),
            cache,
            candidates: allocator.buffer("candidates", (plan.n_vocab.div_ceil(LOGITS_A_GROUP) * 8) as u64, STORAGE),
            rules: allocator.buffer("sampler rules", RULES_BYTES as u64, STORAGE),
            keys: allocator.buffer("sampler keys", (plan.n_vocab * 4) as u64, STORAGE),
            border: allocator.buffer("sampler border", BORDER_BYTES, STORAGE),
            history: allocator.buffer("history", ((n_ctx + 1) * 4) as u64, STORAGE),
            ring: Ring::new(gpu, allocator, RingSize::default())?,
            stops: allocator.buffer("stop ids", (MAX_STOP_IDS * 4) as u64, STORAGE),
            tripped: allocator.filled("guard", &UNTRIPPED.to_le_bytes(), STORAGE),
            token: allocator.buffer("token", 4, STORAGE),
            nothing: allocator.buffer("nothing", 16, STORAGE),
        })
    }
}
