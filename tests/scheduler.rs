//! What a scheduler promises besides the bits: shared prompts, fairness, limits, isolation of failures.

mod common;
mod scheduling;

use blueshift::Error;
use blueshift::engine::policy::{Guard, Reaction};
use blueshift::engine::{
    BackendChoice, Engine, EventKind, GenerateOptions, LoadOptions, Policy, Request, Scheduler, SchedulerOptions,
};
use blueshift::gguf::{self, Source};
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::some_ids;
use pollster::block_on;
use scheduling::{Streams, backends, check, collect, engine, finish, isolated, micro, models, options, run, scheduler};

#[test]
fn a_flipped_token_changes_its_own_row_only() {
    for backend in backends() {
        let run = |flipped: Option<usize>| {
            let mut scheduler = scheduler(backend, 128, 4, SchedulerOptions { chunk: 16, ..Default::default() });
            let mut streams = Streams::new();
            for row in 0..4 {
                let mut prompt = some_ids(40 + row, 280);
                prompt[row] = row as u32;
                if flipped == Some(row) {
                    prompt[20] ^= 1;
                }
                let request = Request { keep_logits: true, ..Request::new(&prompt, options(20, row as u64)) };
                scheduler.submit(request).expect("a request");
            }
            finish(&mut scheduler, &mut streams);
            let of = |stream: scheduling::Stream| (stream.ids, stream.end.expect("an end").logits);
            streams.into_values().map(of).collect::<Vec<_>>()
        };
        let expected = run(None);
        for row in 0..4 {
            let found = run(Some(row));
            let changed: Vec<_> = (0..4).filter(|at| found[*at] != expected[*at]).collect();
            assert_eq!(changed, [row], "{backend:?}");
        }
    }
}

/// A second turn feeds what is new, and gives the bits of a cold run.
#[test]
fn the_next_turn_feeds_only_what_is_new() {
    let narrow = MicroModel { n_ctx: 2400, n_layers: 1, n_heads: 2, n_kv_heads: 1, ..models().remove(0).1 };
    let bytes = narrow.bytes();
    for backend in backends() {
        let load = || engine(backend, &bytes, 2400, 2, None);
        let mut scheduler = Scheduler::new(load(), SchedulerOptions::default()).expect("a scheduler");
        let kept = |prompt: &[u32]| Request { keep_logits: true, ..Request::new(prompt, options(20, 3)) };
        let prompt = some_ids(2000, 280);
        let first = run(&mut scheduler, kept(&prompt));
        let before = scheduler.counters();
        assert_eq!(before.prefilled, 1999);
        let turn = [&prompt[..], &first.ids, &some_ids(30, 280)].concat();
        let warm = run(&mut scheduler, kept(&turn));
        // The last token drawn was never fed; the last of the prompt is fed by the first draw.
        let cached = warm.end.as_ref().expect("an end").timings.cached_tokens;
        assert_eq!(cached, 2000 + 19, "{backend:?}");
        let counters = scheduler.counters();
        assert_eq!((counters.prefilled - before.prefilled) as usize, turn.len() - 1 - cached);
        assert_eq!(counters.copies, 1);
        let cold = run(&mut Scheduler::new(load(), SchedulerOptions::default()).expect("a scheduler"), kept(&turn));
        assert_eq!(cold.end.as_ref().expect("an end").timings.cached_tokens, 0);
        assert_eq!((cold.ids, cold.end.unwrap().logits), (warm.ids, warm.end.unwrap().logits), "{backend:?}");
    }
}

#[test]
fn eight_completions_store_their_prompt_once() {
    for backend in backends() {
        let mut scheduler = scheduler(backend, 512, 8, SchedulerOptions::default());
        // Four pages and 44 tokens, of which the last is fed by each one's first draw.
        let request = Request { n: 8, keep_logits: true, ..Request::new(&some_ids(300, 280), options(12, 1)) };
        scheduler.submit(request.clone()).expect("a request");
        let (mut streams, mut most) = (Streams::new(), 0);
        while !scheduler.is_idle() {
            collect(&mut streams, block_on(scheduler.step()).expect("a step"));
            most = most.max(scheduler.counters().pages.in_use);
        }
        let counters = scheduler.counters();
        assert_eq!((counters.prefilled, counters.copies, counters.most_rows), (299, 7, 8), "{backend:?}");
        assert_eq!(most, 4 + 8);
        let mut reference = engine(BackendChoice::Cpu, &micro(), 512, 1, None);
        for ((id, completion), stream) in &streams {
            check(
                &format!("{backend:?}, {id:?}, completion {completion}"),
                &mut reference,
                &request,
                *completion,
                stream,
            );
        }
        let mut ids: Vec<_> = streams.into_values().map(|stream| stream.ids).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 8, "seeds differ");
    }
}

