//! Times of what a backend submits, gathered by phase.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use super::device::Gpu;
use super::driver::{Spans, Timed, Waiting};
use crate::engine::backend::{Readback, Timing};
use crate::engine::ledger::{Ledger, Phase, Sum};
use crate::error::Result;

/// Timed submits whose times nobody has waited for yet.
const MAX_PENDING: usize = 4;

/// Where times are gathered.
#[derive(Clone, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub(crate) fn add_tokens(&self, phase: Phase, n: usize) {
        lock(&self.0).add_tokens(phase, n);
    }

    pub(crate) fn busy_ms(&self, phase: Phase) -> Option<f64> {
        lock(&self.0).busy_ms(phase)
    }
}

/// Times the submits of one backend.
pub(crate) struct Timers {
    gpu: Gpu,
    timing: Timing,
    /// Whether every dispatch is a submit of its own.
    split: bool,
    ledger: SharedLedger,
    /// Submits whose results nobody reads.
    pending: VecDeque<Times>,
}

impl Timers {
    /// Times nothing.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let (ledger, pending) = (SharedLedger::default(), VecDeque::new());
        Timers { gpu: gpu.clone(), timing: Timing::Off, split: false, ledger, pending }
    }

    /// What is timed from now on; `split` where every dispatch is a submit of its own.
    pub(crate) fn set(&mut self, timing: Timing, split: bool) {
        (self.timing, self.split) = (timing, split);
    }

    /// What was asked to be timed.
    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    /// A watch over one submit, where something is timed.
    pub(crate) fn watch(&self, phase: Phase) -> Option<Watch> {
        let each = match self.timing {
            Timing::Off => return None,
            Timing::Submits => false,
            Timing::Ops => true,
        };
        let timed = Timed { each, split: self.split };
        self.gpu.info().has_timestamps.then(|| Watch { timed, ledger: self.ledger.clone(), phase })
    }

    /// Where tokens are counted, where something is to be timed.
    pub(crate) fn ledger(&self) -> Option<&SharedLedger> {
        (self.timing != Timing::Off).then_some(&self.ledger)
    }

    /// Keeps the times of a submit whose results nobody reads; waits for the oldest where there are many.
    pub(crate) async fn keep(&mut self, times: Option<Times>) -> Result<()> {
        self.pending.extend(times);
        while self.pending.len() > MAX_PENDING {
            if let Some(oldest) = self.pending.pop_front() {
                oldest.finish().await?;
            }
        }
        Ok(())
    }

    /// The times kept so far, for a later submit to wait for.
    pub(crate) fn take_pending(&mut self) -> Vec<Times> {
        self.pending.drain(..).collect()
    }

    /// What was timed since the last call.
    pub(crate) async fn take_ledger(&mut self) -> Result<Ledger> {
        for times in self.take_pending() {
            times.finish().await?;
        }
        Ok(std::mem::take(&mut *lock(&self.ledger.0)))
    }

    /// Forgets what was timed.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.ledger = SharedLedger::default();
    }
}

/// What is to be known of one submit's times, and where they go.
pub(crate) struct Watch {
    pub(super) timed: Timed,
    ledger: SharedLedger,
    phase: Phase,
}

impl Watch {
    /// The times of a submit, which the driver gives later.
    pub(super) fn times(self, gpu: &Gpu, spans: Waiting<Result<Spans>>) -> Result<Times> {
        gpu.check_readback(Readback::Profile)?;
        Ok(Times { watch: self, gpu: gpu.clone(), spans })
    }
}

/// Times that were asked for. Dropping them forgets them.
pub(crate) struct Times {
    watch: Watch,
    gpu: Gpu,
    spans: Waiting<Result<Spans>>,
}

impl Times {
    /// Waits for the times and adds them to the ledger.
    pub(crate) async fn finish(self) -> Result<()> {
        let Times { watch, gpu, spans } = self;
        let spans = spans.await;
        gpu.check()?;
        let Spans { spans, ns_per_tick } = spans?;
        let mut ledger = lock(&watch.ledger.0);
        for span in spans {
            ledger.note_ticks(&span.ticks, ns_per_tick);
            // A device whose clock was set anew in between gives no time.
            let [from, to] = span.ticks;
            let ms = to.saturating_sub(from) as f64 * ns_per_tick / 1e6;
            match &span.tag {
                Some(tag) => ledger.add_steps(watch.phase, tag, Sum { count: 1, ms }),
                None => ledger.add_submit(watch.phase, ms),
            }
        }
        Ok(())
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|e| e.into_inner())
}
