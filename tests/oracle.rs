//! Logits and greedy ids against llama.cpp's (docs/numerics.md, "Against other runtimes").
//!
//! The expected values are written by `tools/golden_llama.py`.

mod common;

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use blueshift::cpu::backend::{CpuBackend, CpuWeights};
use blueshift::engine::backend::Backend;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy};
use blueshift::gguf::{GgufFile, Source, open};
use blueshift::micro::{DeltaNet, MicroModel, writer::Writer};
use blueshift::model::Model;
use blueshift::model::load::{CancelToken, Progress, load_weights, read_vector};
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use blueshift::tokenizer::Tokenizer;
use pollster::block_on;
use serde::Deserialize;

const N_CTX: usize = 1024;

/// A candidate: its id and its log-probability, which llama.cpp's server leaves out inside a character.
type Candidate = (u32, Option<f64>);

#[derive(Deserialize)]
struct Golden {
    model: String,
    n_top: usize,
    n_spread: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    text: String,
    ids: Vec<u32>,
    /// The greedy steps, each with its likeliest candidates, best first.
    steps: Vec<Vec<Candidate>>,
    #[serde(skip)]
    row: Row,
}

/// Log-probabilities of some ids after the prompt.
#[derive(Default)]
struct Row {
    /// The likeliest first, then `n_spread` spread over the vocabulary.
    ids: Vec<usize>,
    /// llama.cpp with the file as it is.
    rounded: Vec<f64>,
    /// llama.cpp with the same weights as f32: it rounds no activations.
    plain: Vec<f64>,
}

impl Golden {
    fn read(json: &str, bin: &[u8]) -> Self {
        let mut golden: Golden = serde_json::from_str(json).expect("golden answers");
        let n = golden.n_top + golden.n_spread;
        assert_eq!(bin.len(), golden.cases.len() * n * 12);
        for (case, bytes) in golden.cases.iter_mut().zip(bin.chunks_exact(n * 12)) {
            let words: Vec<[u8; 4]> = bytes.chunks_exact(4).map(|w| w.try_into().expect("four bytes")).collect();
            let values = |at: usize| words[at..at + n].iter().map(|w| f64::from(f32::from_le_bytes(*w))).collect();
            let ids = words[..n].iter().map(|w| u32::from_le_bytes(*w) as usize).collect();
            case.row = Row { ids, rounded: values(n), plain: values(2 * n) };
        }
        golden
    }
}

impl Case {
    fn greedy(&self) -> Vec<u32> {
        self.steps.iter().map(|step| step[0].0).collect()
    }

    /// The prompt and all greedy ids but the last: its last `steps.len()` rows predict the greedy ids.
    fn forced(&self) -> Vec<u32> {
        let greedy = self.greedy();
        [&self.ids[..], &greedy[..greedy.len() - 1]].concat()
    }
}

fn open_source(source: Source) -> GgufFile {
    block_on(open(source)).expect("a GGUF file")
}

/// The model of `file` on the CPU.
fn backend(file: &GgufFile) -> CpuBackend {
    backend_with(file, KvType::F16)
}

fn backend_with(file: &GgufFile, kv: KvType) -> CpuBackend {
    let model = block_on(Model::open(file)).expect("a supported model");
    let mut weights = CpuWeights::default();
    let (mut progress, cancel) = (|_: Progress<'_>| {}, CancelToken::default());
    block_on(load_weights(file, &model.weights, &mut weights, &mut progress, &cancel)).expect("whole weights");
    let plan = model.plan.with_kv(kv).expect("heads of whole blocks");
    CpuBackend::new(Arc::new(plan), weights, N_CTX).expect("every weight was loaded")
}

/// Logits after each of the last `n` of `ids`, from an empty cache.
fn last_rows(backend: &mut CpuBackend, ids: &[u32], n: usize) -> Vec<Vec<f32>> {
    let mut rows = Vec::with_capacity(n);
    for (i, chunk) in ids.chunks(64).enumerate() {
        let position = i * 64;
        block_on(backend.feed(0, chunk, position)).expect("ids of the vocabulary");
        for row in (0..chunk.len()).filter(|row| position + row + n >= ids.len()) {
            block_on(backend.head(0, row)).expect("a row");
            rows.push(block_on(backend.read_logits(0)).expect("logits"));
        }
    }
    rows
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|l| (f64::from(*l) - max).exp()).sum();
    logits.iter().map(|l| f64::from(*l) - max - sum.ln()).collect()
}

