//! Pieces of work as they are recorded.

use std::sync::Arc;

use blueshift::gpu::driver::{Bound, Buffer};
use blueshift::plan::Tag;

/// A piece of work.
pub(crate) enum Command {
    Dispatch { step: Bound, groups: [u32; 3], tag: Arc<Tag> },
    Copy { from: Buffer, from_offset: u64, to: Buffer, to_offset: u64, bytes: u64 },
}

impl Command {
    pub(crate) fn dispatch(step: &Bound, groups: [u32; 3], tag: &Arc<Tag>) -> Self {
        Command::Dispatch { step: step.clone(), groups, tag: tag.clone() }
    }

    pub(crate) fn copy(from: &Buffer, from_offset: u64, to: &Buffer, to_offset: u64, bytes: u64) -> Self {
        Command::Copy { from: from.clone(), from_offset, to: to.clone(), to_offset, bytes }
    }
}
