//! The kernels: which WGSL files make each, its bindings, and the compiled pipelines.

use std::collections::HashMap;
use std::sync::Mutex;

use super::device::Gpu;
use super::tiles::{Cut, EXPERT_TILE, TILES};
use crate::error::{Error, Result};
use crate::plan::KvType;
use crate::quant::QuantType;

/// Form of an operation's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Output {
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
pub(crate) enum MatMulForm {
    /// A lane a segment.
    Lanes,
    /// A lane a row.
    Serial,
}

impl MatMulForm {
    pub(crate) const ALL: [MatMulForm; 2] = [MatMulForm::Lanes, MatMulForm::Serial];

    fn name(self) -> &'static str {
        match self {
            MatMulForm::Lanes => "lanes",
            MatMulForm::Serial => "serial",
        }
    }

    fn source(self) -> &'static str {
        match self {
            MatMulForm::Lanes => include_str!("../../shaders/matmul.wgsl"),
            MatMulForm::Serial => include_str!("../../shaders/matmul_serial.wgsl"),
        }
    }

    fn expert_source(self) -> &'static str {
        match self {
            MatMulForm::Lanes => include_str!("../../shaders/expert_matmul.wgsl"),
            MatMulForm::Serial => include_str!("../../shaders/expert_matmul_serial.wgsl"),
        }
    }

    /// How a row's segments are combined.
    fn tree(self) -> &'static str {
        match self {
            MatMulForm::Lanes => include_str!("../../shaders/shared/tree32.wgsl"),
            MatMulForm::Serial => include_str!("../../shaders/shared/tree_serial.wgsl"),
        }
    }

    /// The constants of a tile.
    fn constants(self, tile: u32) -> String {
        match self {
            MatMulForm::Lanes => Cut::of(tile).constants(),
            MatMulForm::Serial => format!("const TILE: u32 = {tile}u;\nconst ROWS: u32 = 1u;\n"),
        }
    }

    /// How a segment of rows of a format is folded.
    fn fold(self, kind: QuantType, tile: u32) -> String {
        match (kind.is_quantised(), self) {
            (false, _) => FOLD_FLOAT.into(),
            (true, MatMulForm::Lanes) if Cut::of(tile).lane_rows == 1 => [FOLD_Q8, FOLD_Q8_AHEAD].concat(),
            (true, MatMulForm::Lanes) => [FOLD_Q8, FOLD_Q8_ROWS].concat(),
            (true, MatMulForm::Serial) => [FOLD_Q8, FOLD_Q8_SERIAL].concat(),
        }
    }
}

/// A kernel in one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    Embed(QuantType),
    RmsNorm(Output),
    MatMul { kind: QuantType, tile: u32, form: MatMulForm },
    RopeAppend(KvType),
    Attention(KvType),
    AttentionMerge(Output),
    GatedActivation(Output),
    DeltaPrepare,
    DeltaRule { size: u32 },
    GatedNorm(Output),
    Route,
    ExpertMatMul { kind: QuantType, form: MatMulForm },
    CombineExperts,
    GatedAdd,
    Sample,
    SampleAdjust,
    SampleFilter,
    SampleKept,
    SampleFinish,
    StreamRead,
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
    /// Every variant.
    pub(crate) fn all() -> Vec<Kernel> {
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
            for form in MatMulForm::ALL {
                all.extend(TILES.map(|tile| Kernel::MatMul { kind, tile, form }));
                all.push(Kernel::ExpertMatMul { kind, form });
            }
        }
        all
    }

    /// The operation's stem, as `Op::label`, with the helper kernels of an operation named after it.
    pub(crate) fn stem(self) -> &'static str {
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

    /// The variant's name, for example `matmul_q4_0_x8`.
    pub(crate) fn name(self) -> String {
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
                let shared = [&form.constants(tile), EXACT, STATE, RUNNING, MATMUL_PARAMS, &weights(kind)].concat();
                [&shared, &form.fold(kind, tile), form.tree(), form.source()].concat()
            }
            Kernel::ExpertMatMul { kind, form } => {
                let constants = form.constants(EXPERT_TILE);
                let shared = [&constants, EXACT, STATE, RUNNING, EXPERT_MATMUL_PARAMS, &weights(kind)].concat();
                [&shared, &form.fold(kind, EXPERT_TILE), form.tree(), form.expert_source()].concat()
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

/// A compiled kernel.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// A change to the text of every kernel of one stem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShaderPatch {
    /// The kernels' stem, for example `matmul`.
    pub stem: &'static str,
    /// Text to replace.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

impl ShaderPatch {
    /// Fails where no kernel of the stem has the text.
    pub(crate) fn check(&self) -> Result<()> {
        let is_found = |kernel: Kernel| kernel.stem() == self.stem && kernel.source().contains(self.from);
        match Kernel::all().into_iter().any(is_found) {
            true => Ok(()),
            false => Err(Error::BadOption {
                option: "shader patch",
                found: format!("{:?} in {:?}", self.from, self.stem),
                expected: "text of a kernel of that stem",
            }),
        }
    }

    fn apply(&self, kernel: Kernel, source: String) -> String {
        if kernel.stem() == self.stem { source.replace(self.from, self.to) } else { source }
    }
}

/// Compiled kernels, by variant.
#[derive(Debug)]
pub(crate) struct Pipelines {
    patch: Option<ShaderPatch>,
    compiled: Mutex<HashMap<Kernel, Pipeline>>,
}

impl Pipelines {
    /// None compiled yet; `patch` applies to all that will be.
    pub(crate) fn new(patch: Option<ShaderPatch>) -> Self {
        Pipelines { patch, compiled: Mutex::default() }
    }

    /// The compiled kernel; compiles it on its first use.
    pub(crate) fn get(&self, gpu: &Gpu, kernel: Kernel) -> Pipeline {
        let mut compiled = self.compiled.lock().unwrap_or_else(|e| e.into_inner());
        let entry = compiled.entry(kernel);
        entry.or_insert_with(|| compile(gpu.device(), kernel, self.source(kernel))).clone()
    }

    fn source(&self, kernel: Kernel) -> String {
        match &self.patch {
            Some(patch) => patch.apply(kernel, kernel.source()),
            None => kernel.source(),
        }
    }
}

fn compile(device: &wgpu::Device, kernel: Kernel, source: String) -> Pipeline {
    let name = kernel.name();
    let entries: Vec<_> = bindings(&source).into_iter().map(layout_entry).collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&name), entries: &entries });
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(&name), source: wgpu::ShaderSource::Wgsl(source.into()) };
    // A counter in every loop keeps drivers from unrolling them, which costs a sixth of a token's time.
    let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
    // SAFETY: every loop of these shaders counts towards a bound that it does not change, so all of them end. The other checks stay.
    let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            // No kernel reads workgroup memory it has not written.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    Pipeline { pipeline, layout }
}

fn layout_entry((binding, ty): (u32, wgpu::BufferBindingType)) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}

/// The bindings a shader declares, each on a line of its own: `@group(0) @binding(N) var<...> name: type;`.
fn bindings(source: &str) -> Vec<(u32, wgpu::BufferBindingType)> {
    let declared = source.lines().filter_map(|line| line.strip_prefix("@group(0) @binding("));
    declared
        .filter_map(|rest| {
            let (number, rest) = rest.split_once(')')?;
            let ty = if rest.contains("var<uniform>") {
                wgpu::BufferBindingType::Uniform
            } else {
                wgpu::BufferBindingType::Storage { read_only: !rest.contains("read_write") }
            };
            Some((number.parse().ok()?, ty))
        })
        .collect()
}
