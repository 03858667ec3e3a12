//! The profiler: the same bits with it, every operation in its report, and no cost without it.

mod common;

use std::collections::BTreeMap;

use blueshift::Error;
use blueshift::engine::backend::{Counters, Readback, Timing};
use blueshift::engine::profile::{Method, Phase};
use blueshift::engine::{
    BackendChoice, BenchOptions, Engine, GenerateOptions, LoadOptions, Policy, Profile, ProfileOptions,
};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::plan::{Plan, Tag};
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use pollster::block_on;

const PROMPT: [u32; 5] = [5, 80, 21, 200, 7];
const TIMINGS: [Timing; 3] = [Timing::Off, Timing::Submits, Timing::Ops];

fn engine(backend: BackendChoice) -> Engine {
    let source = Source::memory("micro", MicroModel::llama3(QuantType::Q4_0).bytes());
    block_on(Engine::load(source, LoadOptions { backend, n_ctx: Some(128), ..Default::default() })).unwrap()
}

/// The same micro model on every backend there is.
fn engines() -> Vec<Engine> {
    let choices = [BackendChoice::Cpu, BackendChoice::Gpu];
    choices.into_iter().filter(|c| *c == BackendChoice::Cpu || common::has_adapter()).map(engine).collect()
}

fn options(timing: Timing, burst: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: 13,
        sampling: Sampling::new(1.0, 11),
        ignore_eos: true,
        policy: Some(Policy { timing, ..Policy::fixed(burst, 3) }),
        ..Default::default()
    }
}

fn ids(engine: &mut Engine, options: GenerateOptions) -> Vec<u32> {
    let mut generation = engine.start(&PROMPT, options).unwrap();
    let mut ids = Vec::new();
    while let Some(piece) = block_on(engine.next(&mut generation)).unwrap() {
        ids.extend(piece.ids);
    }
    ids
}

#[test]
fn timing_changes_no_token() {
    for mut engine in engines() {
        let expected = ids(&mut engine, options(Timing::Off, 1));
        for timing in TIMINGS {
            for burst in [1, 5] {
                for batch_commands in [true, false] {
                    engine.clear();
                    let mut options = options(timing, burst);
                    options.policy = options.policy.map(|policy| Policy { batch_commands, ..policy });
                    let found = ids(&mut engine, options);
                    assert_eq!(found, expected, "{timing:?}, burst {burst}, batched {batch_commands}");
                }
            }
        }
    }
}

/// How many steps of each label one decode step has; the backends' kernels of an operation count once.
fn labels_of(plan: &Plan) -> BTreeMap<String, u64> {
    let tags = [plan.tags(&plan.body, true), plan.tags(&plan.head, false), plan.tags(&plan.sample, false)];
    let mut labels = BTreeMap::new();
    for tag in tags.concat() {
        *labels.entry(tag.label()).or_insert(0) += 1;
    }
    labels
}

/// Every operation of the plan is there as often as it ran, and the sums agree.
fn check(engine: &Engine, profile: &Profile, decoded: u64) {
    let plan = &engine.model().plan;
    let decode: BTreeMap<_, _> =
        profile.ops.iter().filter(|op| op.phase == Phase::Decode).map(|op| (op.label.clone(), op.count)).collect();
    for (label, per_token) in labels_of(plan) {
        assert_eq!(decode.get(&label), Some(&(per_token * decoded)), "{label} in {decode:?}");
    }
    assert_eq!(profile.tokens, decoded);
    assert_eq!(profile.layers.iter().filter(|l| l.phase == Phase::Decode).count(), plan.n_layers());
    let counts = |phase| profile.layers.iter().filter(move |l| l.phase == phase).map(|l| l.count);
    assert!(counts(Phase::Decode).max() == counts(Phase::Decode).min(), "the layers are alike");
    let whole: f64 = profile.ops.iter().map(|op| op.total_ms).sum();
    let kernels: f64 = profile.kernels.iter().map(|op| op.total_ms).sum();
    for sum in [whole, kernels] {
        assert!((sum - profile.sum_of_ops_ms).abs() <= 1e-9 * sum, "{sum} and {}", profile.sum_of_ops_ms);
    }
    for phase in [Phase::Prefill, Phase::Decode] {
        let shares: f64 = profile.ops.iter().filter(|op| op.phase == phase).map(|op| op.share).sum();
        assert!(shares == 0.0 || (shares - 1.0).abs() < 1e-9, "{phase}: {shares}");
    }
    let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(profile).unwrap()).unwrap();
    assert_eq!(json["ops"].as_array().unwrap().len(), profile.ops.len());
    assert!(json["method"].is_string() && json["phases"][0]["phase"].is_string());
    let table = profile.to_string();
    assert!(profile.ops.iter().all(|op| table.contains(&op.label)), "{table}");
}

