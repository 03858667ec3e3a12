//! The known-answer test: a fixed micro model per weight format, decoded on the device, its bits compared with the contract's.
//!
//! It catches a device or driver that computes wrongly before the first word is shown.

use std::sync::Arc;

use super::{Gpu, GpuBackend, GpuWeights, cases};
use crate::cpu::backend::{CpuBackend, CpuWeights};
use crate::engine::backend::{Backend, Burst, First, Row, WeightSink, only};
use crate::engine::clock::now_ms;
use crate::error::{Error, Result};
use crate::gguf::{self, Source};
use crate::micro::{DeltaNet, MicroModel};
use crate::model::Model;
use crate::model::load::{CancelToken, load_weights};
use crate::plan::KvType;
use crate::quant::QuantType;
use crate::sample::Sampling;

/// Positions of the micro models' caches.
const N_CTX: usize = 128;
/// Tokens of the prompt: one page and a bit.
const PROMPT: usize = 67;
/// Logits with a larger normalised mean squared error than this are wrong, not merely rounded otherwise.
const MAX_ERROR: f64 = 1e-3;

/// The contract's answers: a hash of everything a micro model of each format gives.
const KNOWN: [(QuantType, u64); 11] = [
    (QuantType::F32, 0x59ca_503d_5490_a283),
    (QuantType::F16, 0x5cfb_90d3_522c_fbe2),
    (QuantType::BF16, 0x0270_3d17_4e99_0e48),
    (QuantType::Q4_0, 0x3aaa_e43b_27d6_3110),
    (QuantType::Q4_1, 0xfcd1_ae37_d041_7f04),
    (QuantType::Q5_0, 0x3d02_291c_9a2f_087b),
    (QuantType::Q5_1, 0x157c_2a9c_fe8b_fce2),
    (QuantType::Q8_0, 0xe882_d2f2_cf27_7f94),
    (QuantType::Q4_K, 0xd7e9_b0cf_008e_033a),
    (QuantType::Q5_K, 0x52bd_dab8_aed4_1a10),
    (QuantType::Q6_K, 0x0721_8088_4c6d_d0cd),
];

/// The same of a micro model with experts.
const KNOWN_EXPERTS: [(QuantType, u64); 11] = [
    (QuantType::F32, 0x3d3c_24eb_e6f6_292d),
    (QuantType::F16, 0x6932_2c83_82a4_ce74),
    (QuantType::BF16, 0x8e96_ba87_c471_beaa),
    (QuantType::Q4_0, 0x2352_cfef_756c_7768),
    (QuantType::Q4_1, 0x83d0_8afe_6c43_92fc),
    (QuantType::Q5_0, 0xdfbe_98be_fc1d_57d3),
    (QuantType::Q5_1, 0x6240_e650_8969_9dcc),
    (QuantType::Q8_0, 0x148e_7fcc_c7af_0849),
    (QuantType::Q4_K, 0x8ab7_5a57_31fa_0108),
    (QuantType::Q5_K, 0xf0e8_f977_6cbe_fafa),
    (QuantType::Q6_K, 0x4e86_af4c_f907_ce34),
];

/// The same of micro models with recurrent layers.
const KNOWN_RECURRENT: [(QuantType, u64); 11] = [
    (QuantType::F32, 0x6e26_50ea_4261_d6c6),
    (QuantType::F16, 0x65e3_2260_9d5d_91d1),
    (QuantType::BF16, 0x7ffd_4ddb_9166_74ff),
    (QuantType::Q4_0, 0x8322_2a4b_b850_2749),
    (QuantType::Q4_1, 0x1c91_57f9_5c87_e366),
    (QuantType::Q5_0, 0x283e_1d2d_09f6_4479),
    (QuantType::Q5_1, 0x0d22_5ff5_fdb5_6f1b),
    (QuantType::Q8_0, 0xbad0_d87f_3145_023f),
    (QuantType::Q4_K, 0x4a75_8374_2f24_6d65),
    (QuantType::Q5_K, 0xec5d_9625_a947_8720),
    (QuantType::Q6_K, 0xeb1f_5563_9768_e515),
];

/// Which operations the test covers besides those of every model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covered {
    /// Those on experts.
    pub experts: bool,
    /// Those of recurrent layers.
    pub recurrent: bool,
    /// Those on a cache of q8_0.
    pub q8_0_cache: bool,
}

impl Covered {
    /// Every operation.
    pub const ALL: Covered = Covered { experts: true, recurrent: true, q8_0_cache: true };
}

/// The same of the first models with a cache of q8_0.
const KNOWN_Q8_0_CACHE: (QuantType, u64) = (QuantType::Q8_0, 0x8339_d4ff_bb97_6a88);

