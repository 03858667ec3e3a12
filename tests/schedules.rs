//! Many sequences on one engine give each what it would get alone, bit for bit, whoever joins and leaves.

mod common;
mod scheduling;

use std::collections::BTreeMap;

use blueshift::engine::{BackendChoice, Engine, Request, Scheduler, SchedulerOptions};
use blueshift::micro::MicroModel;
use blueshift::plan::KvType;
use common::some_ids;
use scheduling::{Streams, Subject, Tally, difference, finish, models, options, run_schedule};

/// Schedules of each architecture on the CPU.
const N: u64 = 30;

fn subjects(backend: BackendChoice) -> impl Iterator<Item = Subject> {
    let subject = move |(name, model, kv): (_, MicroModel, _)| Subject {
        name,
        bytes: model.bytes(),
        kv,
        backend,
        max_tokens: 150,
    };
    models().into_iter().map(subject)
}

fn schedules(name: &str) {
    let subject = subjects(BackendChoice::Cpu).find(|subject| subject.name == name).expect("a known model");
    let mut reference = subject.reference();
    let mut tally = Tally::default();
    for seed in 0..N {
        run_schedule(&subject, &mut reference, seed, &mut tally);
    }
    assert!(tally.completions > 180 && tally.cancelled > 10, "{tally:?}");
    assert!(tally.preemptions > 3 && tally.evictions > 40, "{tally:?}");
    // Recurrent layers go on from whole pages with a saved state.
    let is_recurrent = ["qwen35", "qwen3next"].contains(&name);
    assert_eq!(tally.copies > 50, !is_recurrent, "{tally:?}");
    assert!(tally.found > if is_recurrent { 1_000 } else { 5_000 }, "{tally:?}");
    assert!(tally.most_rows >= 6);
}

#[test]
fn on_a_gpu() {
    if !common::has_adapter() {
        return;
    }
    let mut tally = Tally::default();
    // One schedule preempts, the other one has many rows.
    for (subject, seed) in subjects(BackendChoice::Gpu).zip([35, 47].into_iter().cycle()) {
        run_schedule(&subject, &mut subject.reference(), seed, &mut tally);
    }
    assert!(tally.completions > 40 && tally.preemptions > 3 && tally.most_rows >= 7, "{tally:?}");
}

/// Many more, the architectures side by side.
#[test]
#[ignore = "takes minutes without a GPU: for machines that have one"]
fn hundreds_on_a_gpu() {
    const EACH: u64 = 72;
    let run = |subject: Subject| {
        let (mut reference, mut tally) = (subject.reference(), Tally::default());
        (100..100 + EACH).for_each(|seed| run_schedule(&subject, &mut reference, seed, &mut tally));
        tally
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = subjects(BackendChoice::Gpu).map(|subject| scope.spawn(move || run(subject))).collect();
        assert!(running.len() as u64 * EACH >= 500);
        for running in running {
            let tally = running.join().expect("every stream is its own");
            assert!(tally.completions > 400 && tally.cancelled > 20 && tally.preemptions > 5, "{tally:?}");
        }
    });
}

/// A real model, in fewer schedules.
#[test]
fn smollm2() {
    let Some(path) = common::model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let bytes = std::fs::read(path).expect("the file is read");
    let subject = Subject { name: "SmolLM2", bytes, kv: KvType::F16, backend: BackendChoice::Cpu, max_tokens: 60 };
    let mut reference = subject.reference();
    let mut tally = Tally::default();
    for seed in [0, 1, 2, 3, 6, 7, 8] {
        run_schedule(&subject, &mut reference, seed, &mut tally);
    }
    assert!(tally.completions > 50 && tally.cancelled > 3 && tally.preemptions > 0, "{tally:?}");
    assert!(tally.found > 1_000 && tally.copies > 10 && tally.evictions > 10 && tally.most_rows >= 7, "{tally:?}");
}

/// The canary: where one request's prompt has another token, its stream is not that of the prompt it should have had, and the others' are theirs.
#[test]
fn a_flipped_token_is_seen_in_its_own_stream_only() {
    for subject in subjects(BackendChoice::Cpu) {
        let mut reference = subject.reference();
        for flipped in 0..3 {
            let engine = subject.engine(2, None);
            let found = streams_that_differ(engine, &mut reference, flipped);
            assert_eq!(found, [flipped], "{}", subject.name);
        }
    }
}

/// Runs requests of which one has a prompt with a token flipped; which streams are not those of the requests as they should have been.
fn streams_that_differ(engine: Engine, reference: &mut Engine, flipped: usize) -> Vec<usize> {
    let mut scheduler =
        Scheduler::new(engine, SchedulerOptions { chunk: 16, ..Default::default() }).expect("a scheduler");
    let (mut requests, mut streams) = (BTreeMap::new(), Streams::new());
    for i in 0..3 {
        let prompt = &some_ids(70 + i, 280)[i..];
        let request = Request { keep_logits: true, ..Request::new(prompt, options(12, i as u64)) };
        let mut sent = request.clone();
        sent.prompt[20] ^= u32::from(i == flipped);
        requests.insert(scheduler.submit(sent).expect("a request"), (i, request));
    }
    finish(&mut scheduler, &mut streams);
    let differs = |(id, stream)| {
        let (i, request) = &requests[id];
        difference(reference, request, 0, stream).map(|_| *i)
    };
    streams.iter().map(|((id, _), stream)| (id, stream)).filter_map(differs).collect()
}

#[test]
fn llama() {
    schedules("llama");
}

#[test]
fn llama_with_a_q8_0_cache() {
    schedules("llama, q8_0 cache");
}

#[test]
fn gemma3() {
    schedules("gemma3");
}

#[test]
fn qwen3() {
    schedules("qwen3");
}

#[test]
fn qwen3moe() {
    schedules("qwen3moe");
}

#[test]
fn qwen35() {
    schedules("qwen35");
}

#[test]
fn qwen3next() {
    schedules("qwen3next");
}
