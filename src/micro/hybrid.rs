//! Layers of the architectures with gated delta nets.

use super::model::{Arch, Fill, MicroModel, Tensor, matrix, norm};
use super::writer::Writer;
use crate::quant::QuantType;

/// Sizes of the gated delta net layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNet {
    /// Every which layer attends instead.
    pub attention_every: usize,
    /// Heads of queries and of keys.
    pub n_key_heads: usize,
    /// Heads of values.
    pub n_value_heads: usize,
    /// Width of a head.
    pub size: usize,
    /// Width of the convolution.
    pub kernel: usize,
}

impl DeltaNet {
    fn values(self) -> usize {
        self.n_value_heads * self.size
    }

    fn channels(self) -> usize {
        2 * self.n_key_heads * self.size + self.values()
    }
}

impl MicroModel {
    /// Width of the shared expert: not that of the others.
    fn n_shared(&self) -> usize {
        2 * self.ffn
    }

    /// A layer of gated attention or of a gated delta net.
    pub(super) fn push_hybrid_layer(&self, layer: usize, list: &mut Vec<Tensor>) {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let weight = |stem: &str, rows, k| matrix(&name(stem), rows, k, self.quant);
        let (q, kv, delta) = (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim, self.delta);
        list.push(norm(&name("attn_norm"), self.d));
        if (layer + 1).is_multiple_of(delta.attention_every) {
            list.extend([
                weight("attn_q", 2 * q, self.d),
                weight("attn_k", kv, self.d),
                weight("attn_v", kv, self.d),
                weight("attn_output", self.d, q),
                norm(&name("attn_q_norm"), self.head_dim),
                norm(&name("attn_k_norm"), self.head_dim),
            ]);
        } else {
            let uniform = |name: String, dims: Vec<usize>, low, high| Tensor {
                name,
                dims,
                kind: QuantType::F32,
                fill: Fill::Uniform(low, high),
            };
            let heads = vec![delta.n_value_heads];
            match self.arch {
                Arch::Qwen3Next => list.push(weight("ssm_ba", 2 * delta.n_value_heads, self.d)),
                _ => list.extend(["ssm_beta", "ssm_alpha"].map(|stem| weight(stem, delta.n_value_heads, self.d))),
            }
            list.extend([
                weight("attn_qkv", delta.channels(), self.d),
                weight("attn_gate", delta.values(), self.d),
                uniform(name("ssm_conv1d"), vec![delta.kernel, delta.channels()], -1.0, 1.0),
                uniform(format!("blk.{layer}.ssm_dt.bias"), heads.clone(), -2.0, 2.0),
                uniform(format!("blk.{layer}.ssm_a"), heads, -1.0, -0.01),
                norm(&name("ssm_norm"), delta.size),
                weight("ssm_out", self.d, delta.values()),
            ]);
        }
        list.push(norm(&name("post_attention_norm"), self.d));
        self.push_feed_forward(layer, list);
        if self.n_experts > 0 {
            let shared = self.n_shared();
            list.extend([
                Tensor { dims: vec![self.d], ..matrix(&name("ffn_gate_inp_shexp"), 1, self.d, QuantType::F32) },
                weight("ffn_gate_shexp", shared, self.d),
                weight("ffn_up_shexp", shared, self.d),
                weight("ffn_down_shexp", self.d, shared),
            ]);
        }
    }

    /// What only these architectures have.
    pub(super) fn hybrid_metadata(&self, w: &mut Writer) {
        let (arch, delta) = (self.arch.name(), self.delta);
        for (key, value) in [
            ("rope.dimension_count", self.n_rot),
            ("full_attention_interval", delta.attention_every),
            ("ssm.conv_kernel", delta.kernel),
            ("ssm.state_size", delta.size),
            ("ssm.group_count", delta.n_key_heads),
            ("ssm.time_step_rank", delta.n_value_heads),
            ("ssm.inner_size", delta.values()),
        ] {
            w.u32(&format!("{arch}.{key}"), value as u32);
        }
        if self.arch != Arch::Qwen3Next {
            // Pairs by kind of position; all kinds are the same for text.
            let thirds = self.n_rot as i32 / 6;
            let sections = [self.n_rot as i32 / 2 - 2 * thirds, thirds, thirds, 0];
            w.i32s(&format!("{arch}.rope.dimension_sections"), &sections);
        }
        if self.n_experts > 0 {
            w.u32(&format!("{arch}.expert_shared_feed_forward_length"), self.n_shared() as u32);
        }
    }
}
