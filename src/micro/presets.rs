//! Ready-made descriptions: small ones for tests, and the shapes of real models for measurements.

use super::hybrid::DeltaNet;
use super::model::{Arch, MicroModel};
use crate::quant::QuantType;

/// Sizes of a real model.
struct RealShape {
    name: &'static str,
    arch: Arch,
    n_layers: usize,
    d: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    ffn: usize,
    n_experts: usize,
    n_experts_used: usize,
    vocab: usize,
    n_ctx: usize,
    tied: bool,
    rope_theta: f32,
    rope_factor: Option<f32>,
}

const REAL_SHAPES: [RealShape; 7] = [
    RealShape {
        name: "smollm2-135m",
        arch: Arch::Llama,
        n_layers: 30,
        d: 576,
        n_heads: 9,
        n_kv_heads: 3,
        head_dim: 64,
        ffn: 1536,
        n_experts: 0,
        n_experts_used: 0,
        vocab: 49_152,
        n_ctx: 8192,
        tied: true,
        rope_theta: 1e5,
        rope_factor: None,
    },
    RealShape {
        name: "gemma-3-270m",
        arch: Arch::Gemma3,
        n_layers: 18,
        d: 640,
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 256,
        ffn: 2048,
        n_experts: 0,
        n_experts_used: 0,
        vocab: 262_144,
        n_ctx: 32_768,
        tied: true,
        rope_theta: 1e6,
        rope_factor: None,
    },
    RealShape {
        name: "llama-3.2-1b",
        arch: Arch::Llama,
        n_layers: 16,
        d: 2048,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 64,
        ffn: 8192,
        n_experts: 0,
        n_experts_used: 0,
        vocab: 128_256,
        n_ctx: 131_072,
        tied: true,
        rope_theta: 5e5,
        rope_factor: Some(32.0),
    },
    RealShape {
        name: "llama-3.1-8b",
        arch: Arch::Llama,
        n_layers: 32,
        d: 4096,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 128,
        ffn: 14_336,
        n_experts: 0,
        n_experts_used: 0,
        vocab: 128_256,
        n_ctx: 131_072,
        tied: false,
        rope_theta: 5e5,
        rope_factor: Some(8.0),
    },
    RealShape {
        name: "qwen3-0.6b",
        arch: Arch::Qwen3,
        n_layers: 28,
        d: 1024,
        n_heads: 16,
        n_kv_heads: 8,
        head_dim: 128,
        ffn: 3072,
        n_experts: 0,
        n_experts_used: 0,
        vocab: 151_936,
        n_ctx: 40_960,
        tied: true,
        rope_theta: 1e6,
        rope_factor: None,
    },
    RealShape {
        name: "qwen3-4b",
        arch: Arch::Qwen3,
        n_layers: 36,
        d: 2560,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 128,
        ffn: 9728,
        n_experts: 0,
        n_experts_used: 0,
        vocab: 151_936,
        n_ctx: 40_960,
        tied: true,
        rope_theta: 1e6,
        rope_factor: None,
    },
    RealShape {
        name: "qwen3-30b-a3b",
        arch: Arch::Qwen3Moe,
        n_layers: 48,
        d: 2048,
        n_heads: 32,
        n_kv_heads: 4,
        head_dim: 128,
        ffn: 768,
        n_experts: 128,
        n_experts_used: 8,
        vocab: 151_936,
        n_ctx: 40_960,
        tied: false,
        rope_theta: 1e6,
        rope_factor: None,
    },
];

impl MicroModel {
    /// A Llama of two layers, width 256: every block format fits its rows.
    pub fn llama(quant: QuantType) -> Self {
        Self {
            arch: Arch::Llama,
            quant,
            head_quant: quant,
            n_layers: 2,
            d: 256,
            n_heads: 8,
            n_kv_heads: 2,
            head_dim: 32,
            ffn: 512,
            n_experts: 0,
            n_experts_used: 0,
            vocab: 512,
            n_ctx: 512,
            tied: true,
            n_rot: 32,
            delta: DeltaNet { attention_every: 4, n_key_heads: 4, n_value_heads: 8, size: 32, kernel: 4 },
            rope_theta: 10_000.0,
            rope_factor: None,
            window: 0,
            eps: 1e-5,
            seed: 1,
        }
    }

    /// A Llama with Llama 3's RoPE factors and an output matrix of its own.
    pub fn llama3(quant: QuantType) -> Self {
        Self {
            tied: false,
            rope_theta: 500_000.0,
            rope_factor: Some(32.0),
            head_dim: 64,
            n_heads: 4,
            ..Self::llama(quant)
        }
    }

