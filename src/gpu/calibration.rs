//! What timing a step adds to it, measured on empty steps.

use super::backend::GpuBackend;
use super::device::Gpu;
use super::floor;
use super::recorder::{Commands, Step};
use super::timing::Timers;
use crate::engine::backend::Timing;
use crate::engine::ledger::Phase;
use crate::error::Result;

/// Empty steps of one submit, and how often both ways are compared.
const STEPS: usize = 400;
const ROUNDS: usize = 7;

impl GpuBackend {
    /// Milliseconds that a step takes longer where each is timed than where their submit is: the device finishes what it does before it writes a
    /// timestamp. The median over several comparisons of empty steps; not below 0.
    pub(crate) async fn timing_cost_ms(&self) -> Result<f64> {
        let empty = floor::empty(&self.gpu).await?;
        let mut costs = Vec::new();
        for _ in 0..ROUNDS {
            let whole = run(&self.gpu, &empty, Timing::Submits).await?;
            let apart = run(&self.gpu, &empty, Timing::Ops).await?;
            costs.push((apart - whole) / STEPS as f64);
        }
        costs.sort_by(f64::total_cmp);
        Ok(costs[ROUNDS / 2].max(0.0))
    }
}

/// Milliseconds of all steps, timed as `timing` says.
async fn run(gpu: &Gpu, step: &Step, timing: Timing) -> Result<f64> {
    let mut timers = Timers::new(gpu);
    timers.set(timing, false);
    let mut commands = Commands::watched(gpu, false, timers.watch(Phase::Decode));
    for _ in 0..STEPS {
        commands.record([step], &[0]);
    }
    let (_, times) = commands.submit_timed()?;
    timers.keep(times).await?;
    let ledger = timers.take_ledger().await?;
    Ok(ledger.busy_ms(Phase::Decode).unwrap_or_else(|| ledger.steps().map(|(_, _, sum)| sum.ms).sum()))
}
