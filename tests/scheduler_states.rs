//! What a scheduler does besides answering: states that are saved and go on elsewhere, embeddings, scores.

mod common;
mod scheduling;

use blueshift::Error;
use blueshift::engine::scheduler::{cosine, yes_probability};
use blueshift::engine::{BackendChoice, Pooling, Request, Scheduler, SchedulerOptions};
use blueshift::micro::MicroModel;
use common::some_ids;
use pollster::block_on;
use scheduling::{Streams, backends, check, engine, finish, micro, models, options, run, scheduler};

/// Where layers are recurrent, others go on from the last whole page, where a state was saved; that of a saved text, too.
#[test]
fn recurrent_states_go_with_their_pages() {
    let bytes = models().into_iter().find(|(name, ..)| *name == "qwen35").expect("a known model").1.bytes();
    let mut saved = Vec::new();
    for backend in backends() {
        let load = || Scheduler::new(engine(backend, &bytes, 512, 8, None), SchedulerOptions::default()).unwrap();
        let mut scheduler = load();
        let prompt = some_ids(300, 280);
        let request = Request { n: 4, keep_logits: true, ..Request::new(&prompt, options(6, 1)) };
        let (id, mut streams) = (scheduler.submit(request.clone()).unwrap(), Streams::new());
        finish(&mut scheduler, &mut streams);
        let counters = scheduler.counters();
        assert_eq!((counters.prefilled, counters.copies), (299 + 3 * (299 - 256), 0));
        let mut reference = engine(BackendChoice::Cpu, &bytes, 512, 1, None);
        for completion in 0..4 {
            check("a completion", &mut reference, &request, completion, &streams[&(id, completion)]);
        }
        let state = block_on(scheduler.save(&prompt)).expect("a saved state");
        let mut elsewhere = load();
        assert_eq!(elsewhere.restore(&state).expect("a good state"), 256);
        let request = Request { n: 1, ..request };
        let id = elsewhere.submit(request.clone()).unwrap();
        streams.clear();
        finish(&mut elsewhere, &mut streams);
        assert_eq!(elsewhere.counters().prefilled, 299 - 256);
        check("a restored state", &mut reference, &request, 0, &streams[&(id, 0)]);
        saved.push(state);
    }
    assert!(saved.iter().all(|state| *state == saved[0]), "the same bytes on every backend");
}

#[test]
fn a_saved_state_goes_on_elsewhere() {
    let all = backends();
    let prompt = some_ids(200, 280);
    let request = |prompt: &[u32]| Request { keep_logits: true, ..Request::new(prompt, options(30, 5)) };
    let new = |backend| scheduler(backend, 512, 2, SchedulerOptions::default());
    let mut saved = Vec::new();
    for backend in &all {
        let mut scheduler = new(*backend);
        let first = run(&mut scheduler, request(&prompt));
        let turn = [&prompt[..], &first.ids, &[4, 5, 6]].concat();
        let bytes = block_on(scheduler.save(&turn)).expect("a saved state");
        let next = run(&mut scheduler, request(&turn));
        saved.push((turn, bytes, next.ids, next.end.expect("an end").logits));
    }
    assert!(saved.iter().all(|other| *other == saved[0]), "the same bytes on every backend");
    let (turn, bytes, ids, logits) = &saved[0];
    for backend in all {
        let mut scheduler = new(backend);
        // Three whole pages of 229 tokens.
        assert_eq!(scheduler.restore(bytes).expect("a good state"), 192);
        assert_eq!(scheduler.restore(bytes).expect("once more"), 192);
        assert_eq!((scheduler.counters().pages.in_use, scheduler.counters().pages.cached), (0, 3));
        let next = run(&mut scheduler, request(turn));
        let end = next.end.expect("an end");
        assert_eq!(end.timings.cached_tokens, 192);
        assert_eq!((&next.ids, &end.logits), (ids, logits), "{backend:?}");
    }
    let mut empty = new(BackendChoice::Cpu);
    let nothing = block_on(empty.save(&prompt)).expect("an empty state");
    assert_eq!((nothing.len(), empty.restore(&nothing).expect("nothing")), (56, 0));
}

