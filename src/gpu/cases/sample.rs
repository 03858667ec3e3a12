//! `sample`: the drawn token, and the state it leaves.

use super::bench::Bench;
use super::{CaseResult, Fill};
use crate::error::Result;
use crate::gpu::Gpu;
use crate::gpu::params::State;
use crate::plan::{BufferId, Op, Shape};
use crate::sample::{Sampling, draw};

const LOGITS: BufferId = BufferId(0);
/// A position, and the ring slot in use.
const POSITION: u32 = 1000;
const STEP: u32 = 3;

/// Rows of logits that are no plain random row.
enum Row {
    Random,
    /// The largest value at several ids, in several workgroups.
    Ties,
    /// All the same: noise alone decides.
    Flat,
    /// Zeros of both signs and numbers below.
    Zeros,
}

pub(super) async fn run(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    // one; fewer than a lane's; one workgroup and one more; a real vocabulary
    for n_vocab in [1, 3, 1024, 1025, 49152] {
        for (name, row) in [("random", Row::Random), ("ties", Row::Ties), ("flat", Row::Flat), ("zeros", Row::Zeros)] {
            let logits = row.logits(n_vocab);
            for (temperature, seed) in [(0.0, 0), (0.8, 7), (1.5, u64::MAX - 5)] {
                let sampling = Sampling { temperature, seed };
                let case = format!("{n_vocab} logits, {name}, temperature {temperature}");
                results.push(sample_case(gpu, &logits, sampling, case).await?);
            }
        }
    }
    Ok(())
}

impl Row {
    fn logits(&self, n: usize) -> Vec<f32> {
        let mut logits = Fill::Uniform(10.0).values("logits", n);
        match self {
            Row::Random => {}
            Row::Ties => logits.iter_mut().skip(n / 3).step_by(701).for_each(|l| *l = 50.0),
            Row::Flat => logits.fill(1.0),
            Row::Zeros => logits.iter_mut().enumerate().for_each(|(i, l)| *l = [-1.0, -0.0, 0.0][i % 3]),
        }
        logits
    }
}

async fn sample_case(gpu: &Gpu, logits: &[f32], sampling: Sampling, case: String) -> Result<CaseResult> {
    let mut bench = Bench::new(gpu, vec![Shape::F32 { width: logits.len() }]);
    bench.plan.n_vocab = logits.len();
    let mut table = bench.table(1).await?;
    let instance = table.instance(1, &[&[Op::Sample { logits: LOGITS }]]).await?;
    let factor = sampling.inverse_temperature();
    instance.set(LOGITS, logits);
    instance.set_state(State {
        position: POSITION,
        fed: 1,
        step: STEP,
        greedy: u32::from(factor.is_none()),
        inverse_temperature: factor.unwrap_or(1.0),
        seed_low: sampling.seed as u32,
        seed_high: (sampling.seed >> 32) as u32,
        unused: 0,
    });
    instance.run(0, 1, 0);
    let token = draw(logits, sampling, POSITION + 1);
    let mut found = instance.read(&table.sequence.ring, STEP as usize + 1).await?;
    found.extend(instance.read(&table.sequence.state, 3).await?);
    let mut wanted = vec![0; STEP as usize];
    wanted.extend([token, POSITION + 1, 1, STEP + 1]);
    Ok(CaseResult::compare("sample", case, &found, &wanted))
}
