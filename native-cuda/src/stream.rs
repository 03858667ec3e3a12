//! The stream that all work goes through in order, and events in it.

use std::sync::{Arc, Mutex};

use blueshift::Result;
use cudarc::driver::result::{self, stream::StreamKind};
use cudarc::driver::sys::{self, CUevent_flags};

use crate::device::Device;
use crate::errors::failed;

/// A stream of a device. Clones share one.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    owned: Arc<Owned>,
}

#[derive(Debug)]
struct Owned {
    device: Device,
    stream: sys::CUstream,
    /// The first failure that no call returned.
    failure: Mutex<Option<String>>,
}

// SAFETY: the driver's functions may be called for one stream from any thread; the handle is never changed.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        device.bind()?;
        let stream = result::stream::create(StreamKind::NonBlocking).map_err(|e| failed("making a stream", e))?;
        Ok(Stream { owned: Arc::new(Owned { device: device.clone(), stream, failure: Mutex::default() }) })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.owned.device
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.owned.stream
    }

    /// Waits for all that was submitted.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.device().bind()?;
        // SAFETY: the stream exists until the last clone is dropped.
        unsafe { result::stream::synchronize(self.raw()) }.map_err(|e| failed("waiting for the GPU", e))
    }

    /// Remembers a failure that the caller cannot return, where it is the first.
    pub(crate) fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            let reason = match error {
                blueshift::Error::Device { reason } => reason,
                other => other.to_string(),
            };
            self.owned.failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(reason);
        }
    }

    /// The first failure that no call returned.
    pub(crate) fn failure(&self) -> Option<String> {
        self.owned.failure.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: nothing uses the stream any more. A failure leaves nothing to be done.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}

/// A place in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    stream: Stream,
    event: sys::CUevent,
}

// SAFETY: the driver's functions may be called for one event from any thread; the handle is never changed.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// The place behind all that was submitted so far.
    pub(crate) fn now(stream: &Stream) -> Result<Self> {
        Self::with(stream, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// The same, which knows the time when it was passed.
    pub(crate) fn timed(stream: &Stream) -> Result<Self> {
        Self::with(stream, CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(stream: &Stream, flags: CUevent_flags) -> Result<Self> {
        stream.device().bind()?;
        let event = result::event::create(flags).map_err(|e| failed("making an event", e))?;
        let event = Event { stream: stream.clone(), event };
        event.record()?;
        Ok(event)
    }

    /// Moves the event behind all that was submitted so far.
    pub(crate) fn record(&self) -> Result<()> {
        // SAFETY: event and stream exist until this is dropped.
        unsafe { result::event::record(self.event, self.stream.raw()) }.map_err(|e| failed("recording an event", e))
    }

    /// Waits until the GPU has come here.
    pub(crate) fn wait(&self) -> Result<()> {
        self.stream.device().bind()?;
        // SAFETY: the event exists until this is dropped.
        unsafe { result::event::synchronize(self.event) }.map_err(|e| failed("waiting for the GPU", e))
    }

    /// Nanoseconds from an earlier event to this one, both of which know their times and were passed.
    pub(crate) fn nanoseconds_since(&self, earlier: &Event) -> Result<u64> {
        // SAFETY: both events exist and were recorded in one stream.
        let ms = unsafe { result::event::elapsed(earlier.event, self.event) };
        Ok((f64::from(ms.map_err(|e| failed("asking for a time", e))?) * 1e6).round() as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.stream.device().bind().is_ok() {
            // SAFETY: nothing uses the event any more; the driver keeps it until it was passed.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}
