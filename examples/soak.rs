//! Keeps a scheduler busy for a while with requests of random lengths, and tells whether anything leaks, starves or changes.
//!
//! ```sh
//! cargo run --release --example soak -- MODEL.gguf --requests 2000 --minutes 30 --backend cpu
//! ```
//! Fails where pages, device buffers or the process's memory do not come back to where they were, where tokens of one sequence lie further
//! apart than the longest step (one chunk of a prompt and one step of all rows), where a request never ends, or where an answer is not what the
//! same request gives alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use blueshift::engine::{
    BackendChoice, Engine, EventKind, GenerateOptions, LoadOptions, Request, RequestId, Scheduler, SchedulerOptions,
};
use blueshift::gguf::Source;
use blueshift::sample::Sampling;
use clap::Parser;
use pollster::block_on;

#[derive(Parser)]
struct Args {
    /// Path of a GGUF file.
    model: String,
    /// Requests in all.
    #[arg(long, default_value_t = 2000)]
    requests: usize,
    /// Minutes over which they arrive.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// `cpu` or `wgpu`.
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Sequences at once.
    #[arg(long, default_value_t = 8)]
    slots: usize,
    /// Prompt tokens a request has at most.
    #[arg(long, default_value_t = 200)]
    prompt: usize,
    /// Tokens an answer has at most.
    #[arg(long, default_value_t = 32)]
    answer: usize,
    /// Prompt tokens fed a step.
    #[arg(long, default_value_t = 32)]
    chunk: usize,
}

/// Numbers that look random (SplitMix64, Steele et al., 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// A request under way.
struct Open {
    request: Request,
    /// By completion.
    ids: Vec<Vec<u32>>,
    last_token: Vec<Option<Instant>>,
    unfinished: usize,
    submitted: Instant,
    /// Cancelled once it has drawn this many tokens.
    cancel_at: Option<usize>,
}

fn request(random: &mut Random, args: &Args, shared: &[u32], n_vocab: usize) -> Request {
    let n = 1 + random.below(args.prompt);
    let mut prompt: Vec<u32> = match random.below(3) {
        0 => shared[..n.min(shared.len())].to_vec(),
        _ => Vec::new(),
    };
    prompt.extend((prompt.len()..n).map(|_| random.below(n_vocab) as u32));
    let seed = random.below(1 << 30) as u64;
    let sampling = match random.below(4) {
        0 => Sampling::GREEDY,
        1 => Sampling { top_k: 40, top_p: 0.95, ..Sampling::new(0.8, seed) },
        2 => Sampling { repeat_penalty: 1.1, ..Sampling::new(1.0, seed) },
        _ => Sampling::new(1.2, seed),
    };
    let options = GenerateOptions { max_tokens: 1 + random.below(args.answer), sampling, ..Default::default() };
    Request { n: 1 + usize::from(random.below(8) == 0), ..Request::new(&prompt, options) }
}