#[test]
fn requests_that_come_together_compute_a_common_beginning_once() {
    let mut scheduler = scheduler(BackendChoice::Cpu, 512, 4, SchedulerOptions { chunk: 64, ..Default::default() });
    let system = some_ids(200, 280);
    let mut streams = Streams::new();
    for i in 0..4 {
        let prompt = [&system[..], &[i, 5, 6, i]].concat();
        scheduler.submit(Request::new(&prompt, options(4, 1))).expect("a request");
    }
    finish(&mut scheduler, &mut streams);
    let counters = scheduler.counters();
    // The others go on in a copy of the page that the first one's prompt ends in.
    assert_eq!((counters.prefilled, counters.copies), (203 + 3 * 3, 3));
}

#[test]
fn a_long_prompt_delays_others_by_a_chunk_a_step() {
    let mut scheduler =
        scheduler(BackendChoice::Cpu, 512, 4, SchedulerOptions { chunk: 32, burst: Some(8), ..Default::default() });
    let mut streams = Streams::new();
    let short = scheduler.submit(Request::new(&[1, 2, 3], options(100, 1))).expect("a request");
    collect(&mut streams, block_on(scheduler.step()).expect("a step"));
    let long: Vec<_> = (0..2)
        .map(|i| scheduler.submit(Request::new(&some_ids(400 + i, 280)[i..], options(4, 1))).expect("a request"))
        .collect();
    let late = scheduler.submit(Request::new(&some_ids(42, 280)[2..], options(4, 1))).expect("a request");
    let mut firsts = Vec::new();
    for step in 0.. {
        let before = scheduler.counters();
        let drawn = streams.get(&(short, 0)).map_or(0, |stream| stream.ids.len());
        collect(&mut streams, block_on(scheduler.step()).expect("a step"));
        let counters = scheduler.counters();
        assert!(counters.chunks - before.chunks <= 1 && counters.prefilled - before.prefilled <= 32);
        for id in long.iter().chain([&late]).filter(|id| streams.contains_key(&(**id, 0))) {
            if !firsts.iter().any(|(other, _)| other == id) {
                firsts.push((*id, step));
            }
        }
        // Whoever decodes gets a token each step, however long the prompts.
        assert_eq!(streams[&(short, 0)].ids.len(), drawn + 1, "step {step}");
        if firsts.len() == 3 {
            break;
        }
    }
    // The late one has two chunks, each of which waits for one of the others: all take turns.
    assert_eq!(firsts.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [late, long[0], long[1]]);
    assert!(firsts[0].1 <= 6, "{firsts:?}");
    scheduler.cancel(short);
    finish(&mut scheduler, &mut streams);
}

