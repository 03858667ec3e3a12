//! Steps of a plan, ready to be encoded: pipeline, bind group, grid.

use std::sync::Arc;

use super::device::Gpu;
use super::params::SLOT;
use super::pipelines::Kernel;
use super::tally::Tally;
use super::timing::{Times, Watch};
use crate::error::Result;
use crate::plan::{PAGE, Tag};

/// Workgroups a dimension may have.
const MAX_GROUPS: u32 = 65535;

/// How many workgroups a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grid {
    /// `[x, rows, 1]`
    Rows { x: u32 },
    /// `[x, rows * vectors, 1]`
    Vectors { x: u32, vectors: u32 },
    /// `[x, y, rows * vectors]`
    Picks { x: u32, y: u32, vectors: u32 },
    /// `[x, y, ceil(rows / tile)]`
    Tiles { x: u32, y: u32, tile: u32 },
    /// `[units of the row that sees most, y, rows]`
    Units { y: u32, window: usize, chunks_per_unit: usize },
}

impl Grid {
    /// One workgroup for each `groups`, spread over two dimensions where one does not hold them; `tile` rows each.
    pub(crate) fn tiles(groups: u32, tile: u32) -> Self {
        let (x, y) = spread(groups);
        Grid::Tiles { x, y, tile }
    }

    /// The same for each of `vectors` experts that a row picks.
    pub(crate) fn picks(groups: u32, vectors: u32) -> Self {
        let (x, y) = spread(groups);
        Grid::Picks { x, y, vectors }
    }

    /// Workgroups for the rows at `positions`.
    fn size(self, positions: &[usize]) -> [u32; 3] {
        let rows = positions.len() as u32;
        match self {
            Grid::Rows { x } => [x, rows, 1],
            Grid::Vectors { x, vectors } => [x, rows * vectors, 1],
            Grid::Picks { x, y, vectors } => [x, y, rows * vectors],
            Grid::Tiles { x, y, tile } => [x, y, rows.div_ceil(tile)],
            Grid::Units { y, window, chunks_per_unit } => {
                let units = positions.iter().map(|p| visible_units(*p, window, chunks_per_unit));
                [units.max().unwrap_or(1) as u32, y, rows]
            }
        }
    }
}

/// `x * y` workgroups, at least `groups`.
fn spread(groups: u32) -> (u32, u32) {
    let y = groups.div_ceil(MAX_GROUPS).max(1);
    (groups.div_ceil(y), y)
}

/// Units of chunks the row at `position` sees; `window` 0 has no limit.
pub(crate) fn visible_units(position: usize, window: usize, chunks_per_unit: usize) -> usize {
    let first = if window == 0 { 0 } else { (position + 1).saturating_sub(window) };
    position / PAGE / chunks_per_unit - first / PAGE / chunks_per_unit + 1
}

/// A step before its parameters have a place on the device.
pub(crate) struct Draft {
    pub(crate) kernel: Kernel,
    /// The bytes of the kernel's `Params`.
    pub(crate) params: Vec<u8>,
    /// Binding numbers and buffers, all but the parameters.
    pub(crate) bindings: Vec<(u32, wgpu::Buffer)>,
    pub(crate) grid: Grid,
    /// What reports call it.
    pub(crate) tag: Tag,
}

/// One dispatch.
#[derive(Debug)]
pub(crate) struct Step {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    grid: Grid,
    tag: Arc<Tag>,
}

impl Step {
    /// Binds a draft whose parameters lie in slot `slot` of `uniforms`.
    pub(crate) fn new(gpu: &Gpu, draft: &Draft, uniforms: &wgpu::Buffer, slot: usize) -> Self {
        let compiled = gpu.pipelines().get(gpu, draft.kernel);
        let params =
            wgpu::BufferBinding { buffer: uniforms, offset: slot as u64 * SLOT, size: std::num::NonZeroU64::new(SLOT) };
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(params) }];
        for (binding, buffer) in &draft.bindings {
            entries.push(wgpu::BindGroupEntry { binding: *binding, resource: buffer.as_entire_binding() });
        }
        let bind_group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(draft.kernel.stem()),
            layout: &compiled.layout,
            entries: &entries,
        });
        Tally::add(&gpu.tally().bind_groups_created, 1);
        Step { pipeline: compiled.pipeline, bind_group, grid: draft.grid, tag: Arc::new(draft.tag.clone()) }
    }

    /// What reports call it.
    pub(crate) fn tag(&self) -> &Arc<Tag> {
        &self.tag
    }
}