    /// SmolLM2's width and head layout: 576, three query heads a key head.
    pub fn smol(quant: QuantType) -> Self {
        Self { d: 576, n_heads: 9, n_kv_heads: 3, head_dim: 64, ffn: 768, rope_theta: 100_000.0, ..Self::llama(quant) }
    }

    /// A very small Llama, width 96, three query heads a key head.
    pub fn tiny(quant: QuantType) -> Self {
        Self { d: 96, n_heads: 6, n_kv_heads: 2, head_dim: 16, ffn: 160, vocab: 300, ..Self::llama(quant) }
    }

    /// A Gemma 3 of seven layers: six local ones of a short window, and one that sees all (the sixth).
    pub fn gemma3(quant: QuantType) -> Self {
        Self {
            arch: Arch::Gemma3,
            n_layers: 7,
            n_heads: 4,
            n_kv_heads: 1,
            head_dim: 64,
            rope_theta: 1_000_000.0,
            window: 32,
            eps: 1e-6,
            ..Self::llama(quant)
        }
    }

    /// A Qwen 3 of two layers, whose queries are twice as wide as its hidden state.
    pub fn qwen3(quant: QuantType) -> Self {
        Self { arch: Arch::Qwen3, head_dim: 64, rope_theta: 1_000_000.0, eps: 1e-6, ..Self::llama(quant) }
    }

    /// A Qwen 3 of two layers with eight experts, three of them used.
    pub fn qwen3moe(quant: QuantType) -> Self {
        Self { arch: Arch::Qwen3Moe, ffn: 256, n_experts: 8, n_experts_used: 3, ..Self::qwen3(quant) }
    }

    /// A Qwen 3.5 of four layers: three gated delta nets, two value heads a key head, and gated attention that rotates half of a head.
    pub fn qwen35(quant: QuantType) -> Self {
        let sizes = Self { n_layers: 4, n_heads: 4, ..Self::qwen3(quant) };
        Self { arch: Arch::Qwen35, ..sizes }
    }

    /// A Qwen 3 Next of four layers with four experts, two of them used, and a shared one.
    pub fn qwen3next(quant: QuantType) -> Self {
        Self { arch: Arch::Qwen3Next, ffn: 128, n_experts: 4, n_experts_used: 2, ..Self::qwen35(quant) }
    }

    /// The same with Qwen 3.5's order of heads.
    pub fn qwen35moe(quant: QuantType) -> Self {
        Self { arch: Arch::Qwen35Moe, ..Self::qwen3next(quant) }
    }

    /// The names `real` knows.
    pub fn real_names() -> impl Iterator<Item = &'static str> {
        REAL_SHAPES.iter().map(|s| s.name)
    }

    /// A model of a real one's shape, at its full size; `None` for an unknown name. Write it with `write`.
    pub fn real(name: &str, quant: QuantType) -> Option<Self> {
        let s = REAL_SHAPES.iter().find(|s| s.name == name)?;
        let base = match s.arch {
            Arch::Llama => Self::llama(quant),
            Arch::Gemma3 => Self { window: 512, ..Self::gemma3(quant) },
            Arch::Qwen3 => Self::qwen3(quant),
            Arch::Qwen3Next => Self::qwen3next(quant),
            Arch::Qwen35 => Self::qwen35(quant),
            Arch::Qwen35Moe => Self::qwen35moe(quant),
            Arch::Qwen3Moe => Self::qwen3moe(quant),
        };
        Some(Self {
            n_layers: s.n_layers,
            d: s.d,
            n_heads: s.n_heads,
            n_kv_heads: s.n_kv_heads,
            head_dim: s.head_dim,
            ffn: s.ffn,
            n_experts: s.n_experts,
            n_experts_used: s.n_experts_used,
            vocab: s.vocab,
            n_ctx: s.n_ctx,
            tied: s.tied,
            rope_theta: s.rope_theta,
            rope_factor: s.rope_factor,
            ..base
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_shapes_have_their_size() {
        let millions = |name| {
            let mut bytes = Count(0);
            let model = MicroModel::real(name, QuantType::Q8_0).expect("a known name");
            model.write(&mut bytes).expect("counting cannot fail");
            bytes.0 / 1_000_000
        };
        // 134.5 million weights, 34 bytes a block of 32, and a header of about 1 MB.
        assert_eq!(millions("smollm2-135m"), 144);
        // 596.0 million, and a header of about 4 MB.
        assert_eq!(millions("qwen3-0.6b"), 637);
        assert!(MicroModel::real("nobody", QuantType::F16).is_none());
    }

    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