fn argmax(row: &[f64]) -> usize {
    (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("a vocabulary")
}

/// Normalised mean squared error, summed over several rows: numerator and denominator.
#[derive(Debug, Clone, Copy, Default)]
struct Nmse(f64, f64);

impl Nmse {
    /// Of two rows without their means, in which runtimes may differ.
    fn of(a: &[f64], b: &[f64]) -> Self {
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let (ma, mb) = (mean(a), mean(b));
        let add =
            |Nmse(e, n): Nmse, (a, b): (&f64, &f64)| Nmse(e + ((a - ma) - (b - mb)).powi(2), n + (b - mb).powi(2));
        a.iter().zip(b).fold(Nmse::default(), add)
    }

    fn add(&mut self, other: Nmse) {
        *self = Nmse(self.0 + other.0, self.1 + other.1);
    }

    fn value(self) -> f64 {
        self.0 / self.1
    }
}

/// What docs/numerics.md states of a model.
struct Stated {
    /// Root mean square of the difference between two runtimes' log-probabilities of likely candidates.
    logit_error: f64,
    /// NMSE to llama.cpp without rounded activations, all prompts together.
    nmse: f64,
}

/// Greedy ids of every prompt, and the logits after it, in one pass over llama.cpp's own answer.
fn check_answers(golden: &Golden, stated: &Stated) {
    let Some(path) = common::model(&golden.model) else { return };
    let file = open_source(Source::file(path).expect("the file opens"));
    let tokenizer = Tokenizer::from_metadata(&file.header.metadata).expect("a tokenizer");
    let mut backend = backend(&file);
    let [mut ours, mut theirs, mut between] = [Nmse::default(); 3];
    let (mut n_steps, mut n_equal, mut squares, mut n_squares) = (0, 0, 0.0, 0);
    for case in &golden.cases {
        assert_eq!(tokenizer.encode_prompt(&case.text), case.ids, "{}", case.name);
        let rows = last_rows(&mut backend, &case.forced(), case.steps.len());
        let rows: Vec<Vec<f64>> = rows.iter().map(|row| log_softmax(row)).collect();

        let spread = golden.n_top..;
        let prompt_row: Vec<f64> = case.row.ids.iter().map(|id| rows[0][*id]).collect();
        let (row, plain) = (&prompt_row[spread.clone()], &case.row.plain[spread.clone()]);
        let rounded = &case.row.rounded[spread];
        let nmse = Nmse::of(row, plain);
        ours.add(nmse);
        theirs.add(Nmse::of(rounded, plain));
        between.add(Nmse::of(row, rounded));

        let mut first = None;
        for (i, (step, row)) in case.steps.iter().zip(&rows).enumerate() {
            let id = argmax(row) as u32;
            n_steps += 1;
            n_equal += usize::from(id == step[0].0);
            if id != step[0].0 && first.is_none() {
                first = Some((i, gap(step, row, id)));
            }
            for (id, theirs) in step.iter().filter_map(|(id, theirs)| Some((*id, (*theirs)?))) {
                squares += (row[id as usize] - theirs).powi(2);
                n_squares += 1;
            }
        }
        println!("{} {}: nmse {:.2e}, first difference {first:?}", golden.model, case.name, nmse.value());
        if let Some((i, gap)) = first {
            // Three deviations of a difference of two logits.
            let most = 3.0 * std::f64::consts::SQRT_2 * stated.logit_error;
            assert!(gap < most, "{}: the candidates of step {i} lie {gap} apart", case.name);
        }
    }
    let error = (squares / n_squares as f64).sqrt();
    let [ours, theirs, between] = [ours, theirs, between].map(Nmse::value);
    println!("{}: {n_equal} of {n_steps} equal, logit error {error:.3}", golden.model);
    println!("nmse: {ours:.2e}, llama.cpp's own {theirs:.2e}, between {between:.2e}");
    assert!(n_equal * 100 >= n_steps * 94, "only {n_equal} of {n_steps} ids are llama.cpp's");
    assert!(error < stated.logit_error, "{error}");
    assert!(ours < stated.nmse, "{ours}");
    assert!(ours < theirs, "{ours} is further from the unrounded logits than llama.cpp's {theirs}");
    assert!(between < ours + 1.5 * theirs, "{between} is more than the two rounding errors together");
}

/// How far the two candidates change places: our lead of `ours` over llama.cpp's choice, and its lead there.
fn gap(step: &[Candidate], row: &[f64], ours: u32) -> f64 {
    let (theirs, lead) = step[0];
    let here = row[ours as usize] - row[theirs as usize];
    let Some(lead) = lead else { return here };
    match step.iter().find(|(id, _)| *id == ours) {
        Some((_, Some(logprob))) => here + lead - logprob,
        _ => f64::INFINITY,
    }
}

/// The engine's own greedy answer follows the same path: llama.cpp's up to where a forced row differs.
fn check_engine(golden: &Golden, names: &[&str]) {
    let Some(path) = common::model(&golden.model) else { return };
    let options = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(N_CTX), ..Default::default() };
    let mut engine = block_on(Engine::load(Source::file(path).expect("the file opens"), options)).expect("a model");
    for case in golden.cases.iter().filter(|case| names.contains(&case.name.as_str())) {
        let options =
            GenerateOptions { max_tokens: case.steps.len(), policy: Some(Policy::fixed(7, 4)), ..Default::default() };
        let mut generation = engine.start(&case.ids, options).expect("a prompt that fits");
        let mut ids = Vec::new();
        while let Some(piece) = block_on(engine.next(&mut generation)).expect("an answer") {
            ids.extend(piece.ids);
        }
        let equal = ids.iter().zip(case.greedy()).take_while(|(a, b)| **a == *b).count();
        if equal == case.steps.len() {
            continue;
        }
        let context = [&case.ids[..], &ids[..equal]].concat();
        let row = log_softmax(&block_on(engine.logits(&context, 0, false)).expect("logits"));
        assert_eq!(ids[equal] as usize, argmax(&row), "{}: step {equal} is not the forced row's", case.name);
    }
}