#[test]
fn every_operation_is_in_the_report() {
    for mut engine in engines() {
        let profile = block_on(engine.profile(ProfileOptions { pp: 70, tg: 7 })).unwrap();
        assert_eq!(profile.method == Method::Clock, engine.info().backend == "cpu");
        check(&engine, &profile, 6);
        assert!(profile.gpu_ms.is_some() && profile.ratio.is_some(), "{profile}");
        assert_eq!(engine.position(), 0);
        if profile.method != Method::Batches {
            let prefill = profile.ops.iter().filter(|op| op.phase == Phase::Prefill);
            assert!(prefill.count() >= labels_of(&engine.model().plan).len());
            assert_eq!(profile.phases[0].tokens, 70);
        }
    }
}

#[test]
fn a_timed_generation_gives_its_profile_once() {
    for mut engine in engines() {
        for burst in [1, 4] {
            for timing in TIMINGS {
                engine.clear();
                ids(&mut engine, options(timing, burst));
                let profile = block_on(engine.take_profile()).unwrap();
                assert_eq!(profile.is_some(), timing == Timing::Ops);
                if let Some(profile) = profile {
                    check(&engine, &profile, 12);
                }
            }
        }
        // It goes on as if nothing had been timed.
        let expected = ids(&mut engine, options(Timing::Off, 1));
        engine.clear();
        assert_eq!(ids(&mut engine, options(Timing::Off, 3)), expected);
    }
}

/// What three bursts of eight steps cost after a warm-up.
fn cost(engine: &mut Engine, timing: Timing) -> Counters {
    engine.clear();
    let mut generation = engine.start(&PROMPT, GenerateOptions { max_tokens: 100, ..options(timing, 8) }).unwrap();
    for _ in 0..5 {
        block_on(engine.next(&mut generation)).unwrap();
    }
    let before = engine.counters();
    for _ in 0..3 {
        block_on(engine.next(&mut generation)).unwrap();
    }
    engine.counters() - before
}

#[test]
fn off_costs_nothing_and_submits_two_timestamps() {
    if !common::has_adapter() {
        return;
    }
    let mut engine = engine(BackendChoice::Gpu);
    let off = cost(&mut engine, Timing::Off);
    assert_eq!([off.submits, off.maps, off.bytes_read], [3, 3, 3 * 8 * 4], "{off:?}");
    assert_eq!([off.buffers_created, off.query_sets_created], [0, 0], "{off:?}");
    assert_eq!(engine.counters().query_sets_created, 0);

    let timed = cost(&mut engine, Timing::Submits);
    assert_eq!((timed.submits, timed.dispatches), (3, off.dispatches), "{timed:?}");
    assert_eq!([timed.buffers_created, timed.query_sets_created], [0, 0], "{timed:?}");
    // Two timestamps of eight bytes a burst, where there are any.
    let has_timestamps = engine.counters().query_sets_created > 0;
    let extra = if has_timestamps { 3 } else { 0 };
    assert_eq!([timed.maps - off.maps, timed.bytes_read - off.bytes_read], [extra, extra * 16], "{timed:?}");

    engine.restrict_readbacks(Some(vec![Readback::Tokens]));
    cost(&mut engine, Timing::Off);
    let mut generation = engine.start(&PROMPT, options(Timing::Submits, 1)).unwrap();
    let refused = block_on(engine.next(&mut generation)).err();
    assert_eq!(matches!(refused, Some(Error::UnexpectedReadback { .. })), has_timestamps, "{refused:?}");
}

#[test]
fn a_bench_tells_busy_time_and_profile() {
    for mut engine in engines() {
        let options = BenchOptions { pp: 9, tg: 5, depth: 3, reps: 1, burst: None, in_flight: None, profile: true };
        let report = block_on(engine.bench(options)).unwrap();
        check(&engine, report.profile.as_ref().unwrap(), 4);
        assert_eq!(report.gpu_ms_token.is_some(), report.gap_ms_token.is_some());
        if report.backend == "cpu" {
            assert_eq!(report.gpu_ms_token, None);
        }
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["profile"]["ops"].is_array() && json.get("gap_ms_token").is_some());
        let report = block_on(engine.bench(BenchOptions { profile: false, ..options })).unwrap();
        assert_eq!(report.profile, None);
    }
}

#[test]
fn labels_tell_role_format_and_shape() {
    let engine = engine(BackendChoice::Cpu);
    let plan = &engine.model().plan;
    let tags: Vec<Tag> = plan.tags(&plan.body, true);
    assert_eq!((tags[0].op, tags[0].layer), ("embed", None));
    assert!(tags[1..].iter().all(|tag| tag.layer.is_some()));
    let down = tags.iter().find(|tag| tag.detail.starts_with("ffn_down")).unwrap();
    assert!(down.label().starts_with("matmul ffn_down q4_0 "), "{}", down.label());
    assert!(down.bytes > 0);
}
