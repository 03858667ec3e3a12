//! The sampler's kernels: the plain draw, and the chain that adjusts and filters logits first.

use super::driver::{Buffer, Draft, Usage};
use bytemuck::{Pod, Zeroable, bytes_of};

use super::buffers::Allocator;
use super::device::Gpu;
use super::kernels::Kernel;
use super::params::{self, ADJUSTED, FILTERED, MASKED, SLOT};
use super::recorder::{Grid, Step};
use super::sequence::Sequence;
use crate::engine::backend::MAX_STOP_IDS;
use crate::error::Result;
use crate::plan::Tag;
use crate::sample::{MAX_BIASES, Sampling, fixed_share, min_p_offset};

/// Logits one workgroup looks at.
pub(crate) const LOGITS_A_GROUP: usize = 1024;
/// Bytes of `Kept` of `shaders/shared/kept.wgsl`: which ids stay in a draw.
pub(crate) const BORDER_BYTES: u64 = 24;
/// Bytes of the largest rules.
pub(crate) const RULES_BYTES: usize = size_of::<RulesHeader>() + MAX_BIASES * 8;

/// `Rules` of `shaders/shared/rules.wgsl` before its biases.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct RulesHeader {
    n_biases: u32,
    window: u32,
    repeat: f32,
    inverse_repeat: f32,
    frequency: f32,
    presence: f32,
    noise: u32,
    top_k: u32,
    top_p: u32,
    min_p: u32,
    min_p_offset: f32,
    typical_p: u32,
}

/// The bytes of `Rules`; the sampling was checked.
pub(crate) fn rules(sampling: &Sampling) -> Vec<u8> {
    let min_p = min_p_offset(sampling.min_p);
    let header = RulesHeader {
        n_biases: sampling.biases.len() as u32,
        window: sampling.effective_window() as u32,
        repeat: sampling.repeat_penalty,
        inverse_repeat: 1.0 / sampling.repeat_penalty,
        frequency: sampling.frequency_penalty,
        presence: sampling.presence_penalty,
        noise: u32::from(!sampling.is_greedy() && !sampling.filters()),
        top_k: sampling.top_k,
        top_p: fixed_share(sampling.top_p),
        min_p: u32::from(min_p.is_some()),
        min_p_offset: min_p.unwrap_or(0.0),
        typical_p: fixed_share(sampling.typical_p),
    };
    let biases = sampling.biases.iter().flat_map(|(id, bias)| [*id, bias.to_bits()]);
    let biases = biases.flat_map(u32::to_le_bytes);
    bytes_of(&header).iter().copied().chain(biases).collect()
}

/// What the sampler's kernels read and write.
pub(crate) struct Bound<'a> {
    pub(crate) sequence: &'a Sequence,
    pub(crate) n_vocab: usize,
    /// `[slots, n_vocab]`, f32.
    pub(crate) logits: &'a Buffer,
}

impl Bound<'_> {
    fn n_partials(&self) -> u32 {
        self.n_vocab.div_ceil(LOGITS_A_GROUP) as u32
    }

    fn draft<P: Pod>(&self, kernel: Kernel, params: P, groups: u32, buffers: &[&Buffer]) -> Draft {
        let bindings = (1..).zip(buffers).map(|(binding, buffer)| (binding, (*buffer).clone())).collect();
        let (params, tag) = (bytes_of(&params).to_vec(), Tag::of(kernel.stem(), self.n_vocab.to_string()));
        Draft { kernel, params, bindings, grid: Grid::Rows { x: groups }, tag }
    }

    /// The draw where nothing adjusts or filters.
    pub(crate) fn plain(&self) -> Vec<Draft> {
        let s = self.sequence;
        let params = params::Sample { zero: 0, n_vocab: self.n_vocab as u32 };
        let buffers = [&s.state, self.logits, &s.candidates, &s.masks];
        vec![self.draft(Kernel::Sample, params, self.n_partials(), &buffers), self.finish()]
    }

    fn adjust(&self) -> Draft {
        let s = self.sequence;
        let params =
            params::SampleAdjust { zero: 0, n_vocab: self.n_vocab as u32, history_a_slot: s.history_a_slot() as u32 };
        let buffers = [&s.state, self.logits, &s.candidates, &s.rules, &s.history, &s.keys, &s.masks];
        self.draft(Kernel::SampleAdjust, params, self.n_partials(), &buffers)
    }

    fn filter(&self) -> Draft {
        let s = self.sequence;
        let params = params::SampleFilter { zero: 0, n_vocab: self.n_vocab as u32, n_partials: self.n_partials() };
        self.draft(Kernel::SampleFilter, params, 1, &[&s.state, &s.rules, &s.keys, &s.candidates, &s.borders])
    }

    fn kept(&self) -> Draft {
        let s = self.sequence;
        let params = params::SampleKept { zero: 0, n_vocab: self.n_vocab as u32 };
        let buffers = [&s.state, &s.keys, &s.borders, &s.candidates];
        self.draft(Kernel::SampleKept, params, self.n_partials(), &buffers)
    }

    fn finish(&self) -> Draft {
        let s = self.sequence;
        let params = params::SampleFinish {
            zero: 0,
            n_partials: self.n_partials(),
            history_a_slot: s.history_a_slot() as u32,
            stops_a_slot: MAX_STOP_IDS as u32,
        };
        let buffers = [&s.state, &s.candidates, &s.tokens, s.ring.words(), &s.history, &s.stops, &s.tripped];
        self.draft(Kernel::SampleFinish, params, 1, &buffers)
    }
}

