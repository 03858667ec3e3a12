//! The kernels, and which WGSL files make each.

use super::tiles::{Cut, EXPERT_TILE};
use crate::plan::KvType;
use crate::quant::QuantType;

/// Form of an operation's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// f32, replaced.
    F32,
    /// f32, added to.
    Add,
    /// int8 blocks.
    Q8,
}

impl Output {
    const ALL: [Output; 3] = [Output::F32, Output::Add, Output::Q8];

    fn name(self) -> &'static str {
        match self {
            Output::F32 => "f32",
            Output::Add => "add",
            Output::Q8 => "q8",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Output::F32 => include_str!("../../shaders/shared/out_f32.wgsl"),
            Output::Add => include_str!("../../shaders/shared/out_add.wgsl"),
            Output::Q8 => include_str!("../../shaders/shared/out_q8.wgsl"),
        }
    }
}

/// How a matmul's work is spread over lanes; the bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatMulForm {
    /// A lane a segment.
    Lanes,
    /// A lane a row.
    Serial,
    /// CUDA's: a warp's lanes are a row's segments, and tensor cores multiply where there are many rows of activations.
    Warps,
}

impl MatMulForm {
    /// Those that are written in WGSL.
    const WGSL: [MatMulForm; 2] = [MatMulForm::Lanes, MatMulForm::Serial];

    fn name(self) -> &'static str {
        match self {
            MatMulForm::Lanes => "lanes",
            MatMulForm::Serial => "serial",
            MatMulForm::Warps => "warps",
        }
    }

    /// The WGSL that is the form's own, for weights of a format and a tile.
    fn text(self, kind: QuantType, tile: u32) -> FormText {
        let fold = |quantised| if kind.is_quantised() { [FOLD_Q8, quantised].concat() } else { FOLD_FLOAT.into() };
        match self {
            MatMulForm::Lanes => {
                let cut = Cut::of(tile);
                FormText {
                    constants: cut.constants(),
                    fold: fold(if cut.lane_rows == 1 { FOLD_Q8_AHEAD } else { FOLD_Q8_ROWS }),
                    tree: include_str!("../../shaders/shared/tree32.wgsl"),
                    matmul: include_str!("../../shaders/matmul.wgsl"),
                    expert_matmul: include_str!("../../shaders/expert_matmul.wgsl"),
                }
            }
            MatMulForm::Serial => FormText {
                constants: format!("const TILE: u32 = {tile}u;\nconst ROWS: u32 = 1u;\n"),
                fold: fold(FOLD_Q8_SERIAL),
                tree: include_str!("../../shaders/shared/tree_serial.wgsl"),
                matmul: include_str!("../../shaders/matmul_serial.wgsl"),
                expert_matmul: include_str!("../../shaders/expert_matmul_serial.wgsl"),
            },
            MatMulForm::Warps => unreachable!("no WebGPU driver has CUDA's form"),
        }
    }
}

/// Parts of the text of a form's matmuls.
struct FormText {
    constants: String,
    /// How a segment of rows of the weight is folded.
    fold: String,
    /// How a row's segments are combined.
    tree: &'static str,
    matmul: &'static str,
    expert_matmul: &'static str,
}

/// A kernel in one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Rows of the token embedding.
    Embed(QuantType),
    /// RMS norm.
    RmsNorm(Output),
    /// Products of a matrix with rows of activations.
    MatMul {
        /// Format of the weights.
        kind: QuantType,
        /// Rows of activations a workgroup computes.
        tile: u32,
        /// How the work is spread.
        form: MatMulForm,
    },
    /// Rotates queries and keys, appends keys and values to the cache.
    RopeAppend(KvType),
    /// Partial results of attention.
    Attention(KvType),
    /// Merges them.
    AttentionMerge(Output),
    /// `activation(gate) * up`.
    GatedActivation(Output),
    /// The delta net's convolution, norms and gates.
    DeltaPrepare,
    /// The gated delta rule.
    DeltaRule {
        /// Values of a head.
        size: u32,
    },
    /// The norm of its result, gated.
    GatedNorm(Output),
    /// Picks experts.
    Route,
    /// Products with the matrices of the picked experts.
    ExpertMatMul {
        /// Format of the weights.
        kind: QuantType,
        /// How the work is spread.
        form: MatMulForm,
    },
    /// Adds up the experts' results.
    CombineExperts,
    /// Adds a gated vector.
    GatedAdd,
    /// A plain draw: candidates of each workgroup.
    Sample,
    /// Adjusts logits: masks, bans, biases, penalties, temperature.
    SampleAdjust,
    /// Finds which ids stay in a draw.
    SampleFilter,
    /// Draws among them.
    SampleKept,
    /// Ends a draw: the token, the ring's word, the next state.
    SampleFinish,
    /// Streaming reads, for measuring.
    StreamRead,
    /// Nothing, for measuring.
    Empty,
}

