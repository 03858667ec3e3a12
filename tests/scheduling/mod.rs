//! Random schedules and what each of their streams is to be.
#![allow(dead_code)]

use std::collections::BTreeMap;

use blueshift::engine::{
    BackendChoice, Completion, Engine, Event, EventKind, GenerateOptions, LoadOptions, Request, RequestId, Scheduler,
    SchedulerOptions, StopReason,
};
use blueshift::gguf::Source;
use blueshift::grammar::Grammar;
use blueshift::micro::{DeltaNet, MicroModel};
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use blueshift::sample::{Logprobs, Sampling};
use pollster::block_on;

use crate::common;

/// The architectures, as small as they can be, and what their caches store.
pub(crate) fn models() -> Vec<(&'static str, MicroModel, KvType)> {
    let small = |model: MicroModel| MicroModel {
        d: 64,
        ffn: 64,
        vocab: 280,
        n_layers: 2,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 16,
        ..model
    };
    // One layer of each kind.
    let hybrid = |model: MicroModel| MicroModel {
        head_dim: 64,
        delta: DeltaNet { attention_every: 2, ..model.delta },
        ..small(model)
    };
    vec![
        ("llama", small(MicroModel::llama(QuantType::Q8_0)), KvType::F16),
        ("llama, q8_0 cache", MicroModel { head_dim: 32, ..small(MicroModel::llama(QuantType::Q8_0)) }, KvType::Q8_0),
        ("gemma3", MicroModel { n_layers: 7, ..small(MicroModel::gemma3(QuantType::Q4_0)) }, KvType::F16),
        ("qwen3moe", small(MicroModel::qwen3moe(QuantType::Q8_0)), KvType::F16),
        ("qwen35", hybrid(MicroModel::qwen35(QuantType::Q8_0)), KvType::F16),
        ("qwen3next", hybrid(MicroModel::qwen3next(QuantType::Q4_1)), KvType::F16),
        ("qwen3", small(MicroModel::qwen3(QuantType::Q5_1)), KvType::F16),
    ]
}

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn below_one_of(&mut self, limits: &[usize]) -> usize {
        let limit = limits[self.below(limits.len())];
        self.below(limit)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// An engine with `slots` slots and a cache of `pages` pages.
pub(crate) fn engine(backend: BackendChoice, bytes: &[u8], n_ctx: usize, slots: usize, pages: Option<usize>) -> Engine {
    engine_storing(KvType::F16, backend, bytes, n_ctx, slots, pages)
}

/// The same with a cache of another type.
pub(crate) fn engine_storing(
    kv: KvType,
    backend: BackendChoice,
    bytes: &[u8],
    n_ctx: usize,
    slots: usize,
    pages: Option<usize>,
) -> Engine {
    let load = |cache_bytes| {
        let gpu = common::gpu_for(backend);
        let options = LoadOptions { backend, gpu, n_ctx: Some(n_ctx), kv, slots, cache_bytes, ..Default::default() };
        block_on(Engine::load(Source::memory("micro", bytes.to_vec()), options)).expect("the model loads")
    };
    let Some(pages) = pages else { return load(None) };
    let file = block_on(blueshift::gguf::open(Source::memory("micro", bytes.to_vec()))).expect("a model");
    let plan = block_on(blueshift::model::Model::open(&file)).expect("a model").plan;
    let page_bytes = plan.with_kv(kv).expect("a cache").page_bytes();
    load(Some((pages * page_bytes) as u64))
}

/// The first of them.
pub(crate) fn micro() -> Vec<u8> {
    models().remove(0).1.bytes()
}

/// The backends there are, the CPU first.
pub(crate) fn backends() -> Vec<BackendChoice> {
    let choices = [BackendChoice::Cpu, BackendChoice::Gpu];
    choices.into_iter().filter(|choice| *choice == BackendChoice::Cpu || common::has_adapter()).collect()
}

/// A scheduler of the first model.
pub(crate) fn scheduler(backend: BackendChoice, n_ctx: usize, slots: usize, options: SchedulerOptions) -> Scheduler {
    Scheduler::new(engine(backend, &micro(), n_ctx, slots, None), options).expect("a scheduler")
}

/// `max_tokens` draws from all tokens.
pub(crate) fn options(max_tokens: usize, seed: u64) -> GenerateOptions {
    GenerateOptions { max_tokens, sampling: Sampling::new(0.9, seed), ignore_eos: true, ..Default::default() }
}

/// Runs a request to its end; its first completion.
pub(crate) fn run(scheduler: &mut Scheduler, request: Request) -> Stream {
    let mut streams = Streams::new();
    let id = scheduler.submit(request).expect("a request");
    finish(scheduler, &mut streams);
    streams.remove(&(id, 0)).expect("a stream")
}

/// What a completion has given so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) logprobs: Vec<Logprobs>,
    pub(crate) end: Option<Completion>,
    pub(crate) error: Option<String>,
}

