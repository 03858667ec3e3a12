//! `blueshift batch`: several prompts, answered in the same steps.

use crate::engine::backend::MAX_SLOTS;
use crate::engine::{Completion, EventKind, GenerateOptions, Request, Scheduler, SchedulerOptions};
use anyhow::{Result, ensure};
use clap::Args as ClapArgs;
use serde_json::json;

use super::open::{ModelArgs, load_on};
use super::run::AnswerArgs;

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A prompt; given once for each sequence.
    #[arg(short, long, required = true)]
    prompt: Vec<String>,
    /// Seed of the draws: one for all, or one for each prompt, in the same order.
    #[arg(long, allow_negative_numbers = true)]
    seed: Vec<u64>,
    #[command(flatten)]
    answer: AnswerArgs,
    /// Print one JSON object instead of the texts.
    #[arg(long)]
    json: bool,
}

/// What a sequence gave so far.
#[derive(Default)]
struct Sequence {
    prompt_ids: Vec<u32>,
    ids: Vec<u32>,
    text: String,
    completion: Option<Completion>,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let n = args.prompt.len();
    let seeds = match args.seed[..] {
        [] => vec![0; n],
        [seed] => vec![seed; n],
        _ => args.seed.clone(),
    };
    ensure!(seeds.len() == n, "{} seeds for {n} prompts; give none, one, or one for each", seeds.len());
    let engine = load_on(&args.model, None, n.min(MAX_SLOTS))?;
    let mut sequences = Vec::new();
    for prompt in args.prompt {
        sequences.push(Sequence { prompt_ids: args.answer.prompt_ids(&engine, prompt)?, ..Default::default() });
    }
    let options = SchedulerOptions { burst: args.answer.sampling.flow.burst, max_waiting: n, ..Default::default() };
    let mut scheduler = Scheduler::new(engine, options)?;
    let mut requests = Vec::new();
    for (sequence, seed) in sequences.iter().zip(seeds) {
        let options = GenerateOptions { policy: None, ..args.answer.options(seed)? };
        requests.push(scheduler.submit(Request::new(&sequence.prompt_ids, options))?);
    }
    while !scheduler.is_idle() {
        for event in pollster::block_on(scheduler.step())? {
            let Some(at) = requests.iter().position(|request| *request == event.request) else { continue };
            match event.kind {
                EventKind::Piece(piece) => {
                    sequences[at].ids.extend(piece.ids);
                    sequences[at].text.push_str(&piece.text);
                }
                EventKind::Finished(completion) => sequences[at].completion = Some(completion),
                EventKind::Failed(error) => {
                    return Err(anyhow::Error::from(error).context(format!("prompt {}", at + 1)));
                }
                EventKind::Embedded(_) => {}
            }
        }
    }
    if args.json {
        let info = scheduler.engine().info();
        let of = |s: &Sequence| {
            let finish = s.completion.as_ref();
            json!({
                "prompt_ids": s.prompt_ids,
                "ids": s.ids,
                "text": s.text,
                "stop_reason": finish.map(|finish| finish.stop_reason),
                "timings": finish.map(|finish| finish.timings),
            })
        };
        let result = json!({
            "sequences": sequences.iter().map(of).collect::<Vec<_>>(),
            "backend": info.backend,
            "adapter": info.adapter,
            "exact": info.exact,
            "counters": scheduler.counters(),
        });
        println!("{result}");
    } else {
        for (at, sequence) in sequences.iter().enumerate() {
            println!("--- {}\n{}", at + 1, sequence.text);
        }
    }
    Ok(())
}