/// A copy of `file` whose tensors are f32: nothing rounds its activations.
fn plain_copy(file: &GgufFile) -> GgufFile {
    let mut writer = Writer::default();
    for tensor in file.header.tensors() {
        let bytes = (tensor.rows() * tensor.row_len() * 4) as u64;
        writer.tensor(&tensor.name, &tensor.dims, QuantType::F32.ggml_id(), bytes);
    }
    let mut bytes = writer.header();
    bytes.reserve_exact(writer.data_bytes() as usize);
    for tensor in file.header.tensors() {
        let values = block_on(read_vector(file, tensor)).expect("a whole tensor");
        bytes.extend_from_slice(bytemuck::cast_slice(&values));
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    let mut copy = open_source(Source::memory("plain copy", bytes));
    copy.header.metadata = file.header.metadata.clone();
    copy
}

/// Without rounded activations on either side only f32 rounding is left: a wrong step anywhere would show.
fn check_plain(golden: &Golden, names: &[&str]) {
    let Some(path) = common::model(&golden.model) else { return };
    let copy = plain_copy(&open_source(Source::file(path).expect("the file opens")));
    let mut backend = backend(&copy);
    drop(copy);
    for case in golden.cases.iter().filter(|case| names.contains(&case.name.as_str())) {
        let row = log_softmax(&last_rows(&mut backend, &case.ids, 1)[0]);
        let row: Vec<f64> = case.row.ids.iter().map(|id| row[*id]).collect();
        let nmse = Nmse::of(&row, &case.row.plain).value();
        println!("{} {} as f32: nmse {nmse:.2e}", golden.model, case.name);
        assert!(nmse < 1e-5, "{} {}: {nmse}", golden.model, case.name);
    }
}

/// The error to the unrounded logits with a cache of q8_0, all prompts together; of the file as it is, or of a copy.
fn check_q8_0(golden: &Golden, copy: fn(GgufFile) -> GgufFile, bound: f64) {
    let Some(path) = common::model(&golden.model) else { return };
    let file = copy(open_source(Source::file(path).expect("the file opens")));
    let mut backend = backend_with(&file, KvType::Q8_0);
    drop(file);
    let mut all = Nmse::default();
    for case in &golden.cases {
        let row = log_softmax(&last_rows(&mut backend, &case.ids, 1)[0]);
        let row: Vec<f64> = case.row.ids[golden.n_top..].iter().map(|id| row[*id]).collect();
        all.add(Nmse::of(&row, &case.row.plain[golden.n_top..]));
    }
    println!("{}, cache of q8_0: nmse {:.2e}", golden.model, all.value());
    assert!(all.value() < bound, "{}: {}", golden.model, all.value());
}

fn smollm2() -> Golden {
    Golden::read(include_str!("data/llama/smollm2.json"), include_bytes!("data/llama/smollm2.bin"))
}

fn gemma3() -> Golden {
    Golden::read(include_str!("data/llama/gemma3.json"), include_bytes!("data/llama/gemma3.bin"))
}

#[test]
fn smollm2_answers_as_llama_cpp_does() {
    check_answers(&smollm2(), &Stated { logit_error: 0.15, nmse: 1.3e-3 });
    check_engine(&smollm2(), &["short", "chatml"]);
}

#[test]
fn gemma3_answers_as_llama_cpp_does() {
    check_answers(&gemma3(), &Stated { logit_error: 0.25, nmse: 1.3e-3 });
    check_engine(&gemma3(), &["short"]);
}

#[test]
fn smollm2_as_f32_is_llama_cpp_as_f32() {
    check_plain(&smollm2(), &["short", "one-token", "python", "unicode", "chatml"]);
}

#[test]
fn gemma3_as_f32_is_llama_cpp_as_f32() {
    check_plain(&gemma3(), &["short", "lighthouse", "unicode"]);
}

#[test]
fn caches_of_q8_0_are_close_to_unrounded() {
    check_q8_0(&smollm2(), |file| file, 1.6e-3);
    check_q8_0(&gemma3(), |file| file, 1.4e-3);
    // Nothing else is rounded to int8.
    check_q8_0(&smollm2(), |file| plain_copy(&file), 3e-4);
}

/// Every block format in every architecture, and some other shapes.
fn micro_models() -> Vec<(String, MicroModel)> {
    let mut models = vec![
        ("llama3-Q4_0".to_string(), MicroModel::llama3(QuantType::Q4_0)),
        ("smol-Q4_1".to_string(), MicroModel::smol(QuantType::Q4_1)),
        ("tiny-Q8_0".to_string(), MicroModel::tiny(QuantType::Q8_0)),
        // Heads of 128 over a hidden state of 192, an output matrix of its own.
        (
            "qwen3-untied-Q4_1".to_string(),
            MicroModel { d: 192, n_heads: 6, head_dim: 128, tied: false, ..MicroModel::qwen3(QuantType::Q4_1) },
        ),
        ("qwen35moe-Q4_0".to_string(), MicroModel::qwen35moe(QuantType::Q4_0)),
        ("qwen35-deep-Q4_0".to_string(), MicroModel::qwen35(QuantType::Q4_0)),
        // Three value heads a key head, heads of 64, attention every second layer, a convolution of two.
        (
            "qwen35-wide-Q8_0".to_string(),
            MicroModel {
                n_layers: 2,
                d: 192,
                n_heads: 2,
                n_kv_heads: 1,
                delta: DeltaNet { attention_every: 2, n_key_heads: 1, n_value_heads: 3, size: 64, kernel: 2 },
                ..MicroModel::qwen35(QuantType::Q8_0)
            },
        ),
    ];
    for kind in QuantType::ALL {
        let (llama, gemma3) = (MicroModel::llama(kind), MicroModel::gemma3(kind));
        // One delta net: each makes int8's rounding count for about twice as much.
        let delta = DeltaNet { attention_every: 2, ..MicroModel::qwen35(kind).delta };
        let qwen35 = MicroModel { n_layers: 2, delta, ..MicroModel::qwen35(kind) };
        let qwen3next = MicroModel { n_layers: 2, delta, ..MicroModel::qwen3next(kind) };
        for model in [llama, gemma3, MicroModel::qwen3(kind), MicroModel::qwen3moe(kind), qwen35, qwen3next] {
            models.push((format!("{}-{kind:?}", model.arch.name()), model));
        }
    }
    models
}

#[derive(Deserialize)]
struct MicroGolden {
    ids: Vec<u32>,
    models: Vec<MicroRow>,
}

#[derive(Deserialize)]
struct MicroRow {
    name: String,
    n_vocab: usize,
    /// The greedy steps, each with its likeliest candidates, best first.
    steps: Vec<Vec<Candidate>>,
}

#[test]
fn micro_models_give_the_logits_of_llama_cpp() {
    let golden: MicroGolden = serde_json::from_str(include_str!("data/llama/micro.json")).expect("golden rows");
    let mut values = bytemuck::pod_collect_to_vec::<u8, f32>(include_bytes!("data/llama/micro.bin")).into_iter();
    let models = micro_models();
    assert_eq!(models.len(), golden.models.len());
    let mut wrong = Vec::new();
    let (mut n_steps, mut n_equal) = (0, 0);
    for MicroRow { name, n_vocab, steps } in &golden.models {
        let mut row = || -> Vec<f64> { values.by_ref().take(*n_vocab).map(f64::from).collect() };
        let (rounded, plain) = (row(), row());
        let model = &models.iter().find(|(known, _)| known == name).expect("a known model").1;
        let file = open_source(Source::memory(name, model.bytes()));
        let greedy: Vec<u32> = steps.iter().map(|step| step[0].0).collect();
        let forced = [&golden.ids[..], &greedy[..greedy.len() - 1]].concat();
        let rows = last_rows(&mut backend(&file), &forced, steps.len());
        let rows: Vec<Vec<f64>> = rows.iter().map(|row| log_softmax(row)).collect();
        let row = &rows[0];
        let plain_row = log_softmax(&last_rows(&mut backend(&plain_copy(&file)), &golden.ids, 1)[0]);
        // llama.cpp's int8 blocks of K-quants hold 256 values, and Q6_K has the largest share of that error.
        let most_between = match model.quant {
            QuantType::Q6_K => 2.5e-3,
            QuantType::Q4_K | QuantType::Q5_K => 1.5e-3,
            _ => 1e-3,
        };
        let cases =
            [("rounded", row, &rounded, most_between), ("plain", row, &plain, 1e-3), ("f32", &plain_row, &plain, 1e-5)];
        for (what, ours, theirs, most) in cases {
            let nmse = Nmse::of(ours, theirs).value();
            println!("{name} {what}: nmse {nmse:.2e}");
            if nmse.is_nan() || nmse >= most {
                wrong.push(format!("{name} {what}: {nmse:.2e}"));
            }
        }
        for (i, (step, row)) in steps.iter().zip(&rows).enumerate() {
            let id = argmax(row) as u32;
            n_steps += 1;
            n_equal += usize::from(id == step[0].0);
            // Three deviations of a difference of two logits.
            let most = 3.0 * (2.0 * most_between * variance(row)).sqrt();
            let gap = gap(step, row, id);
            if id != step[0].0 && gap >= most {
                wrong.push(format!("{name}: the candidates of step {i} lie {gap} apart, above {most}"));
            }
        }
    }
    println!("{n_equal} of {n_steps} greedy ids equal");
    assert!(n_equal * 100 >= n_steps * 94, "only {n_equal} of {n_steps} ids are llama.cpp's");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn variance(row: &[f64]) -> f64 {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64
}

/// For `tools/golden_llama.py`.
#[test]
#[ignore = "writes files"]
fn write_micro_models() {
    let folder = std::env::temp_dir().join("blueshift-micro");
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, model) in micro_models() {
        let file = File::create(folder.join(format!("{name}.gguf"))).expect("a file");
        model.write(&mut BufWriter::new(file)).expect("room on the disk");
    }
}
