//! A micro model's description, and its file.

use std::io::{self, Write};

use super::blocks::push_row;
use super::hybrid::DeltaNet;
use super::rng::Rng;
use super::tokenizer::{MIN_VOCAB, add_tokenizer};
use super::writer::Writer;
use crate::quant::QuantType;

/// Bytes of weights made before they are written.
const CHUNK_BYTES: usize = 1 << 20;

/// The architectures that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// Llama, SmolLM and their like.
    Llama,
    /// Gemma 3, text only.
    Gemma3,
    /// Qwen 3, dense.
    Qwen3,
    /// Qwen 3, mixture of experts.
    Qwen3Moe,
    /// Qwen 3 Next: gated delta nets, gated attention, mixture of experts with a shared one.
    Qwen3Next,
    /// Qwen 3.5, dense: gated delta nets and gated attention.
    Qwen35,
    /// Qwen 3.5, mixture of experts.
    Qwen35Moe,
}

impl Arch {
    /// `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Gemma3 => "gemma3",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
            Self::Qwen3Next => "qwen3next",
            Self::Qwen35 => "qwen35",
            Self::Qwen35Moe => "qwen35moe",
        }
    }
}

/// What to write. Sizes count elements.
#[derive(Debug, Clone, PartialEq)]
pub struct MicroModel {
    /// The architecture.
    pub arch: Arch,
    /// Type of the matrices in the layers. Where a row is no multiple of 256, a type with such blocks falls back as
    /// llama.cpp's quantiser does.
    pub quant: QuantType,
    /// Type of the embedding and of the output matrix; falls back, too.
    pub head_quant: QuantType,
    /// Layers.
    pub n_layers: usize,
    /// Width of the hidden state.
    pub d: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer; of one expert where there are experts.
    pub ffn: usize,
    /// Experts of a feed-forward layer; 0 for none.
    pub n_experts: usize,
    /// Experts that a token uses.
    pub n_experts_used: usize,
    /// Tokens; fewer than the stub tokenizer needs (270) count as 270.
    pub vocab: usize,
    /// Longest context.
    pub n_ctx: usize,
    /// Whether the embedding is the output matrix, too.
    pub tied: bool,
    /// Rotated values a head.
    pub n_rot: usize,
    /// Sizes of the gated delta net layers; written where the architecture has them.
    pub delta: DeltaNet,
    /// Base of the RoPE frequencies.
    pub rope_theta: f32,
    /// Llama 3's factor for long contexts; writes `rope_freqs.weight`.
    pub rope_factor: Option<f32>,
    /// Sliding window of Gemma's local layers.
    pub window: usize,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Seed of the weights.
    pub seed: u64,
}

/// One tensor: its name, its dimensions (row length first) and how it is filled.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    pub(super) kind: QuantType,
    pub(super) fill: Fill,
}

#[derive(Clone, Copy)]
pub(super) enum Fill {
    /// Zero mean, deviation `1 / sqrt(row length)`.
    Matrix,
    /// Around 1.
    Norm,
    /// Uniform between two values, -4 to 0 for example.
    Uniform(f32, f32),
    /// Llama 3's divisors of the RoPE frequencies.
    RopeFactors,
}

impl MicroModel {
    /// Tokens written.
    fn n_vocab(&self) -> usize {
        self.vocab.max(MIN_VOCAB)
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to memory cannot fail.
        let _ = self.write(&mut out);
        out
    }

