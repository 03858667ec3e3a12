//! What a search for a difference found, as text and as JSON.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};

use crate::plan::List;

/// A value and its bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Value {
    /// The value; NaN (`null` in JSON) also where there is none.
    pub value: f64,
    /// Its bits: f32, f16, int8, int32 or a token id, as `what` of the difference says.
    #[serde(serialize_with = "hexadecimal")]
    pub bits: u32,
}

impl Value {
    pub(super) fn new(value: f64, bits: u32) -> Self {
        Value { value, bits }
    }
}

fn hexadecimal<S: Serializer>(bits: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{bits:#010x}"))
}

/// What a phase computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseKind {
    /// A chunk of the prompt.
    Prefill,
    /// One drawn token.
    Decode,
}

/// One run of the plan over rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// What it computes.
    pub kind: PhaseKind,
    /// Position of its first token.
    pub position: usize,
    /// Tokens; one row runs the decode kernels.
    pub rows: usize,
    /// The hidden states that were equal, in order: the embedding's, then each layer's.
    pub layers: Vec<LayerSummary>,
}

/// A hidden state in numbers, over all rows of its phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerSummary {
    /// The layer that wrote it; `None` for the embedding.
    pub layer: Option<usize>,
    /// Largest magnitude of the finite values.
    pub max: f32,
    /// Mean of the finite values.
    pub mean: f64,
    /// Values that are infinite or NaN.
    pub non_finite: usize,
    /// The first four values of the last row.
    pub first: Vec<f32>,
}

impl LayerSummary {
    /// Of f32 bits `[rows, width]`.
    pub(super) fn of(layer: Option<usize>, words: &[u32], width: usize) -> Self {
        let values = || words.iter().map(|bits| f32::from_bits(*bits));
        let finite = || values().filter(|x| x.is_finite());
        let n_finite = finite().count();
        let last_row = words.len().saturating_sub(width);
        LayerSummary {
            layer,
            max: finite().fold(0.0, |max, x| x.abs().max(max)),
            mean: finite().map(f64::from).sum::<f64>() / n_finite.max(1) as f64,
            non_finite: words.len() - n_finite,
            first: values().skip(last_row).take(4).collect(),
        }
    }
}

/// The first operation whose bits differ. What it read was equal on both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// What the phase computes.
    pub phase: PhaseKind,
    /// Rows of the phase.
    pub rows: usize,
    /// The kernel's stem; [`TOGETHER`] where each operation alone gives the contract's bits and all in one submit do not.
    pub op: &'static str,
    /// The list of the plan.
    pub list: List,
    /// Index of the operation in the list.
    pub index: usize,
    /// The layer; `None` for the embedding, the head and the sampler.
    pub layer: Option<usize>,
    /// Which of the values that it wrote.
    pub what: String,
    /// Row of the first value that differs, and the position of its token.
    pub row: usize,
    /// Position of the row's token.
    pub position: usize,
    /// Column of the first value that differs, of its block where `what` is scales or sums.
    pub column: usize,
    /// The device's value.
    pub device: Value,
    /// The cpu backend's value: the contract's.
    pub cpu: Value,
    /// Values that differ.
    pub differing: usize,
    /// Of how many.
    pub values: usize,
    /// Largest difference between two finite values.
    pub largest: f64,
}

/// The name of a difference that no operation shows when it runs alone: something between them is at fault, such as their order.
pub const TOGETHER: &str = "all operations in one submit";

/// What was compared, and the first difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DebugReport {
    /// The model's name.
    pub model: String,
    /// The adapter's name.
    pub adapter: String,
    /// Token ids of the prompt, and of what was decoded after it.
    pub ids: Vec<u32>,
    /// Tokens that ran as a whole, with equal caches, hidden states and logits.
    pub untraced: usize,
    /// What was traced, operation after operation.
    pub phases: Vec<Phase>,
    /// Operations, draws included, that gave equal bits.
    pub equal_operations: usize,
    /// The first difference; `None` where every bit is equal.
    pub difference: Option<Difference>,
}

impl DebugReport {
    /// Whether every bit is equal.
    pub fn is_equal(&self) -> bool {
        self.difference.is_none()
    }
}

impl PhaseKind {
    fn name(self) -> &'static str {
        match self {
            PhaseKind::Prefill => "prefill",
            PhaseKind::Decode => "decode",
        }
    }
}

/// A layer's or the embedding's name.
fn layer_name(layer: Option<usize>, list: List) -> String {
    match (layer, list) {
        (Some(layer), _) => format!("layer {layer}"),
        (None, List::Body) => "the embedding".into(),
        (None, List::Head) => "the head".into(),
        (None, List::Sample) => "the sampler".into(),
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // No value has more bits than an f32.
        write!(f, "{} ({:#010x})", self.value as f32, self.bits)
    }
}