const EXACT: &str = include_str!("../../shaders/shared/exact.wgsl");
const PHILOX: &str = include_str!("../../shaders/shared/philox.wgsl");
const STATE: &str = include_str!("../../shaders/shared/state.wgsl");
const RUNNING: &str = include_str!("../../shaders/shared/running.wgsl");
const POSITION: &str = include_str!("../../shaders/shared/position.wgsl");
const TREE256: &str = include_str!("../../shaders/shared/tree256.wgsl");
const CHUNKS: &str = include_str!("../../shaders/shared/chunks.wgsl");
const BEST: &str = include_str!("../../shaders/shared/best.wgsl");
const ORDER: &str = include_str!("../../shaders/shared/order.wgsl");
const RULES: &str = include_str!("../../shaders/shared/rules.wgsl");
const KEPT: &str = include_str!("../../shaders/shared/kept.wgsl");
const EMBED: &str = include_str!("../../shaders/embed.wgsl");
const RMS_NORM: &str = include_str!("../../shaders/rms_norm.wgsl");
const PLANES: &str = include_str!("../../shaders/shared/planes.wgsl");
const BLOCKS: &str = include_str!("../../shaders/shared/blocks.wgsl");
const FOLD_Q8: &str = include_str!("../../shaders/shared/fold_q8.wgsl");
const FOLD_Q8_AHEAD: &str = include_str!("../../shaders/shared/fold_q8_ahead.wgsl");
const FOLD_Q8_ROWS: &str = include_str!("../../shaders/shared/fold_q8_rows.wgsl");
const FOLD_Q8_SERIAL: &str = include_str!("../../shaders/shared/fold_q8_serial.wgsl");
const FOLD_FLOAT: &str = include_str!("../../shaders/shared/fold_float.wgsl");
const MATMUL_PARAMS: &str = include_str!("../../shaders/shared/matmul_params.wgsl");
const EXPERT_MATMUL_PARAMS: &str = include_str!("../../shaders/shared/expert_matmul_params.wgsl");
const ROUTE: &str = include_str!("../../shaders/route.wgsl");
const COMBINE_EXPERTS: &str = include_str!("../../shaders/combine_experts.wgsl");
const KV_Q8_0: &str = include_str!("../../shaders/shared/kv_q8_0.wgsl");
const ROPE_APPEND: &str = include_str!("../../shaders/rope_append.wgsl");
const ATTENTION: &str = include_str!("../../shaders/attention.wgsl");
const ATTENTION_MERGE: &str = include_str!("../../shaders/attention_merge.wgsl");
const GATED_ACTIVATION: &str = include_str!("../../shaders/gated_activation.wgsl");
const DELTA_PREPARE: &str = include_str!("../../shaders/delta_prepare.wgsl");
const DELTA_RULE: &str = include_str!("../../shaders/delta_rule.wgsl");
const GATED_ADD: &str = include_str!("../../shaders/gated_add.wgsl");
const GATED_NORM: &str = include_str!("../../shaders/gated_norm.wgsl");
const SAMPLE: &str = include_str!("../../shaders/sample.wgsl");
const SAMPLE_ADJUST: &str = include_str!("../../shaders/sample_adjust.wgsl");
const SAMPLE_FILTER: &str = include_str!("../../shaders/sample_filter.wgsl");
const SAMPLE_KEPT: &str = include_str!("../../shaders/sample_kept.wgsl");
const SAMPLE_FINISH: &str = include_str!("../../shaders/sample_finish.wgsl");
const STREAM_READ: &str = include_str!("../../shaders/stream_read.wgsl");
const EMPTY: &str = include_str!("../../shaders/empty.wgsl");

/// The decoder of a weight format.
fn decoder(kind: QuantType) -> &'static str {
    match kind {
        QuantType::F32 => include_str!("../../shaders/quant/f32.wgsl"),
        QuantType::F16 => include_str!("../../shaders/quant/f16.wgsl"),
        QuantType::BF16 => include_str!("../../shaders/quant/bf16.wgsl"),
        QuantType::Q4_0 => include_str!("../../shaders/quant/q4_0.wgsl"),
        QuantType::Q4_1 => include_str!("../../shaders/quant/q4_1.wgsl"),
        QuantType::Q5_0 => include_str!("../../shaders/quant/q5_0.wgsl"),
        QuantType::Q5_1 => include_str!("../../shaders/quant/q5_1.wgsl"),
        QuantType::Q8_0 => include_str!("../../shaders/quant/q8_0.wgsl"),
        QuantType::Q4_K => include_str!("../../shaders/quant/q4_k.wgsl"),
        QuantType::Q5_K => include_str!("../../shaders/quant/q5_k.wgsl"),
        QuantType::Q6_K => include_str!("../../shaders/quant/q6_k.wgsl"),
    }
}

