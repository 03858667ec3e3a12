//! `sample`: the drawn token, and the state it leaves; plainly, and with settings that adjust and filter.

use super::super::buffers::write;
use super::super::params::{State, state_at};
use super::super::sampler::{Bound, Draws, Sampler, how, rules};
use super::bench::{Bench, Instance, Table};
use super::{CaseResult, Fill};
use crate::error::Result;
use crate::gpu::Gpu;
use crate::micro::rng::Rng;
use crate::plan::{BufferId, Op, Shape};
use crate::sample::{Sampling, draw};

const LOGITS: BufferId = BufferId(0);
/// A position, and the ring slot in use.
const POSITION: u32 = 1000;
const STEP: u32 = 3;
/// The ring's word where nothing can be drawn.
const NO_CANDIDATE: u32 = 5 << 24;
/// Random settings a vocabulary, of the short table.
const SHORT: [(usize, usize); 4] = [(1, 2), (128, 16), (1025, 16), (49152, 3)];

/// Rows of logits that are no plain random row.
#[derive(Debug, Clone, Copy)]
enum Row {
    Random,
    /// The largest value at several ids, in several workgroups.
    Ties,
    /// All the same: noise alone decides.
    Flat,
    /// Zeros of both signs and numbers below.
    Zeros,
    /// A few values, so that every border falls among equals.
    Steps,
    /// Different values of few surprises.
    Close,
    /// Nothing can be drawn.
    Nothing,
    /// One id can be drawn.
    One,
    /// Infinities, NaN and huge numbers among others.
    Wild,
    /// From denormal to large.
    Spread,
}

/// Rows that the plain draw is compared on.
const PLAIN: [Row; 7] = [Row::Random, Row::Ties, Row::Flat, Row::Zeros, Row::Nothing, Row::One, Row::Wild];
const ALL: [Row; 10] = [
    Row::Random,
    Row::Ties,
    Row::Flat,
    Row::Zeros,
    Row::Steps,
    Row::Nothing,
    Row::One,
    Row::Wild,
    Row::Spread,
    Row::Close,
];

pub(super) async fn run(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    // one; fewer than a lane's; one workgroup and one more; a real vocabulary
    for n_vocab in [1, 3, 1024, 1025, 49152] {
        let rig = Rig::new(gpu, n_vocab).await?;
        for row in PLAIN {
            let logits = row.logits(n_vocab, "logits");
            for (temperature, seed) in [(0.0, 0), (0.8, 7), (1.5, u64::MAX - 5)] {
                let case = format!("{n_vocab} logits, {row:?}, temperature {temperature}");
                results.push(rig.case(&logits, &Sampling::new(temperature, seed), None, case).await?);
            }
        }
    }
    run_share(gpu, results).await?;
    run_random_settings(gpu, &SHORT, results).await
}

/// Masses of 2^26, 2^26 and 1: the first two are the least that has a half.
async fn run_share(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    let rig = Rig::new(gpu, 3).await?;
    for seed in 0..8 {
        let plain = Sampling::new(1.0, seed);
        for sampling in [Sampling { top_p: 0.5, ..plain.clone() }, Sampling { typical_p: 0.5, ..plain }] {
            let case = format!("half of the mass, seed {seed}, top-p {}", sampling.top_p);
            results.push(rig.case(&[0.0, 0.0, -17.5], &sampling, None, case).await?);
        }
    }
    Ok(())
}