/// Work being recorded: dispatches, copies, then one submit.
pub(crate) struct Commands {
    gpu: Gpu,
    /// Whether every dispatch is a submit of its own.
    split: bool,
    encoder: wgpu::CommandEncoder,
    /// The compute pass that is open, if one is.
    pass: Option<wgpu::ComputePass<'static>>,
    /// What times it, where something does.
    watch: Option<Watch>,
}

impl Commands {
    /// Work for one submit.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        Commands { gpu: gpu.clone(), split: false, encoder: encoder(gpu), pass: None, watch: None }
    }

    /// The same with a submit for every dispatch, where `split` is set.
    pub(crate) fn splitting(gpu: &Gpu, split: bool) -> Self {
        Commands { split, ..Self::new(gpu) }
    }

    /// The same, timed.
    pub(crate) fn watched(self, watch: Option<Watch>) -> Self {
        Commands { watch, ..self }
    }

    /// Records `steps` for the rows at `positions`.
    pub(crate) fn record<'a>(&mut self, steps: impl IntoIterator<Item = &'a Step>, positions: &[usize]) {
        let mut dispatches = 0;
        for step in steps {
            dispatches += 1;
            let [x, y, z] = step.grid.size(positions);
            let pass = self.pass.get_or_insert_with(|| match &mut self.watch {
                Some(watch) => watch.begin_pass(&mut self.encoder),
                None => self.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime(),
            });
            pass.set_pipeline(&step.pipeline);
            pass.set_bind_group(0, &step.bind_group, &[]);
            pass.dispatch_workgroups(x, y, z);
            if self.watch.as_mut().is_some_and(|watch| watch.dispatched(pass, &step.tag)) {
                self.pass = None;
            }
            if self.split {
                self.flush();
            }
        }
        Tally::add(&self.gpu.tally().dispatches, dispatches);
    }

    /// Copies bytes to the beginning of another buffer; offsets and sizes are multiples of 4.
    pub(crate) fn copy(&mut self, from: &wgpu::Buffer, offset: u64, to: &wgpu::Buffer, bytes: u64) {
        self.copy_to(from, offset, to, 0, bytes);
    }

    /// Copies bytes to another buffer; offsets and sizes are multiples of 4.
    pub(crate) fn copy_to(&mut self, from: &wgpu::Buffer, offset: u64, to: &wgpu::Buffer, to_offset: u64, bytes: u64) {
        self.pass = None;
        self.encoder.copy_buffer_to_buffer(from, offset, to, to_offset, bytes);
    }

    /// Submits what was recorded so far and goes on.
    fn flush(&mut self) {
        self.pass = None;
        let recorded = std::mem::replace(&mut self.encoder, encoder(&self.gpu));
        Tally::add(&self.gpu.tally().submits, 1);
        self.gpu.queue().submit([recorded.finish()]);
    }

    /// Submits; nothing is timed.
    pub(crate) fn submit(mut self) -> wgpu::SubmissionIndex {
        self.pass = None;
        Tally::add(&self.gpu.tally().submits, 1);
        self.gpu.queue().submit([self.encoder.finish()])
    }

    /// Submits, and asks for the times where it is timed.
    ///
    /// # Errors
    /// `UnexpectedReadback` where times may not be read, `OutOfDeviceMemory` where there is no room for them.
    pub(crate) fn submit_timed(mut self) -> Result<(wgpu::SubmissionIndex, Option<Times>)> {
        self.pass = None;
        let recorded = self.watch.take().map(|watch| watch.resolve(&mut self.encoder)).transpose()?;
        let submission = self.submit();
        let times = recorded.map(|recorded| recorded.read(submission.clone())).transpose()?;
        Ok((submission, times))
    }
}

fn encoder(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}