/// What all completions have given so far.
pub(crate) type Streams = BTreeMap<(RequestId, usize), Stream>;

/// Adds events to their streams.
pub(crate) fn collect(streams: &mut Streams, events: Vec<Event>) {
    for Event { request, completion, kind } in events {
        let stream = streams.entry((request, completion)).or_default();
        assert!(stream.end.is_none() && stream.error.is_none(), "{request:?} has ended already: {kind:?}");
        match kind {
            EventKind::Piece(piece) => {
                stream.ids.extend(piece.ids);
                stream.text.push_str(&piece.text);
                stream.logprobs.extend(piece.logprobs);
            }
            EventKind::Finished(completion) => stream.end = Some(completion),
            EventKind::Failed(error) => stream.error = Some(error.to_string()),
            EventKind::Embedded(_) => {}
        }
    }
}

/// Runs everything to its end.
pub(crate) fn finish(scheduler: &mut Scheduler, streams: &mut Streams) {
    while !scheduler.is_idle() {
        collect(streams, block_on(scheduler.step()).expect("a step"));
    }
}

/// What an isolated run gives.
pub(crate) struct Isolated {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) logprobs: Vec<Logprobs>,
    pub(crate) stop_reason: StopReason,
}

/// Runs one completion alone, from an empty cache.
pub(crate) fn isolated(engine: &mut Engine, prompt: &[u32], options: &GenerateOptions, completion: usize) -> Isolated {
    let seed = options.sampling.seed.wrapping_add(completion as u64);
    let sampling = Sampling { seed, ..options.sampling.clone() };
    engine.clear();
    let options = GenerateOptions { sampling, ..options.clone() };
    let mut generation = engine.start(prompt, options).expect("a request");
    let (mut ids, mut text, mut logprobs) = (Vec::new(), String::new(), Vec::new());
    while let Some(piece) = block_on(engine.next(&mut generation)).expect("an answer") {
        ids.extend(piece.ids);
        text.push_str(&piece.text);
        logprobs.extend(piece.logprobs);
    }
    let stop_reason = generation.finish().expect("it has ended").stop_reason;
    Isolated { ids, text, logprobs, stop_reason }
}

/// Checks that a stream equals its isolated run.
pub(crate) fn check(what: &str, reference: &mut Engine, request: &Request, completion: usize, stream: &Stream) {
    let differs = difference(reference, request, completion, stream);
    assert!(differs.is_none(), "{what}: {}", differs.unwrap_or_default());
}

/// How a stream differs from its isolated run: ids, text, log-probabilities, end, or the last logits where they were kept.
pub(crate) fn difference(
    reference: &mut Engine,
    request: &Request,
    completion: usize,
    stream: &Stream,
) -> Option<String> {
    let alone = isolated(reference, &request.prompt, &request.options, completion);
    if let Some(error) = &stream.error {
        return Some(error.clone());
    }
    let Some(end) = &stream.end else {
        return (!alone.ids.starts_with(&stream.ids)).then(|| format!("given up: {:?}, {:?}", stream.ids, alone.ids));
    };
    let ends = [(end.stop_reason, stream.ids.len() - 1), (alone.stop_reason, alone.ids.len() - 1)];
    let differences = [
        (stream.ids != alone.ids).then(|| format!("ids {:?}, expected {:?}", stream.ids, alone.ids)),
        (stream.text != alone.text).then(|| format!("text {:?}, expected {:?}", stream.text, alone.text)),
        (stream.logprobs != alone.logprobs).then(|| "log-probabilities".into()),
        (ends[0] != ends[1]).then(|| format!("end {:?}, expected {:?}", ends[0], ends[1])),
        (end.timings.decode_tokens != ends[0].1).then(|| format!("{} decoded tokens", end.timings.decode_tokens)),
        (end.logits.is_some() != request.keep_logits).then(|| "whether there are logits".into()),
    ];
    differences.into_iter().flatten().next().or_else(|| {
        let is_wrong = end.logits.as_ref().is_some_and(|logits| !is_parked(reference, request, &alone, logits));
        is_wrong.then(|| "the last logits".into())
    })
}