/// What the test found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whether every bit is the contract's.
    pub exact: bool,
    /// The first operation whose bits differ, where one was found.
    pub first_difference: Option<String>,
    /// Time taken, shader compilation included.
    pub milliseconds: f64,
}

/// Tests `gpu` on the formats in `kinds` and on what is `covered`.
///
/// # Errors
/// [`Error::SelfTest`] where the device's logits are wrong rather than rounded otherwise.
pub async fn run(gpu: &Gpu, kinds: &[QuantType], covered: Covered) -> Result<Report> {
    let start = now_ms();
    let mut exact = true;
    let with_experts = KNOWN_EXPERTS.iter().filter(|_| covered.experts).map(|known| (known, WITH_EXPERTS));
    let recurrent = KNOWN_RECURRENT.iter().filter(|_| covered.recurrent).map(|known| (known, RECURRENT));
    let tests = KNOWN.iter().map(|known| (known, DENSE)).chain(with_experts).chain(recurrent);
    let tests = tests.filter(|((kind, _), _)| kinds.contains(kind)).map(|(known, micros)| (known, micros, KvType::F16));
    let with_q8_0 = covered.q8_0_cache.then_some((&KNOWN_Q8_0_CACHE, DENSE, KvType::Q8_0));
    for (&(kind, known), micros, kv) in tests.chain(with_q8_0) {
        let found = on_gpu(gpu, kind, micros, kv).await?;
        if found.hash() != known {
            exact = false;
            let error = found.error_against(&on_cpu(kind, micros, kv).await?);
            if error.is_nan() || error >= MAX_ERROR {
                return Err(wrong(gpu, kind, error).await);
            }
        }
    }
    let first_difference = if exact { None } else { first_difference(gpu).await };
    Ok(Report { exact, first_difference, milliseconds: now_ms() - start })
}

async fn wrong(gpu: &Gpu, kind: QuantType, error: f64) -> Error {
    let op = first_difference(gpu).await.unwrap_or_else(|| format!("a {kind:?} model"));
    Error::SelfTest {
        op,
        found: format!("logits with a normalised mean squared error of {error:.1e}"),
        expected: format!("below {MAX_ERROR:.0e}"),
    }
}

/// The first case of the operations' case tables whose bits differ from the CPU's.
async fn first_difference(gpu: &Gpu) -> Option<String> {
    let cases = cases::run_case_tables(gpu).await.ok()?;
    cases.into_iter().find(|case| !case.equal).map(|case| format!("{} ({})", case.op, case.case))
}

/// A small model that uses every operation and window, with every block format's odd ends.
fn micro_model(kind: QuantType) -> MicroModel {
    MicroModel {
        n_layers: 1,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 32,
        ffn: 256,
        vocab: 270,
        n_ctx: N_CTX,
        ..MicroModel::llama(kind)
    }
}

/// The same for Gemma's operations: norms of heads and after each part, GELU, a window shorter than the prompt.
fn micro_gemma(kind: QuantType) -> MicroModel {
    MicroModel {
        n_layers: 1,
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 64,
        ffn: 256,
        vocab: 270,
        n_ctx: N_CTX,
        ..MicroModel::gemma3(kind)
    }
}

/// The same for experts.
fn micro_experts(kind: QuantType) -> MicroModel {
    MicroModel {
        n_layers: 1,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 32,
        n_experts: 4,
        n_experts_used: 2,
        vocab: 270,
        n_ctx: N_CTX,
        ..MicroModel::qwen3moe(kind)
    }
}

/// The same for a gated delta net and gated attention.
fn micro_recurrent(kind: QuantType) -> MicroModel {
    hybrid(MicroModel::qwen35(kind))
}

/// The same with experts and a shared one.
fn micro_shared_expert(kind: QuantType) -> MicroModel {
    hybrid(MicroModel::qwen3next(kind))
}

fn hybrid(base: MicroModel) -> MicroModel {
    MicroModel {
        n_layers: 2,
        delta: DeltaNet { attention_every: 2, n_key_heads: 1, n_value_heads: 2, size: 32, kernel: 4 },
        n_heads: 2,
        n_kv_heads: 1,
        head_dim: 32,
        n_rot: 16,
        ffn: 256,
        vocab: 270,
        n_ctx: N_CTX,
        ..base
    }
}

/// Micro models of a format.
type Micros = &'static [fn(QuantType) -> MicroModel];
const DENSE: Micros = &[micro_model, micro_gemma];
const WITH_EXPERTS: Micros = &[micro_experts];
const RECURRENT: Micros = &[micro_recurrent, micro_shared_expert];