/// Kilobytes of memory that the process has, where the system tells.
fn resident_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn quantile(sorted: &[Duration], q: f64) -> Duration {
    sorted.get(((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn main() -> Result<()> {
    let args = Args::parse();
    let backend = if args.backend == "cpu" { BackendChoice::Cpu } else { BackendChoice::Gpu };
    let n_ctx = Some(args.prompt + args.answer + 64);
    let load = LoadOptions { backend, n_ctx, slots: args.slots, ..Default::default() };
    let engine = block_on(Engine::load(Source::file(&args.model)?, load))?;
    let n_vocab = engine.info().n_vocab;
    let options = SchedulerOptions { chunk: args.chunk, max_waiting: args.requests * 2, ..Default::default() };
    let mut scheduler = Scheduler::new(engine, options)?;
    let mut random = Random(1);
    let shared: Vec<u32> = (0..args.prompt).map(|_| random.below(n_vocab) as u32).collect();

    let start = Instant::now();
    let every = Duration::from_secs_f64(args.minutes * 60.0 / args.requests as f64);
    let mut open: HashMap<RequestId, Open> = HashMap::new();
    let (mut gaps, mut longest_step, mut slowest) = (Vec::new(), Duration::ZERO, Duration::ZERO);
    let (mut submitted, mut ended, mut cancelled, mut early) = (0, 0, 0, None);
    let mut kept: Vec<(Request, Vec<u32>)> = Vec::new();
    while submitted < args.requests || !scheduler.is_idle() {
        while submitted < args.requests && start.elapsed() >= every * submitted as u32 {
            let request = request(&mut random, &args, &shared, n_vocab);
            let n = request.n;
            let cancel_at = (random.below(10) == 0).then(|| random.below(args.answer));
            let id = scheduler.submit(request.clone())?;
            let (ids, last_token) = (vec![Vec::new(); n], vec![None; n]);
            open.insert(id, Open { request, ids, last_token, unfinished: n, submitted: Instant::now(), cancel_at });
            submitted += 1;
        }
        if scheduler.is_idle() {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let before = Instant::now();
        let events = block_on(scheduler.step())?;
        let now = Instant::now();
        longest_step = longest_step.max(now - before);
        for event in events {
            let Some(of) = open.get_mut(&event.request) else { continue };
            match event.kind {
                EventKind::Piece(piece) => {
                    let last = of.last_token[event.completion].replace(now);
                    gaps.extend(last.map(|last| now - last));
                    of.ids[event.completion].extend(piece.ids);
                    if of.cancel_at.is_some_and(|at| of.ids[event.completion].len() > at) {
                        scheduler.cancel(event.request);
                        open.remove(&event.request);
                        cancelled += 1;
                    }
                }
                EventKind::Finished(_) => {
                    slowest = slowest.max(of.submitted.elapsed());
                    of.unfinished -= 1;
                    if of.unfinished == 0
                        && let Some(done) = open.remove(&event.request)
                    {
                        ended += 1;
                        if ended % 40 == 0 {
                            kept.push((Request { n: 1, ..done.request }, done.ids[0].clone()));
                        }
                    }
                }
                EventKind::Failed(error) => return Err(error.into()),
                EventKind::Embedded(_) => {}
            }
        }
        if early.is_none() && submitted >= args.requests / 5 {
            early = Some((resident_kb(), scheduler.engine().counters().buffers_created));
        }
    }
    ensure!(open.is_empty(), "{} requests never ended", open.len());
    let counters = scheduler.counters();
    let (early_kb, early_buffers) = early.unwrap_or_default();
    let (late_kb, late_buffers) = (resident_kb(), scheduler.engine().counters().buffers_created);
    gaps.sort();
    println!(
        "{ended} requests ended and {cancelled} were cancelled in {:.1} minutes; the slowest took {slowest:.2?}",
        start.elapsed().as_secs_f64() / 60.0
    );
    println!(
        "tokens of a sequence: p50 {:.1?}, p99 {:.1?}, most {:.1?} apart; the longest step took {longest_step:.1?}",
        quantile(&gaps, 0.5),
        quantile(&gaps, 0.99),
        quantile(&gaps, 1.0)
    );
    println!("{counters:?}");
    println!(
        "memory after a fifth and at the end: {early_kb:?} kB, {late_kb:?} kB; device buffers {early_buffers}, {late_buffers}"
    );
    ensure!(ended + cancelled == args.requests, "{} requests were lost", args.requests - ended - cancelled);
    ensure!(counters.pages.in_use == 0, "{} pages are still in use", counters.pages.in_use);
    ensure!(early_buffers == late_buffers, "device buffers were made while nothing new was asked for");
    if let (Some(early), Some(late)) = (early_kb, late_kb) {
        ensure!(late < early + early / 10 + 20_000, "memory grew from {early} to {late} kB");
    }
    ensure!(quantile(&gaps, 0.99) <= longest_step, "tokens lie further apart than the longest step");
    for (request, ids) in &kept {
        let id = scheduler.submit(request.clone())?;
        let mut alone = Vec::new();
        while !scheduler.is_idle() {
            for event in block_on(scheduler.step())? {
                if let (true, EventKind::Piece(piece)) = (event.request == id, event.kind) {
                    alone.extend(piece.ids);
                }
            }
        }
        ensure!(alone == *ids, "an answer is another one alone: {ids:?}, {alone:?}");
    }
    println!("{} answers are the same alone", kept.len());
    Ok(())
}