/// Whether `logits` are those that the last token was drawn from.
fn is_parked(reference: &mut Engine, request: &Request, alone: &Isolated, logits: &[f32]) -> bool {
    // Behind the last draw a grammar may have forced tokens.
    let may_be_forced = request.options.grammar.is_some() && request.options.logprobs.is_none();
    let n = alone.ids.len();
    let mut drawn = (if may_be_forced { 0 } else { n - 1 }..n).rev();
    drawn.any(|at| {
        let before: Vec<u32> = request.prompt.iter().chain(&alone.ids[..at]).copied().collect();
        let wanted = block_on(reference.logits(&before, 0, false)).expect("logits");
        logits.iter().map(|l| l.to_bits()).eq(wanted.iter().map(|l| l.to_bits()))
    })
}

/// Draws of every kind.
fn some_sampling(rng: &mut Rng) -> Sampling {
    let seed = rng.below(1000) as u64;
    match rng.below(5) {
        0 => Sampling::GREEDY,
        1 => Sampling::new(0.9, seed),
        2 => Sampling { top_k: 40, top_p: 0.95, min_p: 0.02, ..Sampling::new(1.2, seed) },
        3 => Sampling { repeat_penalty: 1.3, frequency_penalty: 0.2, penalty_window: 100, ..Sampling::new(0.8, seed) },
        _ => Sampling {
            repeat_penalty: 1.5,
            typical_p: 0.9,
            biases: vec![(5, f32::NEG_INFINITY), (9, 2.0)],
            ..Sampling::new(1.0, seed)
        },
    }
}

/// A beginning of one of a few texts, and more.
fn some_prompt(rng: &mut Rng, n_vocab: usize, n_ctx: usize) -> Vec<u32> {
    let base = rng.below(3) as u32;
    let shared = [0, 0, 1 + rng.below(60), 63, 64, 65, 128, 20 + rng.below(130)][rng.below(8)];
    let mut prompt: Vec<u32> = (0..shared as u32).map(|i| (i * 7 + base * 31) % n_vocab as u32).collect();
    let own = 1 + rng.below_one_of(&[3, 20, 70]);
    prompt.extend((0..own).map(|_| rng.below(n_vocab) as u32));
    prompt.truncate(n_ctx);
    prompt
}

/// Texts with choices, with forced parts, with an end and without one.
fn some_grammar(which: usize) -> Grammar {
    let schema = r#"{"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "n": {"type": "integer"}},
        "required": ["colour", "n"], "additionalProperties": false}"#;
    match which % 4 {
        0 => Grammar::JsonObject,
        1 => Grammar::json_schema(schema).expect("a schema"),
        2 => Grammar::Regex("(yes|no|perhaps), [a-z]{3,40}\\.".into()),
        _ => Grammar::Regex("[ -~]*".into()),
    }
}

pub(crate) fn some_request(rng: &mut Rng, n_vocab: usize, n_ctx: usize) -> Request {
    let prompt = some_prompt(rng, n_vocab, n_ctx);
    let stop = if rng.one_in(6) { vec!["a".into(), "e r".into()] } else { Vec::new() };
    let options = GenerateOptions {
        max_tokens: 1 + rng.below_one_of(&[3, 30, 150]),
        sampling: some_sampling(rng),
        stop,
        stop_ids: if rng.one_in(4) { vec![3, 60, 200] } else { Vec::new() },
        ignore_eos: rng.one_in(2),
        logprobs: rng.one_in(8).then_some(3),
        grammar: prompt.iter().sum::<u32>().is_multiple_of(4).then(|| some_grammar(prompt.len())),
        chunk: [0, 0, 0, 5][rng.below(4)],
        ..Default::default()
    };
    let n = if rng.one_in(5) { 2 + rng.below(3) } else { 1 };
    Request { prompt, options, n, keep_logits: rng.one_in(3) }
}

