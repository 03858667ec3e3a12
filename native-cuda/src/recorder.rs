//! Work being recorded: launches and copies, put into the stream when they are submitted.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use blueshift::gpu::Tally;
use blueshift::gpu::driver::{Bound, Buffer, Draft, Driver, Handle, Recorder, Span, Spans, Submitted, Timed, Waiting};
use blueshift::plan::Tag;
use blueshift::{Error, Result};
use cudarc::driver::result::launch_kernel;
use cudarc::driver::sys::CUdeviceptr;

use crate::commands::Command;
use crate::driver::CudaDriver;
use crate::errors::failed;
use crate::graph::Entry;
use crate::memory::{Memory, copy};
use crate::modules::Loading;
use crate::stream::{Event, Stream};

/// Pointers a kernel has at most.
const MAX_POINTERS: usize = 15;
/// Pieces of work from which on a list is worth a graph.
const SHORTEST_GRAPH: usize = 4;

/// A kernel with its parameters and buffers.
#[derive(Debug)]
pub(crate) struct Step {
    /// A number that no other step of the process ever has.
    id: u64,
    kernel: Loading,
    params: Vec<u8>,
    /// By ascending binding.
    pointers: Vec<CUdeviceptr>,
    // Held for the pointers' sake.
    _buffers: Vec<Buffer>,
}

impl Step {
    pub(crate) fn new(draft: &Draft, kernel: Loading) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let buffers = draft.buffers();
        assert!(buffers.len() <= MAX_POINTERS, "{} has {} buffers", draft.kernel.name(), buffers.len());
        let pointers = buffers.iter().map(|buffer| buffer.own::<Memory>().pointer()).collect();
        let params = draft.params.clone();
        Step { id: NEXT.fetch_add(1, Relaxed), kernel, params, pointers, _buffers: buffers }
    }

    /// Launches the kernel, once it is there.
    fn launch(&self, stream: &Stream, groups: [u32; 3]) -> Result<()> {
        let function = self.kernel.wait().as_ref().map_err(|reason| Error::Device { reason: reason.clone() })?;
        let mut arguments = [std::ptr::null_mut::<c_void>(); MAX_POINTERS + 1];
        arguments[0] = self.params.as_ptr().cast_mut().cast();
        for (argument, pointer) in arguments[1..].iter_mut().zip(&self.pointers) {
            *argument = std::ptr::from_ref(pointer).cast_mut().cast();
        }
        let (grid, block) = ((groups[0], groups[1], groups[2]), (function.threads, 1, 1));
        // SAFETY: parameters and pointers are those of the kernel's interface, which tests compare with its twin's; the driver copies them
        // before it returns. The buffers are held by the step and wait for the stream when they are dropped.
        unsafe { launch_kernel(function.raw, grid, block, function.shared_bytes, stream.raw(), &mut arguments) }
            .map_err(|e| failed("launching a kernel", e))
    }
}

impl Command {
    fn entry(&self) -> Entry {
        match self {
            Command::Dispatch { step, groups, .. } => Entry::Launch { step: step.own::<Step>().id, groups: *groups },
            Command::Copy { from, from_offset, to, to_offset, bytes } => Entry::Copy {
                from: from.own::<Memory>().id,
                from_offset: *from_offset,
                to: to.own::<Memory>().id,
                to_offset: *to_offset,
                bytes: *bytes,
            },
        }
    }

    fn issue(&self, stream: &Stream) -> Result<()> {
        match self {
            Command::Dispatch { step, groups, .. } => step.own::<Step>().launch(stream, *groups),
            Command::Copy { from, from_offset, to, to_offset, bytes } => {
                let from = from.own::<Memory>().at(*from_offset, *bytes)?;
                copy(stream, from, to.own::<Memory>().at(*to_offset, *bytes)?, *bytes)
            }
        }
    }
}

