//! `blueshift bench`: prefill and decode rates beside the device's floor.

use anyhow::{Context, Result};
use blueshift::engine::{Engine, Floor, GenerateOptions, Timings};
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::open::{ModelArgs, load};

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt whose prefill is measured.
    #[arg(long, default_value_t = 512)]
    pp: usize,
    /// Tokens decoded.
    #[arg(long, default_value_t = 128)]
    tg: usize,
    /// Tokens in the cache before decoding starts.
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Runs; medians are reported.
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Tokens drawn between two reads of the device.
    #[arg(long, default_value_t = 16)]
    burst: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was measured; rates are medians.
#[derive(Serialize)]
struct Report {
    model: String,
    backend: String,
    adapter: String,
    exact: bool,
    pp: usize,
    tg: usize,
    depth: usize,
    burst: usize,
    reps: usize,
    prefill_tok_s: f64,
    decode_tok_s: f64,
    decode_ms_token: f64,
    dispatches_token: f64,
    submits_token: f64,
    bytes_token: u64,
    floor: Floor,
    floor_ms_token: f64,
    fraction_of_floor: f64,
}

pub(crate) fn main(args: Args) -> Result<()> {
    anyhow::ensure!(args.pp >= 1 && args.tg >= 2 && args.reps >= 1, "--pp and --reps are at least 1, --tg at least 2");
    let mut engine = load(&args.model)?;
    let floor = pollster::block_on(engine.measure_floor())?;
    let prompt = some_ids(args.pp, engine.info().n_vocab);
    let before = some_ids(args.depth.max(1), engine.info().n_vocab);
    // The first run of each warms up and is not counted.
    let mut prefill = Vec::new();
    for _ in 0..=args.reps {
        engine.clear();
        let t = run(&mut engine, &prompt, 1, args.burst)?;
        prefill.push(args.pp as f64 / t.first_token_ms * 1e3);
    }
    let mut decode = Vec::new();
    let counted = engine.counters();
    for _ in 0..=args.reps {
        let t = run(&mut engine, &before, args.tg + 1, args.burst)?;
        decode.push(t.decode_tokens as f64 / t.decode_ms * 1e3);
    }
    let counters = engine.counters() - counted;
    // Prompts are cached after the first run, so nearly all work is decoding.
    let tokens = ((args.reps + 1) * (args.tg + 1)) as f64;
    let decode_tok_s = median(&mut decode[1..]);
    let info = engine.info();
    let dispatches_token = (counters.dispatches as f64 / tokens).round();
    let floor_ms_token = floor.milliseconds(info.bytes_per_token, dispatches_token);
    let report = Report {
        model: info.name.clone(),
        backend: info.backend.clone(),
        adapter: info.adapter.clone(),
        exact: info.exact,
        pp: args.pp,
        tg: args.tg,
        depth: args.depth,
        burst: args.burst,
        reps: args.reps,
        prefill_tok_s: median(&mut prefill[1..]),
        decode_tok_s,
        decode_ms_token: 1e3 / decode_tok_s,
        dispatches_token,
        submits_token: counters.submits as f64 / tokens,
        bytes_token: info.bytes_per_token,
        floor_ms_token,
        fraction_of_floor: floor_ms_token * decode_tok_s / 1e3,
        floor,
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

fn print(r: &Report) {
    println!("{} on {} ({}){}", r.model, r.backend, r.adapter, if r.exact { "" } else { ", not exact" });
    println!("prefill {:>6} tokens   {:>10.1} tok/s", r.pp, r.prefill_tok_s);
    println!("decode  {:>6} tokens   {:>10.1} tok/s   {:.3} ms a token, depth {}", r.tg, r.decode_tok_s, r.decode_ms_token, r.depth);
    println!("a token: {} dispatches, {:.3} submits, {:.1} MB of weights", r.dispatches_token, r.submits_token, r.bytes_token as f64 / 1e6);
    println!(
        "floor: {:.1} GB/s, {:.2} µs a dispatch: {:.3} ms a token; reached {:.1} %",
        r.floor.bytes_per_second / 1e9,
        r.floor.seconds_per_dispatch * 1e6,
        r.floor_ms_token,
        r.fraction_of_floor * 100.0
    );
}

fn run(engine: &mut Engine, prompt: &[u32], max_tokens: usize, burst: usize) -> Result<Timings> {
    let options = GenerateOptions { max_tokens, burst, ignore_eos: true, ..Default::default() };
    let mut generation = engine.start(prompt, options)?;
    while pollster::block_on(engine.next(&mut generation))?.is_some() {}
    Ok(generation.finish().context("the generation has no end")?.timings)
}

/// Ids spread over the vocabulary, the same on every run.
fn some_ids(n: usize, n_vocab: usize) -> Vec<u32> {
    (0..n as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % n_vocab as u64) as u32).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