    /// Writes the file, a part of a tensor at a time.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let tensors = self.tensors();
        let mut header = self.metadata();
        for t in &tensors {
            let dims: Vec<u64> = t.dims.iter().map(|d| *d as u64).collect();
            header.tensor(&t.name, &dims, t.kind.ggml_id(), t.n_bytes() as u64);
        }
        out.write_all(&header.header())?;
        for t in &tensors {
            self.write_tensor(t, out)?;
            let padding = t.n_bytes().next_multiple_of(32) - t.n_bytes();
            out.write_all(&[0; 32][..padding])?;
        }
        Ok(())
    }

    fn write_tensor(&self, t: &Tensor, out: &mut impl Write) -> io::Result<()> {
        let mut rng = Rng::new(self.seed, &t.name);
        let k = t.dims[0];
        let mut chunk = Vec::new();
        for _ in 0..t.rows() {
            match t.fill {
                Fill::Matrix => push_row(&mut rng, t.kind, k, 1.0 / (k as f32).sqrt(), &mut chunk),
                Fill::Norm => chunk.extend((0..k).flat_map(|_| rng.uniform(0.9, 1.1).to_le_bytes())),
                Fill::Uniform(low, high) => chunk.extend((0..k).flat_map(|_| rng.uniform(low, high).to_le_bytes())),
                Fill::RopeFactors => chunk.extend(self.rope_factors().iter().flat_map(|f| f.to_le_bytes())),
            }
            if chunk.len() >= CHUNK_BYTES {
                out.write_all(&chunk)?;
                chunk.clear();
            }
        }
        out.write_all(&chunk)
    }

    /// The tensors in the file's order.
    fn tensors(&self) -> Vec<Tensor> {
        let mut list = vec![matrix("token_embd.weight", self.n_vocab(), self.d, self.head_quant)];
        if self.rope_factor.is_some() {
            let dims = vec![self.head_dim / 2];
            let fill = Fill::RopeFactors;
            list.push(Tensor { name: "rope_freqs.weight".into(), dims, kind: QuantType::F32, fill });
        }
        for layer in 0..self.n_layers {
            match self.arch {
                Arch::Qwen3Next | Arch::Qwen35 | Arch::Qwen35Moe => self.push_hybrid_layer(layer, &mut list),
                _ => self.push_layer(layer, &mut list),
            }
        }
        list.push(norm("output_norm.weight", self.d));
        if !self.tied {
            list.push(matrix("output.weight", self.n_vocab(), self.d, self.head_quant));
        }
        list
    }

    fn push_layer(&self, layer: usize, list: &mut Vec<Tensor>) {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let weight = |stem: &str, rows, k| matrix(&name(stem), rows, k, self.quant);
        let (q, kv) = (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim);
        list.extend([
            norm(&name("attn_norm"), self.d),
            weight("attn_q", q, self.d),
            weight("attn_k", kv, self.d),
            weight("attn_v", kv, self.d),
            weight("attn_output", self.d, q),
            norm(&name("ffn_norm"), self.d),
        ]);
        self.push_feed_forward(layer, list);
        if self.arch != Arch::Llama {
            list.extend([norm(&name("attn_q_norm"), self.head_dim), norm(&name("attn_k_norm"), self.head_dim)]);
        }
        if self.arch == Arch::Gemma3 {
            list.extend([norm(&name("post_attention_norm"), self.d), norm(&name("post_ffw_norm"), self.d)]);
        }
    }

    /// A gated feed-forward part, or experts: `ffn` is the width of one.
    pub(super) fn push_feed_forward(&self, layer: usize, list: &mut Vec<Tensor>) {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let weight = |stem: &str, rows, k| matrix(&name(stem), rows, k, self.quant);
        let (d, ffn, n_experts) = (self.d, self.ffn, self.n_experts);
        if n_experts == 0 {
            list.extend([weight("ffn_gate", ffn, d), weight("ffn_up", ffn, d), weight("ffn_down", d, ffn)]);
            return;
        }
        let experts = |stem: &str, rows, k| Tensor {
            dims: vec![k, rows, n_experts],
            ..matrix(&name(stem), n_experts * rows, k, self.quant)
        };
        list.extend([
            matrix(&name("ffn_gate_inp"), n_experts, d, QuantType::F32),
            experts("ffn_gate_exps", ffn, d),
            experts("ffn_up_exps", ffn, d),
            experts("ffn_down_exps", d, ffn),
        ]);
    }

    fn metadata(&self) -> Writer {
        let arch = self.arch.name();
        let mut w = Writer::default();
        w.str("general.architecture", arch);
        w.str("general.name", &format!("micro {arch} {:?}", self.quant));
        w.u32("general.quantization_version", 2);
        for (key, value) in [
            ("block_count", self.n_layers),
            ("context_length", self.n_ctx),
            ("embedding_length", self.d),
            ("feed_forward_length", self.ffn * self.n_experts_used.max(1)),
            ("attention.head_count", self.n_heads),
            ("attention.head_count_kv", self.n_kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
        ] {
            w.u32(&format!("{arch}.{key}"), value as u32);
        }
        w.f32(&format!("{arch}.rope.freq_base"), self.rope_theta);
        w.f32(&format!("{arch}.attention.layer_norm_rms_epsilon"), self.eps);
        match self.arch {
            Arch::Llama => {
                w.u32("llama.rope.dimension_count", self.head_dim as u32);
                w.u32("llama.vocab_size", self.n_vocab() as u32);
            }
            Arch::Gemma3 => w.u32("gemma3.attention.sliding_window", self.window as u32),
            Arch::Qwen3 => {}
            Arch::Qwen3Moe => {}
            Arch::Qwen3Next | Arch::Qwen35 | Arch::Qwen35Moe => self.hybrid_metadata(&mut w),
        }
        if self.n_experts > 0 {
            w.u32(&format!("{arch}.expert_count"), self.n_experts as u32);
            w.u32(&format!("{arch}.expert_used_count"), self.n_experts_used as u32);
            w.u32(&format!("{arch}.expert_feed_forward_length"), self.ffn as u32);
        }
        add_tokenizer(&mut w, self.n_vocab());
        w
    }

    /// Llama 3's divisors, one a pair of dimensions: 1 for short waves, `rope_factor` for long ones, between them a
    /// blend.
    fn rope_factors(&self) -> Vec<f32> {
        const OLD_CONTEXT: f64 = 8192.0;
        const LOW: f64 = 1.0;
        const HIGH: f64 = 4.0;
        let factor = f64::from(self.rope_factor.unwrap_or(1.0));
        let divisor = |i: usize| {
            let exponent = 2.0 * i as f64 / self.head_dim as f64;
            let wavelength = std::f64::consts::TAU * libm::pow(f64::from(self.rope_theta), exponent);
            let blend = ((OLD_CONTEXT / wavelength - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
            1.0 / (blend + (1.0 - blend) / factor)
        };
        (0..self.head_dim / 2).map(|i| divisor(i) as f32).collect()
    }
}

impl Tensor {
    fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    fn n_bytes(&self) -> usize {
        self.rows() * self.kind.row_bytes(self.dims[0])
    }
}

pub(super) fn matrix(name: &str, rows: usize, k: usize, kind: QuantType) -> Tensor {
    Tensor { name: name.into(), dims: vec![k, rows], kind: fitting(kind, k), fill: Fill::Matrix }
}

/// The type a matrix with rows of `k` weights gets when `kind` is asked for.
fn fitting(kind: QuantType, k: usize) -> QuantType {
    let smaller = match kind {
        QuantType::Q4_K => QuantType::Q5_0,
        QuantType::Q5_K => QuantType::Q5_1,
        QuantType::Q6_K => QuantType::Q8_0,
        other => other,
    };
    if k.is_multiple_of(kind.block_len()) { kind } else { smaller }
}

pub(super) fn norm(name: &str, n: usize) -> Tensor {
    Tensor { name: name.into(), dims: vec![n], kind: QuantType::F32, fill: Fill::Norm }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{GgufFile, Source, open};

    fn opened(model: &MicroModel) -> GgufFile {
        pollster::block_on(open(Source::memory("micro", model.bytes()))).expect("a valid file")
    }

    #[test]
    fn every_preset_opens_in_every_type() {
        for quant in QuantType::ALL {
            let (llama, llama3) = (MicroModel::llama(quant), MicroModel::llama3(quant));
            let (smol, tiny, gemma3) = (MicroModel::smol(quant), MicroModel::tiny(quant), MicroModel::gemma3(quant));
            let (qwen3, qwen3moe) = (MicroModel::qwen3(quant), MicroModel::qwen3moe(quant));
            for model in [llama, llama3, smol, tiny, gemma3, qwen3, qwen3moe] {
                let header = opened(&model).header;
                assert_eq!(header.tensors().len(), model.tensors().len(), "{model:?}");
                let down = if model.n_experts > 0 { "blk.1.ffn_down_exps.weight" } else { "blk.1.ffn_down.weight" };
                assert_eq!(header.require(down).expect("there").kind, fitting(quant, model.ffn));
                assert_eq!(header.tensor("output.weight").is_none(), model.tied);
                let tokens = header.metadata.strings("tokenizer.ggml.tokens").expect("a vocabulary").count();
                assert_eq!(tokens, model.vocab);
            }
        }
    }

    #[test]
    fn the_model_with_experts_has_its_published_size() {
        let model = MicroModel::real("qwen3-30b-a3b", QuantType::Q4_K).expect("a known name");
        let weights: usize = model.tensors().iter().map(|t| t.rows() * t.dims[0]).sum();
        assert_eq!(weights, 30_532_122_624);
    }

    #[test]
    fn same_description_same_bytes() {
        let model = MicroModel::tiny(QuantType::Q5_1);
        assert_eq!(model.bytes(), model.bytes());
        assert_ne!(model.bytes(), MicroModel { seed: 2, ..model.clone() }.bytes());
    }

    #[test]
    fn weights_have_the_wanted_deviation() {
        let file = opened(&MicroModel::llama(QuantType::F32));
        let info = file.header.require("blk.0.attn_q.weight").expect("there");
        let bytes = file.tensor_bytes(info).expect("in memory");
        let weights: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let n = weights.len() as f32;
        let mean = weights.iter().sum::<f32>() / n;
        let square = weights.iter().map(|w| w * w).sum::<f32>() / n;
        assert!(mean.abs() < 1e-3, "{mean}");
        assert!((square * info.row_len() as f32 - 1.0).abs() < 0.02, "{square}");
    }

    #[test]
    fn rope_factors_blend_from_one_to_the_factor() {
        let factors = MicroModel::llama3(QuantType::F32).rope_factors();
        assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 32.0));
        assert!(factors.windows(2).all(|w| w[0] <= w[1]), "{factors:?}");
    }
}