/// What stores keys and values of a type.
fn kv_store(kv: KvType) -> &'static [&'static str] {
    match kv {
        KvType::F16 => &[include_str!("../../shaders/shared/kv_store_f16.wgsl")],
        KvType::Q8_0 => &[KV_Q8_0, include_str!("../../shaders/shared/kv_store_q8_0.wgsl")],
    }
}

/// What reads them.
fn kv_load(kv: KvType) -> &'static [&'static str] {
    match kv {
        KvType::F16 => &[include_str!("../../shaders/shared/kv_load_f16.wgsl")],
        KvType::Q8_0 => &[KV_Q8_0, include_str!("../../shaders/shared/kv_load_q8_0.wgsl")],
    }
}

/// What reads the weights of a format.
fn weights(kind: QuantType) -> String {
    let blocks = if kind.is_quantised() { BLOCKS } else { "" };
    [PLANES, blocks, decoder(kind)].concat()
}

impl Kernel {
    /// Every variant written in WGSL.
    pub(crate) fn all() -> Vec<Kernel> {
        Self::all_of(&MatMulForm::WGSL)
    }

    /// Every variant of a driver that has some forms of matmuls.
    pub fn all_of(forms: &[MatMulForm]) -> Vec<Kernel> {
        let mut all = vec![Kernel::Sample, Kernel::SampleFinish];
        all.extend(KvType::ALL.into_iter().flat_map(|kv| [Kernel::RopeAppend(kv), Kernel::Attention(kv)]));
        all.extend([Kernel::SampleAdjust, Kernel::SampleFilter, Kernel::SampleKept]);
        all.extend([Kernel::StreamRead, Kernel::Empty, Kernel::Route, Kernel::CombineExperts, Kernel::GatedAdd]);
        all.push(Kernel::DeltaPrepare);
        // The sizes of heads that a plan may have.
        all.extend((32..=256).step_by(32).map(|size| Kernel::DeltaRule { size }));
        for output in Output::ALL {
            all.push(Kernel::RmsNorm(output));
        }
        for output in [Output::F32, Output::Q8] {
            all.extend([Kernel::AttentionMerge(output), Kernel::GatedActivation(output), Kernel::GatedNorm(output)]);
        }
        for kind in QuantType::ALL {
            all.push(Kernel::Embed(kind));
            for &form in forms {
                let tiles = form.tiles().iter().filter(|tile| form.tile_for(kind, **tile) == **tile);
                all.extend(tiles.map(|tile| Kernel::MatMul { kind, tile: *tile, form }));
                all.push(Kernel::ExpertMatMul { kind, form });
            }
        }
        all
    }

