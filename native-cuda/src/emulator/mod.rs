//! The CUDA kernels on the processor: a driver for tests without a GPU. What it is told is done when the call returns.

mod memory;
mod modules;

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use blueshift::gpu::driver::{
    AdapterSummary, Arrived, Bound, Buffer, Draft, Driver, DriverInfo, Handle, MAX_PART, Recorder, Span, Spans,
    Submission, Submitted, Timed, Usage, Waiting, now_ms,
};
use blueshift::gpu::{MatMulForm, Tally};
use blueshift::plan::Tag;
use blueshift::{Error, Result};

use crate::commands::Command;
use memory::Memory;
use modules::Launch;

/// A device that runs the CUDA kernels on the processor. Clones share one.
#[derive(Debug, Clone)]
pub struct Emulator {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: DriverInfo,
    tally: Tally,
    start: Instant,
    /// The first failure; held while memory is touched.
    failure: Mutex<Option<String>>,
}

/// A kernel with its parameters and buffers.
#[derive(Debug)]
struct Step {
    launch: Result<Launch, String>,
    params: Vec<u8>,
    /// By ascending binding.
    buffers: Vec<Buffer>,
}

impl Emulator {
    /// Opens it; compiles the kernels on the first call on a machine.
    ///
    /// # Errors
    /// `Device` with g++'s messages where kernels do not compile.
    pub fn open() -> Result<Self> {
        let faults: Vec<_> = modules::all().values().filter_map(|launch| launch.as_ref().err().cloned()).collect();
        if !faults.is_empty() {
            return Err(Error::Device { reason: faults.join("\n") });
        }
        let adapter = AdapterSummary {
            name: "CUDA kernels on the processor".into(),
            api: "emulator".into(),
            kind: "Cpu".into(),
            driver: String::new(),
        };
        let info = DriverInfo {
            backend: "cuda",
            adapter,
            is_software: true,
            matmul_forms: &[MatMulForm::Warps],
            max_binding: MAX_PART,
            has_timestamps: true,
        };
        let inner = Inner { info, tally: Tally::default(), start: Instant::now(), failure: Mutex::default() };
        Ok(Emulator { inner: Arc::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.inner.failure.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn run(&self, command: &Command) {
        let mut failure = self.lock();
        let outcome = match command {
            Command::Dispatch { step, groups, .. } => step.own::<Step>().run(*groups),
            Command::Copy { from, from_offset, to, to_offset, bytes } => {
                copy(from.own(), *from_offset, to.own(), *to_offset, *bytes)
            }
        };
        if let Err(reason) = outcome {
            failure.get_or_insert(reason);
        }
    }
}

impl Step {
    fn run(&self, [x, y, z]: [u32; 3]) -> Result<(), String> {
        let launch = self.launch.as_ref().map_err(String::clone)?;
        let start =
            |buffer: &Buffer| buffer.own::<Memory>().at(0, 0).map_or(std::ptr::null_mut(), |at| at.as_ptr().cast());
        let pointers: Vec<*mut c_void> = self.buffers.iter().map(start).collect();
        // SAFETY: the kernel's parameters and pointers are those of its interface, which tests compare with its twin's; the buffers are held
        // by this, and the emulator's lock keeps others away from them.
        unsafe { launch(x, y, z, self.params.as_ptr().cast(), pointers.as_ptr()) };
        Ok(())
    }
}

fn copy(from: &Memory, from_offset: u64, to: &Memory, to_offset: u64, bytes: u64) -> Result<(), String> {
    match (from.at(from_offset, bytes), to.at(to_offset, bytes)) {
        // SAFETY: both places have that many bytes, as `at` says.
        (Some(from), Some(to)) => unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), bytes as usize) },
        _ => return Err(format!("a copy of {bytes} bytes leaves a buffer")),
    }
    Ok(())
}

impl Driver for Emulator {
    fn info(&self) -> &DriverInfo {
        &self.inner.info
    }

    fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    fn buffer(&self, _label: &str, bytes: u64, _usage: Usage) -> (Buffer, Waiting<Option<String>>) {
        Tally::add(&self.inner.tally.buffers_created, 1);
        Tally::add(&self.inner.tally.buffer_bytes, bytes);
        let allocated = Memory::zeroed(bytes as usize).map_err(|e| e.to_string());
        let failed = allocated.as_ref().err().cloned();
        let memory = allocated.or_else(|_| Memory::zeroed(16).map_err(|e| e.to_string()));
        (Handle::new(memory.expect("a page can be had")), Box::pin(std::future::ready(failed)))
    }

    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) {
        let mut failure = self.lock();
        match buffer.own::<Memory>().at(offset, data.len() as u64) {
            // SAFETY: the place has that many bytes, and the lock keeps others away from it.
            Some(at) => unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at.as_ptr(), data.len()) },
            None => _ = failure.get_or_insert(format!("a write of {} bytes leaves a buffer", data.len())),
        }
    }

    fn flush(&self) {}

    fn bind(&self, draft: &Draft, _uniforms: &Buffer, _slot: usize) -> Bound {
        let name = draft.kernel.name();
        let missing = || Err(format!("the kernel {name} does not exist for CUDA"));
        let launch = modules::all().get(&name).cloned().unwrap_or_else(missing);
        let buffers = draft.buffers();
        Tally::add(&self.inner.tally.bind_groups_created, 1);
        Handle::new(Step { launch, params: draft.params.clone(), buffers })
    }

    fn recorder(&self, timed: Option<Timed>) -> Box<dyn Recorder> {
        Box::new(Commands { emulator: self.clone(), timed, commands: Vec::new(), spans: Vec::new() })
    }

    fn read(&self, staging: &Buffer, bytes: u64, _after: Option<&Submission>) -> Waiting<Result<Arrived>> {
        Tally::add(&self.inner.tally.maps, 1);
        Tally::add(&self.inner.tally.bytes_read, bytes);
        let _held = self.lock();
        let arrived = match staging.own::<Memory>().at(0, bytes) {
            // SAFETY: the place has that many bytes, and the lock keeps others away from it.
            Some(at) => {
                let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes as usize) }.to_vec();
                Ok(Arrived { bytes, at_ms: now_ms() })
            }
            None => Err(Error::Device { reason: format!("a reading of {bytes} bytes leaves its buffer") }),
        };
        Box::pin(std::future::ready(arrived))
    }

    fn failure(&self) -> Option<String> {
        self.lock().clone()
    }
}

/// Work being recorded, which runs when it is submitted.
struct Commands {
    emulator: Emulator,
    timed: Option<Timed>,
    commands: Vec<Command>,
    spans: Vec<Span>,
}

impl Commands {
    fn run(&mut self) {
        Tally::add(&self.emulator.inner.tally.submits, 1);
        let now = || self.emulator.inner.start.elapsed().as_nanos() as u64;
        let each = self.timed.is_some_and(|timed| timed.each);
        let begin = now();
        for command in self.commands.drain(..) {
            let before = now();
            self.emulator.run(&command);
            if let Command::Dispatch { tag, .. } = &command
                && each
            {
                self.spans.push(Span { tag: Some(tag.clone()), ticks: [before, now()] });
            }
        }
        if self.timed.is_some() && !each {
            self.spans.push(Span { tag: None, ticks: [begin, now()] });
        }
    }
}

impl Recorder for Commands {
    fn dispatch(&mut self, step: &Bound, groups: [u32; 3], tag: &Arc<Tag>) {
        self.commands.push(Command::dispatch(step, groups, tag));
    }

    fn copy(&mut self, from: &Buffer, from_offset: u64, to: &Buffer, to_offset: u64, bytes: u64) {
        self.commands.push(Command::copy(from, from_offset, to, to_offset, bytes));
    }

    fn flush(&mut self) {
        self.run();
    }

    fn submit(mut self: Box<Self>) -> Submitted {
        self.run();
        let spans = Spans { spans: std::mem::take(&mut self.spans), ns_per_tick: 1.0 };
        let spans: Option<Waiting<Result<Spans>>> =
            self.timed.map(|_| Box::pin(std::future::ready(Ok(spans))) as Waiting<_>);
        Submitted { submission: Handle::new(()), spans }
    }
}
