//! Steps of a plan, ready to be recorded: a bound kernel and its grid.

use std::sync::Arc;

use super::device::Gpu;
use super::driver::{Bound, Buffer, Draft, Recorder, Submission};
use super::tally::Tally;
use super::timing::{Times, Watch};
use crate::error::Result;
use crate::plan::{PAGE, Tag};

/// Workgroups a dimension may have.
const MAX_GROUPS: u32 = 65535;

/// How many workgroups a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// `[x, rows, 1]`
    Rows {
        /// Workgroups a row.
        x: u32,
    },
    /// `[x, rows * vectors, 1]`
    Vectors {
        /// Workgroups a vector.
        x: u32,
        /// Vectors a row.
        vectors: u32,
    },
    /// `[x, y, rows * vectors]`
    Picks {
        /// `x * y` workgroups a vector.
        x: u32,
        /// See `x`.
        y: u32,
        /// Vectors a row.
        vectors: u32,
    },
    /// `[x, y, ceil(rows / tile)]`
    Tiles {
        /// `x * y` workgroups a tile.
        x: u32,
        /// See `x`.
        y: u32,
        /// Rows of a tile.
        tile: u32,
    },
    /// `[units of the row that sees most, y, rows]`
    Units {
        /// Workgroups a unit.
        y: u32,
        /// Positions a row sees, 0 for all.
        window: usize,
        /// Chunks of a unit.
        chunks_per_unit: usize,
    },
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

/// One dispatch.
#[derive(Debug)]
pub(crate) struct Step {
    bound: Bound,
    grid: Grid,
    tag: Arc<Tag>,
}

impl Step {
    /// Binds a draft whose parameters lie in slot `slot` of `uniforms`.
    pub(crate) fn new(gpu: &Gpu, draft: &Draft, uniforms: &Buffer, slot: usize) -> Self {
        let bound = gpu.driver().bind(draft, uniforms, slot);
        Step { bound, grid: draft.grid, tag: Arc::new(draft.tag.clone()) }
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
    recorder: Box<dyn Recorder>,
    /// Who wants to know its times.
    watch: Option<Watch>,
}

impl Commands {
    /// Work for one submit that nobody times.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        Self::watched(gpu, false, None)
    }

    /// Work for one submit, or for a submit a dispatch where `split` is set; timed where there is a watch.
    pub(crate) fn watched(gpu: &Gpu, split: bool, watch: Option<Watch>) -> Self {
        let recorder = gpu.driver().recorder(watch.as_ref().map(|watch| watch.timed));
        Commands { gpu: gpu.clone(), split, recorder, watch }
    }

    /// Records `steps` for the rows at `positions`.
    pub(crate) fn record<'a>(&mut self, steps: impl IntoIterator<Item = &'a Step>, positions: &[usize]) {
        let mut dispatches = 0;
        for step in steps {
            dispatches += 1;
            self.recorder.dispatch(&step.bound, step.grid.size(positions), &step.tag);
            if self.split {
                self.recorder.flush();
            }
        }
        Tally::add(&self.gpu.tally().dispatches, dispatches);
    }

    /// Copies bytes to the beginning of another buffer; offsets and sizes are multiples of 4.
    pub(crate) fn copy(&mut self, from: &Buffer, offset: u64, to: &Buffer, bytes: u64) {
        self.copy_to(from, offset, to, 0, bytes);
    }

    /// Copies bytes to another buffer; offsets and sizes are multiples of 4.
    pub(crate) fn copy_to(&mut self, from: &Buffer, offset: u64, to: &Buffer, to_offset: u64, bytes: u64) {
        self.recorder.copy(from, offset, to, to_offset, bytes);
    }

    /// Submits; nobody asks for times.
    pub(crate) fn submit(self) -> Submission {
        self.recorder.submit().submission
    }

    /// Submits, and asks for the times where it is timed.
    ///
    /// # Errors
    /// `UnexpectedReadback` where times may not be read.
    pub(crate) fn submit_timed(self) -> Result<(Submission, Option<Times>)> {
        let submitted = self.recorder.submit();
        let times = match (self.watch, submitted.spans) {
            (Some(watch), Some(spans)) => Some(watch.times(&self.gpu, spans)?),
            _ => None,
        };
        Ok((submitted.submission, times))
    }
}