#[test]
fn nobody_starves() {
    // Two slots, a cache of one sequence and a bit, and somebody new every step.
    let engine = engine(BackendChoice::Cpu, &micro(), 256, 2, Some(5));
    let mut scheduler = Scheduler::new(engine, SchedulerOptions::default()).expect("a scheduler");
    let mut streams = Streams::new();
    let old: Vec<_> = (0..3)
        .map(|i| scheduler.submit(Request::new(&some_ids(100 + i, 280)[i..], options(120, 1))).expect("a request"))
        .collect();
    let mut steps = 0;
    while old.iter().any(|id| streams.get(&(*id, 0)).is_none_or(|stream| stream.end.is_none())) {
        if steps < 900 {
            scheduler.submit(Request::new(&[9, steps % 200, 4], options(5, 1))).expect("a request");
        }
        collect(&mut streams, block_on(scheduler.step()).expect("a step"));
        steps += 1;
        assert!(steps < 600, "the oldest wait for the youngest: {:?}", scheduler.counters());
    }
    let preempted = |id| streams[&(id, 0)].end.as_ref().expect("an end").preemptions;
    assert_eq!(preempted(old[0]), 0, "the oldest is never sent away");
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let limited = SchedulerOptions { max_waiting: 3, ..Default::default() };
    let mut scheduler = scheduler(BackendChoice::Cpu, 64, 1, limited);
    let ok = || Request::new(&[1, 2], options(4, 1));
    let bad_option = |found: Option<Error>, name: &str| {
        assert!(matches!(&found, Some(Error::BadOption { option, .. }) if *option == name), "{name}: {found:?}");
    };
    bad_option(scheduler.submit(Request { n: 0, ..ok() }).err(), "n");
    bad_option(scheduler.submit(Request::new(&[], options(4, 1))).err(), "prompt");
    bad_option(scheduler.submit(Request::new(&[1], options(0, 1))).err(), "max tokens");
    let policy = GenerateOptions { policy: Some(Policy::default()), ..options(4, 1) };
    bad_option(scheduler.submit(Request::new(&[1], policy)).err(), "policy");
    let found = scheduler.submit(Request::new(&[7; 65], options(4, 1))).err();
    assert!(matches!(found, Some(Error::ContextFull { needed: 65, limit: 64 })), "{found:?}");
    let found = scheduler.submit(Request::new(&[9999], options(4, 1))).err();
    assert!(matches!(found, Some(Error::BadToken { id: 9999, .. })), "{found:?}");
    let found = scheduler.submit(Request { n: 4, ..ok() }).err();
    assert!(matches!(found, Some(Error::QueueFull { waiting: 0, more: 4, limit: 3 })), "{found:?}");
    let first = scheduler.submit(Request { n: 3, ..ok() }).expect("it fits");
    let found = scheduler.submit(ok()).err();
    assert!(matches!(found, Some(Error::QueueFull { waiting: 3, more: 1, limit: 3 })), "{found:?}");
    assert!(scheduler.cancel(first) && !scheduler.cancel(first) && scheduler.is_idle());
    assert_eq!(run(&mut scheduler, ok()).ids.len(), 4);
    let found = Scheduler::new(scheduler.into_engine().unwrap(), SchedulerOptions { burst: Some(65), ..limited }).err();
    bad_option(found, "burst");
}

#[test]
fn a_cache_that_is_too_small_names_its_bytes() {
    let load = |n_ctx, cache_bytes| {
        let options = LoadOptions {
            backend: BackendChoice::Cpu,
            n_ctx,
            slots: 2,
            cache_bytes: Some(cache_bytes),
            ..Default::default()
        };
        block_on(Engine::load(Source::memory("micro", micro()), options))
    };
    // Keys and values, two layers, 64 positions, two heads of 16 f16 values.
    let page = 2 * 2 * 64 * 2 * 16 * 2;
    let found = load(Some(200), 3 * page).err();
    assert!(
        matches!(found, Some(Error::CacheTooSmall { tokens: 200, needed, there }) if needed == 4 * page && there == 3 * page),
        "{found:?}"
    );
    assert_eq!(load(None, 3 * page + 5).expect("a shorter context").info().n_ctx, 192);
    let found = load(None, page - 1).err();
    assert!(matches!(found, Some(Error::CacheTooSmall { tokens: 1, .. })), "{found:?}");
    assert_eq!(load(Some(200), 1 << 40).expect("it fits").info().n_ctx, 200);
}

/// A model in which feeding `token` trips a guard of f16's range.
fn with_huge_row(token: usize) -> Vec<u8> {
    let model = MicroModel { head_quant: QuantType::F32, tied: false, ..models().remove(0).1 };
    let mut bytes = model.bytes();
    let file = block_on(gguf::open(Source::memory("micro", bytes.clone()))).unwrap();
    let start = file.header.tensor("token_embd.weight").unwrap().offset as usize + token * model.d * 4;
    for four in bytes[start..start + model.d * 4].chunks_exact_mut(4) {
        four.copy_from_slice(&1e6f32.to_le_bytes());
    }
    bytes
}