impl Display for Phase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, position {}", self.kind.name(), self.position)?;
        if self.rows > 1 {
            write!(f, " to {}", self.position + self.rows - 1)?;
        }
        writeln!(f, ":")?;
        writeln!(f, "  {:<14}{:>14}{:>14}{:>12}  first values", "hidden state", "max", "mean", "non-finite")?;
        for layer in &self.layers {
            write!(f, "  {:<14}", layer_name(layer.layer, List::Body))?;
            write!(f, "{:>14.6}{:>14.6}{:>12} ", layer.max, layer.mean, layer.non_finite)?;
            layer.first.iter().try_for_each(|x| write!(f, " {x:.6}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Difference {
    /// Which operation, in words.
    fn place(&self) -> String {
        let layer = layer_name(self.layer, self.list);
        match self.list {
            _ if self.op == TOGETHER => format!("{TOGETHER} (each alone is right), seen in {layer}"),
            List::Body | List::Head => {
                let list = if self.list == List::Body { "body" } else { "head" };
                format!("{} in {layer}, operation {} of the {list}", self.op, self.index)
            }
            List::Sample => format!("{} in {layer}", self.op),
        }
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "first difference: {}, ", self.place())?;
        match self.phase {
            PhaseKind::Prefill => writeln!(f, "prefilling {} tokens", self.rows)?,
            PhaseKind::Decode => writeln!(f, "decoding")?,
        }
        write!(f, "  {}, row {} (position {})", self.what, self.row, self.position)?;
        if self.list == List::Sample {
            return writeln!(f, "\n  device {}\n  cpu    {}", self.device, self.cpu);
        }
        writeln!(f, ", column {}\n  device {}\n  cpu    {}", self.column, self.device, self.cpu)?;
        writeln!(f, "  {} of {} values differ, by {:e} at most", self.differing, self.values, self.largest as f32)
    }
}

impl Display for DebugReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}, {} tokens", self.model, self.adapter, self.ids.len())?;
        if self.untraced > 0 {
            writeln!(f, "{} tokens ran as a whole, with equal results", self.untraced)?;
        }
        self.phases.iter().try_for_each(|phase| phase.fmt(f))?;
        writeln!(f, "{} operations gave equal bits", self.equal_operations)?;
        match &self.difference {
            Some(difference) => difference.fmt(f),
            None => writeln!(f, "no difference: every bit is equal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_states_in_numbers() {
        let words = [1.0, f32::NAN, -3.0, 4.0, 0.5, 2.0, f32::INFINITY, -8.5, 0.0, 4.0].map(f32::to_bits);
        let summary = LayerSummary::of(Some(3), &words, 5);
        let first = vec![2.0, f32::INFINITY, -8.5, 0.0];
        assert_eq!(summary, LayerSummary { layer: Some(3), max: 8.5, mean: 0.0, non_finite: 2, first });
        let empty = LayerSummary::of(None, &[], 5);
        assert_eq!((empty.max, empty.mean, empty.non_finite), (0.0, 0.0, 0));
    }

    #[test]
    fn differences_in_words() {
        let difference = Difference {
            phase: PhaseKind::Prefill,
            rows: 7,
            op: "matmul",
            list: List::Body,
            index: 8,
            layer: Some(1),
            what: "values".into(),
            row: 2,
            position: 2,
            column: 17,
            device: Value::new(1.5, 1.5f32.to_bits()),
            cpu: Value::new(f64::NAN, 0x7fc0_0000),
            differing: 3,
            values: 1792,
            largest: 0.25,
        };
        let wanted = "first difference: matmul in layer 1, operation 8 of the body, prefilling 7 tokens
  values, row 2 (position 2), column 17
  device 1.5 (0x3fc00000)
  cpu    NaN (0x7fc00000)
  3 of 1792 values differ, by 2.5e-1 at most
";
        assert_eq!(difference.to_string(), wanted);
        let (device, cpu) = (Value::new(3.0, 3), Value::new(f64::NAN, u32::MAX));
        let (what, layer) = ("token id, greedy".into(), None);
        let drawn = Difference { op: "sample", list: List::Sample, layer, what, device, cpu, ..difference.clone() };
        let wanted = "first difference: sample in the sampler, prefilling 7 tokens
  token id, greedy, row 2 (position 2)
  device 3 (0x00000003)
  cpu    NaN (0xffffffff)
";
        assert_eq!(drawn.to_string(), wanted);
        let together = Difference { op: TOGETHER, phase: PhaseKind::Decode, ..difference.clone() };
        let wanted =
            "first difference: all operations in one submit (each alone is right), seen in layer 1, decoding\n";
        assert!(together.to_string().starts_with(wanted), "{together}");
        let json = serde_json::to_value(&difference).unwrap();
        assert_eq!(json["device"]["bits"], "0x3fc00000");
        assert!(json["cpu"]["value"].is_null());
        assert_eq!((&json["list"], &json["phase"], &json["layer"]), (&"body".into(), &"prefill".into(), &1.into()));
    }
}