/// Draws with random settings from rows of every kind, every third one under a mask, too, for each (vocabulary, rows).
///
/// # Errors
/// Whatever the device fails with; a difference is a result, not an error.
pub async fn run_random_settings(gpu: &Gpu, table: &[(usize, usize)], results: &mut Vec<CaseResult>) -> Result<()> {
    for &(n_vocab, rows) in table {
        let rig = Rig::new(gpu, n_vocab).await?;
        for i in 0..rows {
            let row = ALL[i % ALL.len()];
            let logits = row.logits(n_vocab, &format!("logits {i}"));
            let sampling = random_settings(&mut Rng::new(i as u64, "settings"), n_vocab);
            let shown = Sampling { biases: Vec::new(), ..sampling.clone() };
            let case = format!("{n_vocab} logits, {row:?}, {} biases, {shown:?}", sampling.biases.len());
            results.push(rig.case(&logits, &sampling, None, case.clone()).await?);
            if i % 3 == 0 {
                let mask = random_mask(&mut Rng::new(i as u64, "mask"), n_vocab);
                let allowed: u32 = mask.iter().map(|word| word.count_ones()).sum();
                let case = format!("{case}, {allowed} allowed");
                results.push(rig.case(&logits, &sampling, Some(&mask), case).await?);
            }
        }
    }
    Ok(())
}

/// One of `values`.
fn one_of<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[(rng.uniform(0.0, values.len() as f32) as usize).min(values.len() - 1)]
}

/// Ids that may be drawn: all, some, few, one or none.
fn random_mask(rng: &mut Rng, n_vocab: usize) -> Vec<u32> {
    let share = one_of(rng, &[2.0, 0.5, 0.5, 0.01, 0.0, -1.0]);
    let only = rng.uniform(0.0, n_vocab as f32) as usize;
    let mut mask = vec![0; n_vocab.div_ceil(32)];
    for id in 0..n_vocab {
        if rng.uniform(0.0, 1.0) < share || (share == 0.0 && id == only) {
            mask[id / 32] |= 1 << (id % 32);
        }
    }
    mask
}

fn random_settings(rng: &mut Rng, n_vocab: usize) -> Sampling {
    let n = n_vocab as u32;
    let n_biases = one_of(rng, &[0, 0, 3, 40, n_vocab - 1]).min(n_vocab).min(1024);
    let stride = (n_vocab / n_biases.max(1)).max(1);
    let mut bias = |i: usize| {
        let value = rng.uniform(-12.0, 12.0);
        ((i * stride) as u32, if n_biases + 1 >= n_vocab || i.is_multiple_of(3) { f32::NEG_INFINITY } else { value })
    };
    let biases = (0..n_biases).map(&mut bias).collect();
    Sampling {
        temperature: one_of(rng, &[0.0, 0.01, 0.3, 0.8, 1.0, 1.7, 100.0]),
        seed: one_of(rng, &[0, 7, 1 << 40, u64::MAX]) ^ rng.uniform(0.0, 1e6) as u64,
        top_k: one_of(rng, &[0, 0, 0, 1, 2, 40, 300, 1024, 1025, n / 2, n.saturating_sub(1), n, n + 1, u32::MAX]),
        top_p: one_of(rng, &[1.0, 1.0, 0.95, 0.9, 0.5, 0.1, 1e-6, 0.999_99]),
        min_p: one_of(rng, &[0.0, 0.0, 0.05, 0.5, 1.0, 1e-30]),
        typical_p: one_of(rng, &[1.0, 1.0, 0.95, 0.5, 0.2, 1e-6, 0.999_99]),
        repeat_penalty: one_of(rng, &[1.0, 1.0, 1.1, 2.0, 0.5]),
        frequency_penalty: one_of(rng, &[0.0, 0.0, 0.3, -0.5]),
        presence_penalty: one_of(rng, &[0.0, 0.0, 1.5, -0.7]),
        penalty_window: one_of(rng, &[64, 64, 0, 1, 1000, 4096]),
        biases,
    }
}

