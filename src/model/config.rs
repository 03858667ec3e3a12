//! Hyper-parameters, read from the metadata and checked.

use crate::error::{Error, Result};
use crate::gguf::{Header, Metadata};
use crate::plan::RopeTable;

/// Hyper-parameters common to the supported architectures.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub n_layers: usize,
    /// Layers that follow them in the file and predict tokens further on, which a step does not run.
    pub n_draft_layers: usize,
    /// Width of the hidden state.
    pub d: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads.
    pub n_kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// Width of the feed-forward part; of one expert where there are experts.
    pub n_ffn: usize,
    /// Experts of the feed-forward part, where it has any.
    pub experts: Option<Experts>,
    /// Tokens.
    pub n_vocab: usize,
    /// Positions the model was trained on.
    pub n_ctx_train: usize,
    /// Epsilon of the RMS norms.
    pub eps: f32,
    /// RoPE's base.
    pub rope_theta: f64,
    /// Rotated values a head.
    pub n_rot: usize,
    /// Divisor of all RoPE frequencies (linear scaling); 1 where there is none.
    pub rope_factor: f64,
    /// Sliding window in tokens, where the architecture has one.
    pub window: Option<usize>,
}

/// Experts of a layer's feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// All of them.
    pub n_experts: usize,
    /// Those that a row picks.
    pub n_used: usize,
}

/// Experts that backends have room for: all of a layer, and those that a row picks.
const MAX_EXPERTS: usize = 512;
const MAX_EXPERTS_USED: usize = 64;

/// Upper bounds that keep a damaged file from asking for absurd sizes.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_CONTEXT: usize = 1 << 30;

impl Config {
    /// Reads and checks the hyper-parameters of `header`.
    pub fn from_header(header: &Header) -> Result<Self> {
        let meta = &header.metadata;
        let architecture = meta.str("general.architecture")?.to_string();
        let keys = Keys { meta, architecture: &architecture };
        let d = keys.width("embedding_length")?;
        let n_heads = keys.bounded("attention.head_count", 1..=MAX_WIDTH)?;
        let n_kv_heads = keys.opt("attention.head_count_kv")?.unwrap_or(n_heads);
        let head_dim = keys.opt("attention.key_length")?.unwrap_or(d / n_heads);
        let n_blocks = keys.bounded("block_count", 1..=MAX_LAYERS)?;
        let n_draft_layers = keys.opt("nextn_predict_layers")?.unwrap_or(0);
        if n_draft_layers >= n_blocks {
            let found = n_draft_layers.to_string();
            let expected = format!("less than the {n_blocks} blocks");
            return Err(Error::BadValue { key: keys.name("nextn_predict_layers"), found, expected });
        }
        let experts = keys.experts()?;
        let config = Config {
            n_layers: n_blocks - n_draft_layers,
            n_draft_layers,
            d,
            n_heads,
            n_kv_heads,
            head_dim,
            n_ffn: keys.n_ffn(experts)?,
            experts,
            n_vocab: header.require("token_embd.weight")?.rows(),
            n_ctx_train: keys.bounded("context_length", 1..=MAX_CONTEXT)?,
            eps: meta.f32(&keys.name("attention.layer_norm_rms_epsilon"))?,
            rope_theta: meta.opt_f32(&keys.name("rope.freq_base"))?.unwrap_or(10_000.0) as f64,
            n_rot: keys.opt("rope.dimension_count")?.unwrap_or(head_dim),
            rope_factor: keys.rope_factor()?,
            window: keys.opt("attention.sliding_window")?.filter(|w| *w > 0).map(|w| w.min(MAX_CONTEXT)),
            architecture: architecture.clone(),
        };
        config.check(&keys)?;
        Ok(config)
    }

    fn check(&self, keys: &Keys<'_>) -> Result<()> {
        let bad = |key: &str, found: String, expected: &str| {
            Err(Error::BadValue { key: keys.name(key), found, expected: expected.into() })
        };
        if self.n_kv_heads == 0 || !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return bad("attention.head_count_kv", self.n_kv_heads.to_string(), "a divisor of the head count");
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(8) || self.head_dim > 256 {
            return bad("attention.key_length", self.head_dim.to_string(), "a multiple of 8 up to 256");
        }
        if let Some(v) = keys.opt("attention.value_length")?
            && v != self.head_dim
        {
            return bad("attention.value_length", v.to_string(), "the key length");
        }
        if !self.n_rot.is_multiple_of(2) || self.n_rot > self.head_dim {
            return bad("rope.dimension_count", self.n_rot.to_string(), "an even number up to the head size");
        }
        if !(self.eps.is_finite() && self.eps > 0.0) {
            return bad("attention.layer_norm_rms_epsilon", self.eps.to_string(), "a positive number");
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 1.0) {
            return bad("rope.freq_base", self.rope_theta.to_string(), "a number above 1");
        }
        Ok(())
    }