/// Everything the micro models gave.
#[derive(Default)]
struct Answer {
    prompt_logits: Vec<f32>,
    /// After the drawn tokens.
    last_logits: Vec<f32>,
    ids: Vec<u32>,
}

impl Answer {
    /// FNV-1a over the bits of the logits, then the ids.
    fn hash(&self) -> u64 {
        let logits = self.prompt_logits.iter().chain(&self.last_logits);
        let words = logits.map(|x| x.to_bits()).chain(self.ids.iter().copied());
        words
            .flat_map(u32::to_le_bytes)
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// Normalised mean squared error of the prompts' logits; what comes after depends on the tokens drawn.
    fn error_against(&self, truth: &Answer) -> f64 {
        let square = |x: f64| x * x;
        let pairs = || self.prompt_logits.iter().zip(&truth.prompt_logits);
        let error: f64 = pairs().map(|(a, b)| square(f64::from(a - b))).sum();
        error / pairs().map(|(_, b)| square(f64::from(*b))).sum::<f64>()
    }
}

/// A model opened and loaded into `sink`.
async fn load(micro: MicroModel, sink: &mut impl WeightSink) -> Result<Model> {
    let file = gguf::open(Source::memory("self-test", micro.bytes())).await?;
    let model = Model::open(&file).await?;
    load_weights(&file, &model.weights, sink, &mut |_| {}, &CancelToken::default()).await?;
    Ok(model)
}

/// Prefills in two chunks, reads logits, decodes greedily, then draws.
async fn ask(backend: &mut impl Backend, answer: &mut Answer) -> Result<()> {
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| i * 53 % 256).collect();
    let (first, second) = prompt.split_at(60.min(backend.max_chunk()));
    backend.feed(0, first, 0).await?;
    backend.feed(0, second, first.len()).await?;
    backend.head(0, second.len() - 1).await?;
    answer.prompt_logits.extend(backend.read_logits(0).await?);
    let (greedy, drawn) = (Sampling::GREEDY, Sampling::new(0.8, 42));
    for (first, position, steps, sampling) in
        [(First::FromLogits, PROMPT, 3, &greedy), (First::FromState, PROMPT + 2, 3, &drawn)]
    {
        let row = Row::new(0, first, position, sampling);
        answer.ids.extend(only(backend.burst(Burst { rows: &[row], steps }).await?).ids);
    }
    answer.last_logits.extend(backend.read_logits(0).await?);
    Ok(())
}

async fn on_gpu(gpu: &Gpu, kind: QuantType, micros: Micros, kv: KvType) -> Result<Answer> {
    let mut answer = Answer::default();
    for micro in micros.iter().map(|micro| micro(kind)) {
        let mut weights = GpuWeights::new(gpu);
        let model = load(micro, &mut weights).await?;
        ask(&mut GpuBackend::new(gpu, Arc::new(model.plan.with_kv(kv)?), weights, N_CTX).await?, &mut answer).await?;
    }
    Ok(answer)
}

async fn on_cpu(kind: QuantType, micros: Micros, kv: KvType) -> Result<Answer> {
    let mut answer = Answer::default();
    for micro in micros.iter().map(|micro| micro(kind)) {
        let mut weights = CpuWeights::default();
        let model = load(micro, &mut weights).await?;
        ask(&mut CpuBackend::with_threads(Arc::new(model.plan.with_kv(kv)?), weights, N_CTX, 1)?, &mut answer).await?;
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_are_the_cpu_backends() {
        let hash = |kind, micros, kv| pollster::block_on(on_cpu(kind, micros, kv)).unwrap().hash();
        for (known, micros) in [(KNOWN, DENSE), (KNOWN_EXPERTS, WITH_EXPERTS), (KNOWN_RECURRENT, RECURRENT)] {
            let found = known.map(|(kind, _)| (kind, hash(kind, micros, KvType::F16)));
            let shown = found.map(|(kind, hash)| format!("(QuantType::{kind:?}, {hash:#018x})")).join(",\n    ");
            assert_eq!(found, known, "the contract's answers are\n    {shown}");
        }
        let found = hash(KNOWN_Q8_0_CACHE.0, DENSE, KvType::Q8_0);
        assert_eq!(found, KNOWN_Q8_0_CACHE.1, "the contract's answer is {found:#018x}");
    }

    #[test]
    fn one_changed_bit_changes_the_hash() {
        let mut answer = Answer { prompt_logits: vec![1.0, 2.0], last_logits: Vec::new(), ids: vec![3] };
        let before = answer.hash();
        answer.prompt_logits[1] = f32::from_bits(answer.prompt_logits[1].to_bits() ^ 1);
        assert_ne!(answer.hash(), before);
    }
}