/// The lists that are run as one: a list ends where its first kernel comes again, so that the steps of a burst are the same list, which one
/// graph replays whatever the length of the burst. A kernel that is repeated by itself is one list.
fn lists(commands: &[Command]) -> Vec<&[Command]> {
    let id = |command: &Command| match command {
        Command::Dispatch { step, .. } => Some(step.own::<Step>().id),
        Command::Copy { .. } => None,
    };
    let (mut lists, mut rest) = (Vec::new(), commands);
    while let [first, others @ ..] = rest {
        let comes_again = |command: &Command| id(first).is_some() && id(command) == id(first);
        let repeated = others.iter().take_while(|command| comes_again(command)).count();
        let period = others.iter().position(comes_again);
        let n = 1 + if repeated > 0 { repeated } else { period.unwrap_or(others.len()) };
        let (list, later) = rest.split_at(n);
        lists.push(list);
        rest = later;
    }
    lists
}

/// Events around what is timed.
struct Mark {
    tag: Option<Arc<Tag>>,
    from: usize,
    to: usize,
}

/// Work being recorded.
pub(crate) struct Commands {
    driver: CudaDriver,
    timed: Option<Timed>,
    commands: Vec<Command>,
    events: Vec<Event>,
    marks: Vec<Mark>,
}

impl Commands {
    pub(crate) fn new(driver: &CudaDriver, timed: Option<Timed>) -> Self {
        let (commands, events, marks) = (Vec::new(), Vec::new(), Vec::new());
        Commands { driver: driver.clone(), timed, commands, events, marks }
    }

    /// Puts what was recorded into the stream.
    fn run(&mut self) -> Result<()> {
        Tally::add(&self.driver.tally().submits, 1);
        let commands = std::mem::take(&mut self.commands);
        let stream = self.driver.stream().clone();
        stream.device().bind()?;
        match self.timed {
            None => self.run_all(&commands),
            Some(Timed { each: true, .. }) => self.run_each(&stream, &commands),
            Some(_) => {
                let from = self.event(&stream)?;
                self.run_all(&commands)?;
                let to = self.event(&stream)?;
                self.marks.push(Mark { tag: None, from, to });
                Ok(())
            }
        }
    }

    fn run_all(&self, commands: &[Command]) -> Result<()> {
        let mut graphs = self.driver.graphs();
        for list in lists(commands) {
            let issue = |stream: &Stream| list.iter().try_for_each(|command| command.issue(stream));
            match list.len() {
                0..SHORTEST_GRAPH => issue(self.driver.stream())?,
                _ => graphs.run(list.iter().map(Command::entry).collect(), issue)?,
            }
        }
        Ok(())
    }

    fn run_each(&mut self, stream: &Stream, commands: &[Command]) -> Result<()> {
        let mut from = self.event(stream)?;
        for command in commands {
            command.issue(stream)?;
            let to = self.event(stream)?;
            if let Command::Dispatch { tag, .. } = command {
                self.marks.push(Mark { tag: Some(tag.clone()), from, to });
            }
            from = to;
        }
        Ok(())
    }

    /// The number of an event that is recorded here.
    fn event(&mut self, stream: &Stream) -> Result<usize> {
        self.events.push(Event::timed(stream)?);
        Ok(self.events.len() - 1)
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
        let outcome = self.run();
        self.driver.stream().note(outcome);
    }

    fn submit(mut self: Box<Self>) -> Submitted {
        self.flush();
        let passed = Event::now(self.driver.stream());
        let submission = match passed {
            Ok(event) => Handle::new(event),
            // Who waits for it is told of the failure.
            Err(error) => {
                self.driver.stream().note(Err(error));
                Handle::new(())
            }
        };
        let spans = self.timed.map(|_| {
            let (events, marks) = (self.events, self.marks);
            Box::pin(async move { spans(&events, &marks) }) as Waiting<_>
        });
        Submitted { submission, spans }
    }
}

/// Waits for the events and asks for their times, which count from the first one.
fn spans(events: &[Event], marks: &[Mark]) -> Result<Spans> {
    let [first, .., last] = events else { return Ok(Spans::default()) };
    last.wait()?;
    let times = events.iter().map(|event| event.nanoseconds_since(first)).collect::<Result<Vec<_>>>()?;
    let span = |mark: &Mark| Span { tag: mark.tag.clone(), ticks: [times[mark.from], times[mark.to]] };
    Ok(Spans { spans: marks.iter().map(span).collect(), ns_per_tick: 1.0 })
}