#[test]
fn a_row_that_trips_the_guard_fails_alone() {
    const HUGE: u32 = 77;
    let bytes = with_huge_row(HUGE as usize);
    for (backend, reaction) in
        backends().into_iter().flat_map(|b| [(b, Reaction::Error), (b, Reaction::Widen { window: 4 })])
    {
        let load = |slots| {
            let policy = Policy { guard: Some(Guard { limit: 65504.0, reaction }), ..Policy::default() };
            let options = LoadOptions { backend, n_ctx: Some(256), slots, policy, ..Default::default() };
            block_on(Engine::load(Source::memory("micro", bytes.clone()), options)).expect("the model loads")
        };
        let mut scheduler = Scheduler::new(load(3), SchedulerOptions { chunk: 32, ..Default::default() }).unwrap();
        let mut prompt = some_ids(100, 280);
        prompt.iter_mut().filter(|id| **id == HUGE).for_each(|id| *id = 1);
        let mut bad = prompt.clone();
        bad[70] = HUGE;
        bad[0] = 3;
        let mates = Sampling { biases: vec![(HUGE, f32::NEG_INFINITY)], ..Sampling::new(0.9, 1) };
        let mate = Request::new(&prompt, GenerateOptions { sampling: mates, ..options(20, 1) });
        let mut streams = Streams::new();
        let first = scheduler.submit(mate.clone()).unwrap();
        let failing = [&bad[..], &[HUGE]].map(|prompt| scheduler.submit(Request::new(prompt, options(20, 1))).unwrap());
        finish(&mut scheduler, &mut streams);
        check("a mate", &mut load(1), &mate, 0, &streams[&(first, 0)]);
        let fails = reaction == Reaction::Error;
        for id in failing {
            assert_eq!(streams[&(id, 0)].error.is_some(), fails, "{backend:?}: {:?}", streams[&(id, 0)]);
        }
        // Nothing of what failed is found again, and its slot and pages serve others.
        streams.clear();
        let again = scheduler.submit(Request { n: 3, ..mate.clone() }).unwrap();
        let failing = scheduler.submit(Request::new(&bad, options(2, 1))).unwrap();
        finish(&mut scheduler, &mut streams);
        for completion in 0..3 {
            check("afterwards", &mut load(1), &mate, completion, &streams[&(again, completion)]);
        }
        assert_eq!(streams[&(failing, 0)].error.is_some(), fails);
        assert_eq!(scheduler.counters().pages.in_use, 0);
    }
}

#[test]
fn pieces_come_as_they_are_drawn() {
    let mut scheduler = scheduler(BackendChoice::Cpu, 128, 1, SchedulerOptions::default());
    let request = Request::new(&[1, 2, 3], options(9, 4));
    let mut alone = engine(BackendChoice::Cpu, &micro(), 128, 1, None);
    let expected = isolated(&mut alone, &request.prompt, &request.options, 0).ids;
    scheduler.submit(request).unwrap();
    for (i, id) in expected.iter().enumerate() {
        let events = block_on(scheduler.step()).expect("a step");
        assert!(matches!(&events[0].kind, EventKind::Piece(piece) if piece.ids == [*id]), "{events:?}");
        assert_eq!(events.len(), if i == 8 { 2 } else { 1 });
    }
    assert!(scheduler.is_idle());
}

/// What one scheduler's requests were called is never another's.
#[test]
fn an_engine_numbers_its_requests_once() {
    let mut scheduler = scheduler(BackendChoice::Cpu, 64, 2, SchedulerOptions::default());
    let old = [1, 2].map(|id| scheduler.submit(Request::new(&[id], options(4, 1))).unwrap());
    let mut scheduler = Scheduler::new(scheduler.into_engine().unwrap(), SchedulerOptions::default()).unwrap();
    let new = scheduler.submit(Request::new(&[3], options(4, 1))).unwrap();
    assert!(old.iter().all(|id| *id < new && !scheduler.cancel(*id)));
    let mut streams = Streams::new();
    finish(&mut scheduler, &mut streams);
    assert_eq!(streams.keys().collect::<Vec<_>>(), [&(new, 0)]);
}
