//! Lists of work that come again: captured as a graph the second time, launched as one from then on.

use std::collections::HashMap;

use blueshift::Result;
use cudarc::driver::result::{graph, stream as calls};
use cudarc::driver::sys::{self, CUstreamCaptureMode};

use crate::errors::failed;
use crate::stream::Stream;

/// Lists that are remembered.
const MAX_LISTS: usize = 128;

/// What identifies a piece of work: launches of the same bound kernel with as many blocks, and copies between the same buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    Launch { step: u64, groups: [u32; 3] },
    Copy { from: u64, from_offset: u64, to: u64, to_offset: u64, bytes: u64 },
}

/// A graph that can be launched.
#[derive(Debug)]
struct Executable {
    raw: sys::CUgraphExec,
}

// SAFETY: the handle is used by one thread at a time, inside the lock of the driver.
unsafe impl Send for Executable {}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: whoever drops it has waited for the stream and made the context current. A failure leaves nothing to be done.
        let _ = unsafe { graph::exec_destroy(self.raw) };
    }
}

#[derive(Debug)]
struct Remembered {
    /// `None` for a list that was seen once.
    executable: Option<Executable>,
    last_used: u64,
}

/// The lists of work that were seen last.
#[derive(Debug)]
pub(crate) struct Graphs {
    stream: Stream,
    /// Takes down what is captured; runs nothing.
    capture: Stream,
    lists: HashMap<Vec<Entry>, Remembered>,
    clock: u64,
}

impl Graphs {
    pub(crate) fn new(stream: &Stream) -> Result<Self> {
        let capture = Stream::new(stream.device())?;
        Ok(Graphs { stream: stream.clone(), capture, lists: HashMap::new(), clock: 0 })
    }

    /// Runs a list, which `issue` puts into a stream.
    pub(crate) fn run(&mut self, list: Vec<Entry>, issue: impl Fn(&Stream) -> Result<()>) -> Result<()> {
        self.clock += 1;
        let last_used = self.clock;
        match self.lists.get_mut(&list) {
            None => {
                self.make_room()?;
                self.lists.insert(list, Remembered { executable: None, last_used });
                issue(&self.stream)
            }
            Some(remembered) => {
                remembered.last_used = last_used;
                let executable = match &mut remembered.executable {
                    Some(executable) => executable,
                    none => none.insert(capture(&self.capture, issue)?),
                };
                // SAFETY: graph and stream exist. What the graph uses does, too: the list names it, so its owner is alive.
                unsafe { graph::launch(executable.raw, self.stream.raw()) }.map_err(|e| failed("launching a graph", e))
            }
        }
    }

    /// Forgets the list that was not used for longest, where there are too many.
    fn make_room(&mut self) -> Result<()> {
        while self.lists.len() >= MAX_LISTS {
            let oldest = self.lists.iter().min_by_key(|(_, remembered)| remembered.last_used);
            let Some(list) = oldest.map(|(list, _)| list.clone()) else { break };
            if self.lists[&list].executable.is_some() {
                self.stream.synchronize()?;
            }
            self.lists.remove(&list);
        }
        Ok(())
    }
}

impl Drop for Graphs {
    fn drop(&mut self) {
        // Waits and makes the context current; where the device is lost there is nothing to wait for.
        let _ = self.stream.synchronize();
        self.lists.clear();
    }
}

fn capture(stream: &Stream, issue: impl Fn(&Stream) -> Result<()>) -> Result<Executable> {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream exists and captures nothing else.
    unsafe { calls::begin_capture(stream.raw(), mode) }.map_err(|e| failed("beginning a graph", e))?;
    let issued = issue(stream);
    // SAFETY: the capture was begun above, by this thread.
    let captured = unsafe { calls::end_capture(stream.raw()) }.map_err(|e| failed("ending a graph", e));
    let captured = captured?;
    let instantiate = |()| {
        // SAFETY: the graph was captured above.
        let executable = unsafe { graph::instantiate(captured, sys::CUgraphInstantiate_flags(0)) };
        executable.map_err(|e| failed("making a graph executable", e))
    };
    let executable = issued.and_then(instantiate);
    // SAFETY: it is not needed once it was made executable, or where it is not whole.
    let _ = unsafe { graph::destroy(captured) };
    Ok(Executable { raw: executable? })
}