#[test]
fn a_damaged_state_is_refused() {
    let mut scheduler = scheduler(BackendChoice::Cpu, 256, 1, SchedulerOptions::default());
    let prompt = some_ids(80, 280);
    run(&mut scheduler, Request::new(&prompt, options(2, 5)));
    let bytes = block_on(scheduler.save(&prompt)).expect("a saved state");
    let mut refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        match scheduler.restore(&bytes) {
            Err(Error::SavedState { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
    assert_eq!(refused(&|bytes| bytes.truncate(55)), "size");
    assert_eq!(refused(&|bytes| bytes.truncate(bytes.len() - 1)), "size");
    assert_eq!(refused(&|bytes| bytes.push(0)), "size");
    for (at, what) in
        [(0, "beginning"), (7, "beginning"), (8, "version"), (12, "page"), (16, "model"), (23, "model"), (24, "page")]
    {
        assert_eq!(refused(&flip(at)), what, "byte {at}");
    }
    assert_eq!(refused(&flip(32)), "number of tokens");
    assert_eq!(refused(&flip(40)), "recurrent state");
    assert_eq!(refused(&|bytes| bytes[39] = 0xff), "size");
    assert_eq!(refused(&|bytes| bytes[32] = 128), "size");
    for at in [48, 300, bytes.len() - 9, bytes.len() - 1] {
        assert_eq!(refused(&flip(at)), "hash", "byte {at}");
    }
    // Another model of the same shape, and another shape.
    for model in [MicroModel { seed: 2, ..models().remove(0).1 }, MicroModel { ffn: 96, ..models().remove(0).1 }] {
        let mut other =
            Scheduler::new(engine(BackendChoice::Cpu, &model.bytes(), 256, 1, None), SchedulerOptions::default())
                .unwrap();
        assert!(matches!(other.restore(&bytes), Err(Error::SavedState { what: "model", .. })));
    }
}

#[test]
fn embeddings_beside_answers_have_the_bits_of_an_engine_alone() {
    for backend in backends() {
        let mut scheduler = scheduler(backend, 256, 3, SchedulerOptions { chunk: 40, ..Default::default() });
        let mut alone = engine(backend, &micro(), 256, 1, None);
        let texts: Vec<Vec<u32>> = [1, 64, 130, 100, 99].map(|n| some_ids(n + 3, 280)[3..].to_vec()).into();
        let request = Request::new(&some_ids(90, 280), options(30, 2));
        let answer = scheduler.submit(request.clone()).unwrap();
        for pooling in [Pooling::Last, Pooling::Mean, Pooling::None, Pooling::Last] {
            let found = block_on(scheduler.embed(&texts, pooling, false)).expect("embeddings");
            for (text, found) in texts.iter().zip(&found) {
                alone.clear();
                let wanted = block_on(alone.advance_with_embedding(text, pooling)).expect("an embedding");
                assert!(
                    found.iter().map(|x| x.to_bits()).eq(wanted.iter().map(|x| x.to_bits())),
                    "{backend:?} {pooling:?} {}",
                    text.len()
                );
            }
        }
        let unit = block_on(scheduler.embed(&texts[..2], Pooling::Last, true)).expect("embeddings");
        let length = |v: &Vec<f32>| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        assert!(unit.iter().all(|v| (length(v) - 1.0).abs() < 1e-6));
        assert!(cosine(&unit[0], &unit[1]) < 0.99 && cosine(&unit[0], &unit[0]) > 0.999_999);
        let found = block_on(scheduler.embed(&[vec![1], vec![]], Pooling::Last, false));
        assert!(matches!(found, Err(Error::BadOption { option: "prompt", .. })));
        // What was answered meanwhile is told afterwards.
        let mut streams = Streams::new();
        finish(&mut scheduler, &mut streams);
        check("an answer", &mut alone, &request, 0, &streams[&(answer, 0)]);
        assert_eq!(scheduler.counters().pages.in_use, 0);
    }
}

#[test]
fn many_texts_go_through_a_short_queue() {
    let limited = SchedulerOptions { max_waiting: 2, ..Default::default() };
    let mut scheduler = scheduler(BackendChoice::Cpu, 128, 2, limited);
    let texts: Vec<Vec<u32>> = (1..12).map(|n| some_ids(n, 280)).collect();
    assert_eq!(block_on(scheduler.embed(&texts, Pooling::Last, false)).expect("embeddings").len(), 11);
    let mut none = scheduling::scheduler(BackendChoice::Cpu, 128, 2, SchedulerOptions { max_waiting: 0, ..limited });
    assert!(matches!(block_on(none.embed(&texts, Pooling::Last, false)), Err(Error::QueueFull { limit: 0, .. })));
}

#[test]
fn scores_are_those_of_the_logits_after_each_prompt() {
    for backend in backends() {
        let mut scheduler = scheduler(backend, 256, 4, SchedulerOptions::default());
        let question = some_ids(70, 280);
        let prompts: Vec<Vec<u32>> = (0..6).map(|i| [&question[..], &[i, 9, i + 3], &[7, 8]].concat()).collect();
        let scores = block_on(scheduler.rerank(&prompts, 10, 20)).expect("scores");
        let mut alone = engine(backend, &micro(), 256, 1, None);
        for (prompt, score) in prompts.iter().zip(&scores) {
            let logits = block_on(alone.logits(prompt, 0, false)).expect("logits");
            assert_eq!(*score, yes_probability(&logits, 10, 20), "{backend:?}");
        }
        // The question was fed once.
        assert_eq!(scheduler.counters().prefilled, (74 + 5 * 4) as u64);
    }
}
