//! What only the inside of a scheduler can do: give up steps, set wrong pages.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::task::{Context, Waker};

use pollster::block_on;

use super::embed::Group;
use super::{EmbeddingRequest, Event, EventKind, Request, Scheduler, SchedulerOptions};
use crate::engine::backend::Backend;
use crate::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Pooling};
use crate::gguf::Source;
use crate::micro::MicroModel;
use crate::micro::rng::Rng;
use crate::quant::QuantType;
use crate::sample::Sampling;

fn scheduler(slots: usize) -> Scheduler {
    scheduler_with(slots, SchedulerOptions { chunk: 32, burst: Some(3), ..Default::default() })
}

fn scheduler_with(slots: usize, options: SchedulerOptions) -> Scheduler {
    let source = Source::memory("micro", MicroModel::tiny(QuantType::Q8_0).bytes());
    let load = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(200), slots, ..Default::default() };
    let engine = block_on(Engine::load(source, load)).expect("the model loads");
    Scheduler::new(engine, options).expect("a scheduler")
}

fn requests() -> Vec<Request> {
    let options = |seed| GenerateOptions {
        max_tokens: 40,
        sampling: Sampling { repeat_penalty: 1.2, ..Sampling::new(0.9, seed) },
        ignore_eos: true,
        ..Default::default()
    };
    let prompt = |n: u32, base: u32| (0..n).map(|i| (i * 13 + base) % 300).collect::<Vec<_>>();
    [(100, 3), (5, 4), (64, 5), (130, 3)].map(|(n, base)| Request::new(&prompt(n, base), options(u64::from(n)))).into()
}

/// Every stream's ids, with `before` called before each step.
fn streams(scheduler: &mut Scheduler, mut before: impl FnMut(&mut Scheduler)) -> BTreeMap<u64, Vec<u32>> {
    for request in requests() {
        scheduler.submit(request).expect("a request");
    }
    let mut streams = BTreeMap::<_, Vec<u32>>::new();
    while !scheduler.is_idle() {
        before(scheduler);
        for Event { request, kind, .. } in block_on(scheduler.step()).expect("a step") {
            match kind {
                EventKind::Piece(piece) => streams.entry(request.0).or_default().extend(piece.ids),
                EventKind::Failed(error) => panic!("{error}"),
                _ => {}
            }
        }
    }
    streams
}

#[test]
fn a_step_that_was_given_up_loses_nothing() {
    let expected = streams(&mut scheduler(3), |_| {});
    assert_eq!(expected.values().map(Vec::len).collect::<Vec<_>>(), [40; 4]);
    let mut rng = Rng::new(1, "interrupted");
    let mut interrupted = scheduler(3);
    let found = streams(&mut interrupted, |scheduler| scheduler.interrupted = rng.u64().is_multiple_of(5));
    assert_eq!(found, expected);
    assert_eq!(interrupted.counters().pages.in_use, 0);
}

#[test]
fn a_wrong_page_shows() {
    let expected = streams(&mut scheduler(4), |_| {});
    let mut step = 0;
    let found = streams(&mut scheduler(4), |scheduler| {
        step += 1;
        // Once all decode, the first sequence reads the third one's first page.
        if step == 16 {
            let other = scheduler.slots[2].as_ref().expect("it runs").pages[0];
            assert!(scheduler.slots.iter().flatten().all(|running| running.decoding().is_some()));
            scheduler.engine.backend.set_pages(0, 0, &[other]).expect("a page");
        }
    });
    assert_ne!(found[&1], expected[&1]);
    assert!((2..=4).all(|request| found[&request] == expected[&request]));
}

/// Where others fill the queue, a group waits for room; it gives a value for each of its texts.
#[test]
fn a_group_waits_for_room_in_the_queue() {
    let texts: Vec<Vec<u32>> = requests().into_iter().map(|request| request.prompt).collect();
    let embed = |scheduler: &mut Scheduler| block_on(scheduler.embed(&texts, Pooling::Mean, true)).expect("embeddings");
    let wanted = embed(&mut scheduler(1));
    assert_eq!(wanted.len(), texts.len());
    let mut full = scheduler_with(1, SchedulerOptions { max_waiting: 1, ..Default::default() });
    full.submit(requests().remove(0)).expect("a request");
    assert!(full.submit(requests().remove(1)).is_err(), "the queue has room for one");
    assert_eq!(embed(&mut full), wanted);
}

/// A caller that goes away in the middle, as in a browser, where a step waits for the device.
#[test]
fn a_group_that_is_dropped_leaves_nothing_behind() {
    let [first, answer, ..] = &requests()[..] else { unreachable!("there are four") };
    let embed = |scheduler: &mut Scheduler, _| {
        let tokens = first.prompt.clone();
        scheduler.submit_embedding(EmbeddingRequest { tokens, pooling: Pooling::Mean, normalise: true })
    };
    let under_way = |scheduler: &Scheduler| (scheduler.counters().running, scheduler.counters().waiting);
    let drawn = |has_group: bool| {
        let mut scheduler = scheduler(3);
        scheduler.submit(answer.clone()).expect("a request");
        if has_group {
            let mut caller = Box::pin(async {
                let mut group = Group::new(&mut scheduler);
                group.fill(4, embed).expect("there is room");
                assert!(group.step().await.expect("a step").is_empty());
                assert_eq!(under_way(group.scheduler), (3, 2));
                pending::<()>().await;
            });
            assert!(caller.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(caller);
            assert_eq!(under_way(&scheduler), (1, 0));
        }
        let mut ids = Vec::new();
        while !scheduler.is_idle() {
            for Event { kind, .. } in block_on(scheduler.step()).expect("a step") {
                match kind {
                    EventKind::Piece(piece) => ids.extend(piece.ids),
                    EventKind::Finished(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(scheduler.counters().pages.in_use, 0);
        ids
    };
    assert_eq!(drawn(true), drawn(false));
}
