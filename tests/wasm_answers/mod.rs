//! Micro models and what the cpu backend makes of them: one table for every instruction set, wasm's included.

use blueshift::Result;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;

/// A weight format and the hash of what its models answer.
pub(crate) const ANSWERS: [(QuantType, u64); 11] = [
    (QuantType::F32, 0xb162_ff84_e95e_12dc),
    (QuantType::F16, 0x1455_f60e_ea0a_862d),
    (QuantType::BF16, 0xd6f4_4c17_98b9_d250),
    (QuantType::Q4_0, 0x5794_94b3_c337_d428),
    (QuantType::Q4_1, 0x635e_957f_e798_2bc2),
    (QuantType::Q5_0, 0x40c6_2fca_3b5a_a670),
    (QuantType::Q5_1, 0x7aa5_241c_4cfa_57e5),
    (QuantType::Q8_0, 0xf8ae_af07_e794_a141),
    (QuantType::Q4_K, 0x3bf6_85cf_cd8b_574f),
    (QuantType::Q5_K, 0xb4c2_fe1e_561e_b713),
    (QuantType::Q6_K, 0xdac8_b59b_09f1_3d18),
];

/// The hash of what the cpu backend answers on a Llama, a Gemma and a Qwen with experts of `kind`.
pub(crate) async fn answer(kind: QuantType) -> Result<u64> {
    let mut hash = Fnv::default();
    for micro in [MicroModel::llama3(kind), MicroModel::gemma3(kind), MicroModel::qwen3moe(kind)] {
        let options = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(128), ..LoadOptions::default() };
        let mut engine = Engine::load(Source::memory("micro", micro.bytes()), options).await?;
        ask(&mut engine, &mut hash).await?;
    }
    Ok(hash.0)
}

/// Logits of every prompt position, then an answer of the likeliest tokens and a drawn one with their texts.
async fn ask(engine: &mut Engine, hash: &mut Fnv) -> Result<()> {
    let prompt: Vec<u32> = (0..37).map(|i| i * 53 % 256).collect();
    for logit in engine.logits(&prompt, 0, true).await? {
        hash.add(&logit.to_bits().to_le_bytes());
    }
    for temperature in [0.0, 0.8] {
        let options = GenerateOptions {
            max_tokens: 8,
            sampling: Sampling::new(temperature, 42),
            ignore_eos: true,
            ..Default::default()
        };
        let mut generation = engine.start(&prompt, options)?;
        while let Some(piece) = engine.next(&mut generation).await? {
            piece.ids.iter().for_each(|id| hash.add(&id.to_le_bytes()));
            hash.add(piece.text.as_bytes());
        }
    }
    Ok(())
}

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
