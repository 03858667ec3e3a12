//! What operations are called where their time is reported.

use super::Plan;
use super::heads::{DeltaHeads, Heads};
use super::op::{Activation, BufferId, Op, Shape, WeightId};
use crate::model::weights::{WeightDesc, Weights};

/// What reports say of a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightNote {
    /// Role, format and shape, for example `ffn_down q4_1 576x1536`.
    pub text: String,
    /// Bytes in the file.
    pub bytes: u64,
}

/// A step of a plan as reports tell it from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// The layer it belongs to; none for the embedding, the head and the sampler.
    pub layer: Option<usize>,
    /// The operation's or the kernel's stem, for example `matmul`.
    pub op: &'static str,
    /// What makes it differ from others of the stem, for example `ffn_down q4_1 576x1536`.
    pub detail: String,
    /// Bytes of weights it reads for one row: all of a matmul's, those of the experts picked.
    pub bytes: u64,
}

impl Tag {
    /// A step that belongs to no layer and reads no weights.
    pub(crate) fn of(op: &'static str, detail: impl Into<String>) -> Self {
        Tag { layer: None, op, detail: detail.into(), bytes: 0 }
    }

    /// Stem and detail.
    pub fn label(&self) -> String {
        match self.detail.as_str() {
            "" => self.op.into(),
            detail => format!("{} {detail}", self.op),
        }
    }
}

impl Op {
    /// The operation's name everywhere: of its shader, its binding, its twin.
    pub fn stem(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::MatMul { .. } => "matmul",
            Op::RopeAppend { .. } => "rope_append",
            Op::Attention { .. } => "attention",
            Op::DeltaPrepare { .. } => "delta_prepare",
            Op::DeltaRule { .. } => "delta_rule",
            Op::GatedNorm { .. } => "gated_norm",
            Op::GatedActivation { .. } => "gated_activation",
            Op::Route { .. } => "route",
            Op::ExpertMatMul { .. } => "expert_matmul",
            Op::CombineExperts { .. } => "combine_experts",
            Op::GatedAdd { .. } => "gated_add",
            Op::Sample { .. } => "sample",
        }
    }
}

impl Plan {
    /// How an operation of `layer` is told from others.
    pub fn tag(&self, op: &Op, layer: Option<usize>) -> Tag {
        let note = |id: WeightId| self.weights.get(id.0 as usize);
        let text = |id| note(id).map_or_else(String::new, |note| note.text.clone());
        let detail = match *op {
            Op::Embed { weight, .. } | Op::MatMul { weight, .. } | Op::ExpertMatMul { weight, .. } => text(weight),
            Op::RmsNorm { out, accumulate: true, .. } => format!("add {}", self.shape(out).width()),
            Op::RmsNorm { out, .. } => self.form(out),
            Op::RopeAppend { heads, .. } => geometry(heads),
            Op::Attention { heads, .. } => match heads.window {
                Some(window) => format!("{} window {window}", geometry(heads)),
                None => geometry(heads),
            },
            Op::GatedActivation { out, activation: Activation::Silu, .. } => format!("silu {}", self.form(out)),
            Op::GatedActivation { out, activation: Activation::GeluTanh, .. } => format!("gelu {}", self.form(out)),
            Op::DeltaPrepare { heads, .. } | Op::DeltaRule { heads, .. } => delta_geometry(heads),
            Op::GatedNorm { out, .. } => self.form(out),
            Op::Route { logits, out } => format!("{} of {}", self.shape(out).vectors(), self.shape(logits).width()),
            Op::CombineExperts { y, .. } | Op::GatedAdd { y, .. } => self.form(y),
            Op::Sample { .. } => self.n_vocab.to_string(),
        };
        Tag { layer, op: op.stem(), detail, bytes: self.weight_bytes(op) }
    }

    /// Bytes of weights in the file that an operation reads for one row: all of a matmul's, those of the experts picked.
    pub fn weight_bytes(&self, op: &Op) -> u64 {
        let bytes = |id: WeightId| self.weights.get(id.0 as usize).map_or(0, |note| note.bytes);
        match *op {
            Op::MatMul { weight, .. } => bytes(weight),
            Op::ExpertMatMul { weight, n_experts, out, .. } => {
                bytes(weight) / n_experts as u64 * self.shape(out).vectors() as u64
            }
            _ => 0,
        }
    }

    /// The tags of `ops` in order, which are the body where `is_body` is set.
    pub fn tags(&self, ops: &[Op], is_body: bool) -> Vec<Tag> {
        let layer = |at| if is_body { self.layer_of(at) } else { None };
        ops.iter().enumerate().map(|(at, op)| self.tag(op, layer(at))).collect()
    }

    fn form(&self, id: BufferId) -> String {
        let shape = self.shape(id);
        let form = if let Shape::F32 { .. } = shape { "f32" } else { "q8" };
        match (shape.vectors(), shape.width()) {
            (1, width) => format!("{form} {width}"),
            (vectors, width) => format!("{form} {vectors}x{width}"),
        }
    }
}

/// Query heads, key/value heads and values a head.
fn geometry(heads: Heads) -> String {
    format!("{}/{}x{}", heads.n_heads, heads.n_kv_heads, heads.head_dim)
}

/// Value heads, key heads and values a head.
fn delta_geometry(heads: DeltaHeads) -> String {
    format!("{}/{}x{}", heads.n_value_heads, heads.n_key_heads, heads.size)
}

/// Notes of all weights, indexed by `WeightId`.
pub(super) fn notes(weights: &Weights) -> Vec<WeightNote> {
    weights.iter().map(|(_, desc)| note(desc)).collect()
}

fn note(desc: &WeightDesc) -> WeightNote {
    let roles: Vec<&str> = desc.tensors.iter().map(|tensor| role(&tensor.name)).collect();
    let size = match desc.n_experts {
        1 => format!("{}x{}", desc.rows, desc.k),
        n => format!("{n}x{}x{}", desc.rows / n, desc.k),
    };
    WeightNote {
        text: format!("{} {} {size}", roles.join("+"), format!("{:?}", desc.kind).to_lowercase()),
        bytes: desc.tensors.iter().map(|tensor| tensor.bytes).sum(),
    }
}

/// `blk.7.ffn_down.weight` is `ffn_down`.
fn role(tensor: &str) -> &str {
    let name = tensor.strip_suffix(".weight").unwrap_or(tensor);
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_the_names_without_layer_and_suffix() {
        let cases = [
            ("blk.7.ffn_down.weight", "ffn_down"),
            ("token_embd.weight", "token_embd"),
            ("output", "output"),
            ("rope_freqs.weight", "rope_freqs"),
        ];
        for (tensor, expected) in cases {
            assert_eq!(role(tensor), expected);
        }
    }

    #[test]
    fn labels() {
        assert_eq!(Tag::of("matmul", "output q8_0 64x32").label(), "matmul output q8_0 64x32");
        assert_eq!(Tag::of("sample", "").label(), "sample");
    }
}