impl Row {
    fn logits(self, n: usize, name: &str) -> Vec<f32> {
        let mut logits = Fill::Uniform(10.0).values(name, n);
        match self {
            Row::Random => {}
            Row::Ties => logits.iter_mut().skip(n / 3).step_by(701).for_each(|l| *l = 50.0),
            Row::Flat => logits.fill(1.0),
            Row::Zeros => logits.iter_mut().enumerate().for_each(|(i, l)| *l = [-1.0, -0.0, 0.0][i % 3]),
            Row::Steps => logits.iter_mut().for_each(|l| *l = (*l / 4.0).round()),
            Row::Close => logits.iter_mut().for_each(|l| *l = 1.0 + *l * 1e-4),
            Row::Nothing => logits.iter_mut().enumerate().for_each(|(i, l)| *l = [f32::NEG_INFINITY, f32::NAN][i % 2]),
            Row::One => {
                let stays = (logits[0].to_bits() as usize) % n;
                logits.iter_mut().enumerate().filter(|(i, _)| *i != stays).for_each(|(_, l)| *l = f32::NEG_INFINITY);
            }
            Row::Wild => {
                let wild = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 1e-40, 5.0];
                logits.iter_mut().step_by(5).enumerate().for_each(|(i, l)| *l = wild[i % 7]);
            }
            Row::Spread => logits = Fill::Spread.values(name, n),
        }
        logits
    }
}

/// The sampler of one vocabulary on the device.
struct Rig {
    gpu: Gpu,
    table: Table,
    instance: Instance,
    sampler: Sampler,
    /// Tokens at positions before the drawn one.
    history: Vec<u32>,
}

impl Rig {
    async fn new(gpu: &Gpu, n_vocab: usize) -> Result<Self> {
        let mut bench = Bench::new(gpu, vec![Shape::f32(n_vocab)]);
        bench.plan.n_vocab = n_vocab;
        let mut table = bench.table(POSITION as usize + 1).await?;
        let instance = table.instance(1, &[&[Op::Sample { logits: LOGITS }]]).await?;
        let logits = instance.f32(LOGITS);
        let bound = Bound { sequence: &table.sequence, n_vocab, logits: &logits };
        let mut sampler = Sampler::bind(gpu, &bound)?;
        sampler.prepare(gpu, &bound, Draws { adjusted: true, ..Draws::default() })?;
        let mut rng = Rng::new(n_vocab as u64, "history");
        let history = (0..=POSITION).map(|_| rng.uniform(0.0, n_vocab.min(200) as f32) as u32);
        let history: Vec<u32> = history.map(|id| id.min(n_vocab as u32 - 1)).collect();
        write(gpu, &table.sequence.history, 0, bytemuck::cast_slice(&history));
        Ok(Rig { gpu: gpu.clone(), table, instance, sampler, history })
    }

    async fn case(
        &self,
        logits: &[f32],
        sampling: &Sampling,
        mask: Option<&[u32]>,
        case: String,
    ) -> Result<CaseResult> {
        let (instance, sequence) = (&self.instance, &self.table.sequence);
        instance.set(LOGITS, logits);
        instance.set_state(State { fed: 1, step: STEP, ..State::at(POSITION as usize) }.drawing(sampling));
        instance.set_how(how(sampling, mask.is_some()));
        write(&self.gpu, &sequence.masks, 0, bytemuck::cast_slice(mask.unwrap_or_default()));
        write(&self.gpu, &sequence.rules, 0, &rules(sampling));
        instance.run_steps(self.sampler.steps(Draws::of([sampling])));
        let token = draw(logits, sampling, POSITION + 1, &self.history, mask);
        let mut found = instance.read(sequence.ring.words(), STEP as usize + 1).await?;
        let state = instance.read(&sequence.state, state_at(0) as usize / 4 + 3).await?;
        found.extend(&state[state.len() - 3..]);
        found.push(instance.read(&sequence.history, POSITION as usize + 2).await?[POSITION as usize + 1]);
        let mut wanted = vec![0; STEP as usize];
        match token {
            Some(token) => wanted.extend([token, POSITION + 1, 1, STEP + 1, token]),
            // Nothing is drawn, and nothing moves but the ring.
            None => wanted.extend([NO_CANDIDATE, POSITION, 1, STEP + 1, found[found.len() - 1]]),
        }
        Ok(CaseResult::compare("sample", case, &found, &wanted))
    }
}