/// What happened in schedules, to know that they were interesting.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) completions: usize,
    pub(crate) cancelled: usize,
    pub(crate) preemptions: u64,
    pub(crate) found: u64,
    pub(crate) copies: u64,
    pub(crate) evictions: u64,
    pub(crate) most_rows: usize,
}

/// A model, and what is to run it.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) kv: KvType,
    pub(crate) backend: BackendChoice,
    /// Most tokens of an answer, but for those that are to be long.
    pub(crate) max_tokens: usize,
}

impl Subject {
    /// An engine with `slots` slots and a cache of `pages` pages.
    pub(crate) fn engine(&self, slots: usize, pages: Option<usize>) -> Engine {
        engine_storing(self.kv, self.backend, &self.bytes, N_CTX, slots, pages)
    }

    /// The engine that isolated runs are made on.
    pub(crate) fn reference(&self) -> Engine {
        engine_storing(self.kv, BackendChoice::Cpu, &self.bytes, N_CTX, 1, None)
    }
}

/// Tokens of a schedule's sequences.
pub(crate) const N_CTX: usize = 224;

/// Runs a random schedule: joins, leaves and cancellations, with more sequences than slots, and fewer pages than they need. Every stream is
/// compared with its isolated run on `reference`.
pub(crate) fn run_schedule(subject: &Subject, reference: &mut Engine, seed: u64, tally: &mut Tally) {
    let name = subject.name;
    let mut rng = Rng(seed);
    let slots = 1 + rng.below(12);
    // Tight, or with room for most.
    let (is_tight, pages) = (rng.one_in(2), [4 + rng.below(4), 12 + rng.below(28)]);
    let engine = subject.engine(slots, Some(pages[usize::from(!is_tight)]));
    let n_vocab = engine.info().n_vocab;
    let options = SchedulerOptions {
        chunk: [0, 1, 7, 64][rng.below(4)],
        burst: [None, Some(1), Some(3), Some(16)][rng.below(4)],
        ..SchedulerOptions::default()
    };
    let mut scheduler = Scheduler::new(engine, options).expect("a scheduler");
    let (mut requests, mut streams) = (BTreeMap::new(), Streams::new());
    let mut to_come = 4 + rng.below(5);
    while to_come > 0 || !scheduler.is_idle() {
        while to_come > 0 && (rng.one_in(2) || scheduler.is_idle()) {
            let mut request = some_request(&mut rng, n_vocab, N_CTX);
            request.options.max_tokens = request.options.max_tokens.min(subject.max_tokens);
            if is_tight && rng.one_in(2) {
                // Sequences that need page after page take them from each other.
                request.prompt.truncate(1 + rng.below(40));
                request.options =
                    GenerateOptions { max_tokens: 140, ignore_eos: true, stop: vec![], ..request.options };
            }
            let id = scheduler.submit(request.clone()).expect("a request");
            requests.insert(id, request);
            to_come -= 1;
        }
        if rng.one_in(80) {
            let id = *requests.keys().nth(rng.below(requests.len())).expect("a request");
            tally.cancelled += usize::from(scheduler.cancel(id));
        }
        collect(&mut streams, block_on(scheduler.step()).expect("a step"));
    }
    for ((id, completion), stream) in &streams {
        let what = format!("{name}, schedule {seed}, {id:?}, completion {completion}");
        check(&what, reference, &requests[id], *completion, stream);
        tally.completions += 1;
    }
    let counters = scheduler.counters();
    assert_eq!((counters.running, counters.waiting, counters.pages.in_use), (0, 0, 0), "{name}, schedule {seed}");
    tally.preemptions += counters.preemptions;
    tally.found += counters.found;
    tally.copies += counters.copies;
    tally.evictions += counters.pages.evictions;
    tally.most_rows = tally.most_rows.max(counters.most_rows);
    // What the scheduler leaves is an engine as before.
    let mut engine = scheduler.into_engine().expect("an engine");
    let prompt = common::some_ids(70, n_vocab);
    let alone = isolated(reference, &prompt, &GenerateOptions { max_tokens: 3, ..Default::default() }, 0);
    let after = isolated(&mut engine, &prompt, &GenerateOptions { max_tokens: 3, ..Default::default() }, 0);
    assert_eq!(after.ids, alone.ids, "{name}, schedule {seed}");
}
