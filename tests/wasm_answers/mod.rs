//! Micro models and what the cpu backend makes of them: one table for every instruction set, wasm's included.

use blueshift::Result;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;

/// A weight format and the hash of what its two models answer.
pub(crate) const ANSWERS: [(QuantType, u64); 11] = [
    (QuantType::F32, 0x3edc_a961_2e65_815c),
    (QuantType::F16, 0x4a0f_ef6c_a62b_06a2),
    (QuantType::BF16, 0x3c92_32b0_bc12_23b5),
    (QuantType::Q4_0, 0x5e5d_528a_6c40_25aa),
    (QuantType::Q4_1, 0x9c57_c348_c9cc_cb33),
    (QuantType::Q5_0, 0x1cc2_d2a7_14ad_be39),
    (QuantType::Q5_1, 0x56eb_e866_7633_17cd),
    (QuantType::Q8_0, 0x2841_0936_f317_5003),
    (QuantType::Q4_K, 0x4bbb_ba82_e9dc_f916),
    (QuantType::Q5_K, 0xf0be_f4b5_85c2_9933),
    (QuantType::Q6_K, 0xb33a_7967_0392_b80d),
];

/// The hash of what the cpu backend answers on a Llama and a Gemma of `kind`.
pub(crate) async fn answer(kind: QuantType) -> Result<u64> {
    let mut hash = Fnv::default();
    for micro in [MicroModel::llama3(kind), MicroModel::gemma3(kind)] {
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