    /// The operation's stem, as `Op::label`, with the helper kernels of an operation named after it.
    pub fn stem(self) -> &'static str {
        match self {
            Kernel::Embed(_) => "embed",
            Kernel::RmsNorm(_) => "rms_norm",
            Kernel::MatMul { .. } => "matmul",
            Kernel::RopeAppend(_) => "rope_append",
            Kernel::Attention(_) => "attention",
            Kernel::AttentionMerge(_) => "attention_merge",
            Kernel::GatedActivation(_) => "gated_activation",
            Kernel::DeltaPrepare => "delta_prepare",
            Kernel::DeltaRule { .. } => "delta_rule",
            Kernel::GatedNorm(_) => "gated_norm",
            Kernel::Route => "route",
            Kernel::ExpertMatMul { .. } => "expert_matmul",
            Kernel::CombineExperts => "combine_experts",
            Kernel::GatedAdd => "gated_add",
            Kernel::Sample => "sample",
            Kernel::SampleAdjust => "sample_adjust",
            Kernel::SampleFilter => "sample_filter",
            Kernel::SampleKept => "sample_kept",
            Kernel::SampleFinish => "sample_finish",
            Kernel::StreamRead => "stream_read",
            Kernel::Empty => "empty",
        }
    }

    /// The variant's name, for example `matmul_lanes_q4_0_x8`.
    pub fn name(self) -> String {
        let stem = self.stem();
        match self {
            Kernel::Embed(kind) => format!("{stem}_{kind:?}").to_lowercase(),
            Kernel::MatMul { kind, tile, form } => format!("{stem}_{}_{kind:?}_x{tile}", form.name()).to_lowercase(),
            Kernel::ExpertMatMul { kind, form } => format!("{stem}_{}_{kind:?}", form.name()).to_lowercase(),
            Kernel::DeltaRule { size } => format!("{stem}_{size}"),
            Kernel::RmsNorm(output)
            | Kernel::AttentionMerge(output)
            | Kernel::GatedActivation(output)
            | Kernel::GatedNorm(output) => format!("{stem}_{}", output.name()),
            Kernel::RopeAppend(kv) | Kernel::Attention(kv) => format!("{stem}_{}", kv.name()),
            _ => stem.into(),
        }
    }

    /// The variant's WGSL.
    pub(crate) fn source(self) -> String {
        match self {
            Kernel::Embed(kind) => [EXACT, STATE, RUNNING, &weights(kind), EMBED].concat(),
            Kernel::RmsNorm(output) => [EXACT, TREE256, STATE, RUNNING, POSITION, output.source(), RMS_NORM].concat(),
            Kernel::MatMul { kind, tile, form } => {
                let FormText { constants, fold, tree, matmul, .. } = form.text(kind, tile);
                let shared = [&constants, EXACT, STATE, RUNNING, MATMUL_PARAMS, &weights(kind)].concat();
                [&shared, &fold, tree, matmul].concat()
            }
            Kernel::ExpertMatMul { kind, form } => {
                let FormText { constants, fold, tree, expert_matmul, .. } = form.text(kind, EXPERT_TILE);
                let shared = [&constants, EXACT, STATE, RUNNING, EXPERT_MATMUL_PARAMS, &weights(kind)].concat();
                [&shared, &fold, tree, expert_matmul].concat()
            }
            Kernel::Route => [EXACT, STATE, RUNNING, ORDER, ROUTE].concat(),
            Kernel::CombineExperts => [EXACT, STATE, RUNNING, COMBINE_EXPERTS].concat(),
            Kernel::GatedAdd => [EXACT, STATE, RUNNING, GATED_ADD].concat(),
            Kernel::RopeAppend(kv) => {
                [&[EXACT, TREE256, STATE, RUNNING, POSITION][..], kv_store(kv), &[ROPE_APPEND]].concat().concat()
            }
            Kernel::Attention(kv) => {
                [&[EXACT, STATE, RUNNING, POSITION, CHUNKS][..], kv_load(kv), &[ATTENTION]].concat().concat()
            }
            Kernel::AttentionMerge(output) => {
                [EXACT, STATE, RUNNING, POSITION, CHUNKS, output.source(), ATTENTION_MERGE].concat()
            }
            Kernel::GatedActivation(output) => [EXACT, STATE, RUNNING, output.source(), GATED_ACTIVATION].concat(),
            Kernel::DeltaPrepare => [EXACT, TREE256, STATE, RUNNING, POSITION, DELTA_PREPARE].concat(),
            Kernel::DeltaRule { size } => {
                let size = format!("const SIZE: u32 = {size}u;\n");
                [&size, EXACT, STATE, RUNNING, POSITION, DELTA_RULE].concat()
            }
            Kernel::GatedNorm(output) => [EXACT, TREE256, STATE, RUNNING, output.source(), GATED_NORM].concat(),
            Kernel::Sample => [EXACT, PHILOX, STATE, RUNNING, BEST, ORDER, SAMPLE].concat(),
            Kernel::SampleAdjust => [EXACT, PHILOX, STATE, RUNNING, BEST, ORDER, RULES, SAMPLE_ADJUST].concat(),
            Kernel::SampleFilter => [EXACT, PHILOX, STATE, RUNNING, BEST, ORDER, RULES, KEPT, SAMPLE_FILTER].concat(),
            Kernel::SampleKept => [EXACT, PHILOX, STATE, RUNNING, BEST, ORDER, KEPT, SAMPLE_KEPT].concat(),
            Kernel::SampleFinish => [EXACT, STATE, BEST, SAMPLE_FINISH].concat(),
            Kernel::StreamRead => STREAM_READ.into(),
            Kernel::Empty => EMPTY.into(),
        }
    }
}

/// Name and text of every shader the backend may run.
pub fn shader_sources() -> Vec<(String, String)> {
    Kernel::all().into_iter().map(|k| (k.name(), k.source())).collect()
}