/// How the rows of a burst draw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Draws {
    /// Some row adjusts nothing.
    pub(crate) plain: bool,
    /// Some row adjusts its logits.
    pub(crate) adjusted: bool,
    /// Some row filters its ids.
    pub(crate) filtered: bool,
}

impl Draws {
    /// Those of rows that draw as told.
    pub(crate) fn of<'a>(rows: impl IntoIterator<Item = &'a Sampling>) -> Self {
        rows.into_iter().fold(Draws::default(), |draws, sampling| Draws {
            plain: draws.plain || sampling.is_plain(),
            adjusted: draws.adjusted || !sampling.is_plain(),
            filtered: draws.filtered || sampling.filters(),
        })
    }
}

/// `RowEntry::how` of a row.
pub(crate) fn how(sampling: &Sampling, masked: bool) -> u32 {
    let adjusted = if sampling.is_plain() { 0 } else { ADJUSTED };
    let filtered = if sampling.filters() { FILTERED } else { 0 };
    adjusted | filtered | if masked { MASKED } else { 0 }
}

/// The sampler's steps. Each does nothing for rows that draw in another way.
pub(crate) struct Sampler {
    /// `sample`, then `sample_finish`.
    plain: Vec<Step>,
    /// `sample_adjust`, then `sample_filter` and `sample_kept`; made when first asked for.
    chain: Option<Vec<Step>>,
}

impl Sampler {
    /// From the steps of the plan's `sample` list.
    pub(crate) fn new(plain: Vec<Step>) -> Self {
        Sampler { plain, chain: None }
    }

    /// Binds them anew, after something they are bound to was.
    ///
    /// # Errors
    /// `OutOfDeviceMemory` where the parameters do not fit.
    pub(crate) fn bind(gpu: &Gpu, bound: &Bound<'_>) -> Result<Self> {
        Ok(Self::new(bind(gpu, &bound.plain())?))
    }

    /// Makes the steps that `draws` need.
    ///
    /// # Errors
    /// `OutOfDeviceMemory` where the parameters do not fit.
    pub(crate) fn prepare(&mut self, gpu: &Gpu, bound: &Bound<'_>, draws: Draws) -> Result<()> {
        if draws.adjusted && self.chain.is_none() {
            self.chain = Some(bind(gpu, &[bound.adjust(), bound.filter(), bound.kept()])?);
        }
        Ok(())
    }

    /// The steps of one draw, which were prepared.
    pub(crate) fn steps(&self, draws: Draws) -> impl Iterator<Item = &Step> {
        let chain: &[Step] = self.chain.as_deref().unwrap_or_default();
        let chain = match draws {
            Draws { adjusted: false, .. } => &chain[..0],
            Draws { filtered: false, .. } => &chain[..chain.len().min(1)],
            _ => chain,
        };
        let (sample, finish) = self.plain.split_at(1);
        sample[..usize::from(draws.plain)].iter().chain(chain).chain(finish)
    }
}

/// Compiles and binds kernels of the sampler.
///
/// # Errors
/// `OutOfDeviceMemory` where the parameters do not fit.
fn bind(gpu: &Gpu, drafts: &[Draft]) -> Result<Vec<Step>> {
    let mut allocator = Allocator::new(gpu);
    let mut slots = vec![0; drafts.len() * SLOT as usize];
    for (slot, draft) in slots.chunks_exact_mut(SLOT as usize).zip(drafts) {
        slot[..draft.params.len()].copy_from_slice(&draft.params);
    }
    let uniforms = allocator.filled("sampler parameters", &slots, Usage::Uniform);
    allocator.check()?;
    Ok(drafts.iter().enumerate().map(|(i, draft)| Step::new(gpu, draft, &uniforms, i)).collect())
}