    /// RoPE frequencies for a base, each divided by `rope_factor` and by its entry in `divisors`, if any.
    ///
    /// `theta^(-2i / n_rot)`: Su et al., RoFormer (2021), equation 15.
    pub fn rope_table(&self, theta: f64, factor: f64, divisors: Option<&[f32]>) -> RopeTable {
        let frequencies = (0..self.n_rot / 2)
            .map(|i| {
                let divisor = divisors.map_or(1.0, |d| d[i] as f64);
                libm::pow(theta, -2.0 * i as f64 / self.n_rot as f64) / divisor / factor
            })
            .collect();
        RopeTable { frequencies, magnitude: 1.0 }
    }
}

/// Keys below the architecture's prefix.
pub(super) struct Keys<'a> {
    pub(super) meta: &'a Metadata,
    pub(super) architecture: &'a str,
}

impl Keys<'_> {
    pub(super) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn opt(&self, key: &str) -> Result<Option<usize>> {
        self.meta.opt_usize(&self.name(key))
    }

    pub(super) fn bounded(&self, key: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize> {
        let name = self.name(key);
        let value = self.meta.usize(&name)?;
        if range.contains(&value) {
            return Ok(value);
        }
        let expected = format!("a number from {} to {}", range.start(), range.end());
        Err(Error::BadValue { key: name, found: value.to_string(), expected })
    }

    /// A width: a multiple of 32.
    pub(super) fn width(&self, key: &str) -> Result<usize> {
        let value = self.bounded(key, 32..=MAX_WIDTH)?;
        self.multiple_of_32(key, value)
    }

    fn multiple_of_32(&self, key: &str, value: usize) -> Result<usize> {
        if value.is_multiple_of(32) && value > 0 {
            return Ok(value);
        }
        Err(Error::BadValue { key: self.name(key), found: value.to_string(), expected: "a multiple of 32".into() })
    }

    /// The experts, where the file has any.
    fn experts(&self) -> Result<Option<Experts>> {
        if matches!(self.opt("expert_count")?, None | Some(0)) {
            return Ok(None);
        }
        let n_experts = self.bounded("expert_count", 1..=MAX_EXPERTS)?;
        let n_used = self.bounded("expert_used_count", 1..=n_experts.min(MAX_EXPERTS_USED))?;
        Ok(Some(Experts { n_experts, n_used }))
    }

    /// Width of the feed-forward part; a file may give that of all used experts together, as llama.cpp reads it.
    fn n_ffn(&self, experts: Option<Experts>) -> Result<usize> {
        let (all, one) = ("feed_forward_length", "expert_feed_forward_length");
        match experts {
            None => self.width(all),
            Some(experts) if matches!(self.opt(one)?, None | Some(0)) => {
                self.multiple_of_32(all, self.width(all)? / experts.n_used)
            }
            Some(_) => self.width(one),
        }
    }

    /// The divisor of linear RoPE scaling.
    fn rope_factor(&self) -> Result<f64> {
        let kind = self.name("rope.scaling.type");
        let factor = self.meta.opt_f32(&self.name("rope.scaling.factor"))?;
        match self.meta.opt_str(&kind)? {
            Some("none") => Ok(1.0),
            // A factor of 0 stands for none, and a factor without a type for linear scaling, as llama.cpp reads them.
            None | Some("linear") => match factor {
                None | Some(0.0) => Ok(1.0),
                Some(f) if f > 0.0 => Ok(f as f64),
                Some(f) => Err(Error::BadValue {
                    key: self.name("rope.scaling.factor"),
                    found: f.to_string(),
                    expected: "a positive number".into(),
                }),
            },
            Some(other) => Err(Error::BadValue {
                key: kind,
                found: format!("{other:?}"),
                expected: "\"none\" or \"linear\"".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Value;

    #[test]
    fn rope_scaling_is_linear_or_none() {
        let cases = [
            (None, None, Some(1.0)),
            (None, Some(4.0), Some(4.0)),
            (Some("linear"), Some(8.0), Some(8.0)),
            (Some("linear"), Some(0.0), Some(1.0)),
            (Some("none"), Some(8.0), Some(1.0)),
            (Some("linear"), Some(-1.0), None),
            (Some("yarn"), Some(4.0), None),
            (Some("longrope"), None, None),
        ];
        for (kind, factor, expected) in cases {
            let mut meta = Metadata::default();
            if let Some(kind) = kind {
                meta.insert("qwen3.rope.scaling.type", Value::String(kind.into()));
            }
            if let Some(factor) = factor {
                meta.insert("qwen3.rope.scaling.factor", Value::F32(factor));
            }
            let found = Keys { meta: &meta, architecture: "qwen3" }.rope_factor();
            match (found, expected) {
                (Ok(found), Some(expected)) => assert_eq!(found, expected, "{kind:?} {factor:?}"),
                (Err(Error::BadValue { key, .. }), None) => assert!(key.starts_with("qwen3.rope.scaling."), "{key}"),
                (found, _) => panic!("{kind:?} {factor:?} gave {found:?}"),
            }
        }
    }
}
