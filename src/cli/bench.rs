//! `blueshift bench`: prefill and decode rates beside the device's floor.

use crate::engine::{BatchBenchOptions, BenchOptions, BenchReport, SchedulerOptions, bench_batches};
use anyhow::Result;
use clap::Args as ClapArgs;

use super::open::{ModelArgs, load, load_on, open_gpu};
use super::run::FlowArgs;

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
    #[command(flatten)]
    flow: FlowArgs,
    /// Decode this many sequences at once, for each of these numbers, instead of one.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["in_flight", "readback_delay", "profile"])]
    batch: Vec<usize>,
    /// Milliseconds that results are held back, as by a browser that looks for them rarely.
    #[arg(long, default_value_t = 0.0)]
    readback_delay: f64,
    /// Tell where the time goes, by operation.
    #[arg(long)]
    profile: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> Result<()> {
    if !args.batch.is_empty() {
        return batches(&args);
    }
    let mut engine = if args.readback_delay > 0.0 {
        let gpu = open_gpu(args.model.backend, args.model.adapter.as_deref())?;
        if let Some(gpu) = &gpu {
            gpu.delay_readbacks(args.readback_delay);
        }
        load_on(&args.model, gpu, 1)?
    } else {
        load(&args.model)?
    };
    let Args { pp, tg, depth, reps, profile, flow: FlowArgs { burst, in_flight }, .. } = args;
    let options = BenchOptions { pp, tg, depth, reps, burst, in_flight, profile };
    let report = pollster::block_on(engine.bench(options))?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Measures steps of several sequences.
fn batches(args: &Args) -> Result<()> {
    let most = args.batch.iter().copied().max().unwrap_or(1);
    let ctx = args.model.ctx.or(Some(args.depth.max(1) + args.tg + most));
    let engine = load_on(&ModelArgs { ctx, ..args.model.clone() }, None, most)?;
    let scheduler = SchedulerOptions { burst: args.flow.burst, max_waiting: most, ..Default::default() };
    let options =
        BatchBenchOptions { sizes: args.batch.clone(), tg: args.tg, depth: args.depth, reps: args.reps, scheduler };
    let report = pollster::block_on(bench_batches(engine, options))?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    let r = &report;
    println!("{} on {} ({}){}", r.model, r.backend, r.adapter, if r.exact { "" } else { ", not exact" });
    println!("{} tokens a sequence, depth {}, {:.1} MB of weights a step", r.tg, r.depth, r.bytes_step as f64 / 1e6);
    println!("sequences   aggregate tok/s   each tok/s   ms a step   against one   floor ms");
    for row in &r.rows {
        println!(
            "{:>9}   {:>15.1}   {:>10.1}   {:>9.3}   {:>11.2}   {:>8.3}",
            row.sequences, row.tok_s, row.each_tok_s, row.step_ms, row.against_one, row.floor_ms
        );
    }
    Ok(())
}

fn print(r: &BenchReport) {
    let BenchOptions { pp, tg, depth, .. } = r.options;
    println!("{} on {} ({}){}", r.model, r.backend, r.adapter, if r.exact { "" } else { ", not exact" });
    println!("prefill {pp:>6} tokens   {:>10.1} tok/s", r.prefill_tok_s);
    println!(
        "decode  {tg:>6} tokens   {:>10.1} tok/s   {:.3} ms a token, depth {depth}",
        r.decode_tok_s,
        1e3 / r.decode_tok_s
    );
    let megabytes = r.bytes_token as f64 / 1e6;
    println!(
        "a token: {} dispatches, {:.3} submits, {megabytes:.1} MB of weights",
        r.dispatches_token, r.submits_token
    );
    println!(
        "at most {} steps a submit and {} submits in flight; {:.2} ms from submit to token",
        r.longest_burst, r.deepest, r.latency_ms
    );
    if let (Some(busy), Some(gap)) = (r.gpu_ms_token, r.gap_ms_token) {
        println!("the device is busy for {busy:.3} ms a token and does nothing for {gap:.3} ms");
    }
    println!(
        "floor: {:.1} GB/s, {:.2} µs a dispatch: {:.3} ms a token; reached {:.1} %",
        r.floor.bytes_per_second / 1e9,
        r.floor.seconds_per_dispatch * 1e6,
        r.floor_ms_token,
        r.fraction_of_floor * 100.0
    );
    if let Some(profile) = &r.profile {
        print!("\n{profile}");
    }
}
