//! Command encoders: dispatches in as few compute passes as may be, copies between them.

use std::sync::Arc;

use super::timing::Watch;
use super::{BoundStep, WebGpu};
use crate::gpu::driver::{Bound, Buffer, Recorder, Submission, Submitted, Timed};
use crate::gpu::tally::Tally;
use crate::plan::Tag;

/// Work being encoded.
pub(super) struct Commands {
    gpu: WebGpu,
    encoder: wgpu::CommandEncoder,
    /// The compute pass that is open, if one is.
    pass: Option<wgpu::ComputePass<'static>>,
    /// What times it, where something does.
    watch: Option<Watch>,
}

impl Commands {
    pub(super) fn new(gpu: &WebGpu, timed: Option<Timed>) -> Self {
        let watch = timed.map(|timed| Watch::new(gpu, timed));
        Commands { gpu: gpu.clone(), encoder: encoder(gpu), pass: None, watch }
    }
}

impl Recorder for Commands {
    fn dispatch(&mut self, step: &Bound, [x, y, z]: [u32; 3], tag: &Arc<Tag>) {
        let step: &BoundStep = step.own();
        let pass = self.pass.get_or_insert_with(|| match &mut self.watch {
            Some(watch) => watch.begin_pass(&mut self.encoder),
            None => self.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime(),
        });
        pass.set_pipeline(&step.pipeline);
        pass.set_bind_group(0, &step.bind_group, &[]);
        pass.dispatch_workgroups(x, y, z);
        if self.watch.as_mut().is_some_and(|watch| watch.dispatched(pass, tag)) {
            self.pass = None;
        }
    }

    fn copy(&mut self, from: &Buffer, from_offset: u64, to: &Buffer, to_offset: u64, bytes: u64) {
        self.pass = None;
        self.encoder.copy_buffer_to_buffer(from.own(), from_offset, to.own(), to_offset, bytes);
    }

    fn flush(&mut self) {
        self.pass = None;
        let recorded = std::mem::replace(&mut self.encoder, encoder(&self.gpu));
        submit(&self.gpu, recorded);
    }

    fn submit(self: Box<Self>) -> Submitted {
        let Commands { gpu, mut encoder, pass, watch } = *self;
        drop(pass);
        let recorded = watch.map(|watch| watch.resolve(&mut encoder));
        let submission = submit(&gpu, encoder);
        let spans = recorded.map(|recorded| recorded.read(submission.clone()));
        Submitted { submission: Submission::new(submission), spans }
    }
}

fn submit(gpu: &WebGpu, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
    Tally::add(&gpu.inner.tally.submits, 1);
    gpu.queue().submit([encoder.finish()])
}

fn encoder(gpu: &WebGpu) -> wgpu::CommandEncoder {
    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}
