//! The search for the first difference: nothing is found where nothing is wrong, and faults planted in a shader are named, with their layer.

mod common;

use blueshift::Error;
use blueshift::engine::backend::Readback;
use blueshift::engine::debug::{
    DebugOptions, DebugPrompt, DebugReport, Difference, PhaseKind, TOGETHER, find_difference,
};
use blueshift::gguf::{self, Source};
use blueshift::gpu::{Gpu, ShaderPatch};
use blueshift::micro::MicroModel;
use blueshift::model::Model;
use blueshift::plan::{KvType, List, Op, Plan};
use blueshift::quant::QuantType;
use pollster::block_on;

/// More than a page, and more than the software adapter's chunk.
const LONG: usize = 70;
const SHORT: usize = 9;

fn prompt(n: usize) -> DebugPrompt {
    DebugPrompt::Ids((0..n as u32).map(|i| i * 53 % 256).collect())
}

fn search(gpu: &Gpu, micro: &MicroModel, n: usize, from: usize) -> Result<DebugReport, Error> {
    search_with(gpu, micro, n, from, KvType::F16)
}

fn search_with(gpu: &Gpu, micro: &MicroModel, n: usize, from: usize, kv: KvType) -> Result<DebugReport, Error> {
    block_on(async {
        let file = gguf::open(Source::memory("micro", micro.bytes())).await?;
        let options = DebugOptions { n_ctx: Some(128), from, kv, progress: None };
        find_difference(&file, gpu, prompt(n), options).await
    })
}

/// What is found on a device with a fault.
fn found(patch: ShaderPatch, micro: &MicroModel, n: usize) -> Difference {
    let gpu = block_on(Gpu::open_patched(patch)).unwrap();
    let report = search(&gpu, micro, n, 0).unwrap();
    report.difference.unwrap_or_else(|| panic!("{patch:?} was not found"))
}

fn plan(micro: &MicroModel) -> Plan {
    let file = block_on(gguf::open(Source::memory("micro", micro.bytes()))).unwrap();
    block_on(Model::open(&file)).unwrap().plan
}

fn llama() -> MicroModel {
    MicroModel::llama(QuantType::Q4_0)
}

fn experts() -> MicroModel {
    MicroModel::qwen3moe(QuantType::Q4_0)
}

fn hybrid() -> MicroModel {
    MicroModel::qwen3next(QuantType::Q4_0)
}

fn gemma() -> MicroModel {
    MicroModel::gemma3(QuantType::Q4_K)
}

#[test]
fn equal_bits_are_equal() {
    if !common::has_adapter() {
        return;
    }
    let gpu = block_on(Gpu::open(None)).unwrap();
    // Float weights: f32 operands instead of int8. Width 576: blocks that are no power of two.
    let (tiny, smol) = (MicroModel::tiny(QuantType::F16), MicroModel::smol(QuantType::Q4_1));
    for micro in [llama(), gemma(), tiny, smol, experts(), hybrid()] {
        let report = search(&gpu, &micro, LONG, 0).unwrap();
        assert!(report.is_equal(), "{report}");
        assert_eq!((report.ids.len(), report.untraced), (LONG + 1, 0));
        let rows: usize = report.phases.iter().map(|phase| phase.rows).sum();
        assert_eq!(rows, LONG + 1);
        assert_eq!(report.phases.last().unwrap().kind, PhaseKind::Decode);
        let layers: Vec<Option<usize>> = std::iter::once(None).chain((0..micro.n_layers).map(Some)).collect();
        for phase in &report.phases {
            assert_eq!(phase.layers.iter().map(|l| l.layer).collect::<Vec<_>>(), layers);
            for layer in &phase.layers {
                assert!(layer.max > 0.0 && layer.non_finite == 0 && layer.first.len() == 4, "{layer:?}");
            }
        }
        assert!(report.to_string().ends_with("no difference: every bit is equal\n"));
    }
}

/// A fault, the kernel it is to be blamed on, and where it shows.
struct Fault {
    stem: &'static str,
    from: &'static str,
    to: &'static str,
    /// The stem named.
    op: &'static str,
    what: &'static str,
    list: List,
    layer: Option<usize>,
}

const fn fault(stem: &'static str, from: &'static str, to: &'static str, what: &'static str) -> Fault {
    Fault { stem, from, to, op: stem, what, list: List::Body, layer: Some(0) }
}

/// Faults that every layer has: the first one shows them.
const FAULTS: [Fault; 14] = [
    Fault { layer: None, ..fault("embed", "i % 8u) * params.scale", "i % 8u) * (params.scale * 1.0000001)", "values") },
    fault("rms_norm", "w[j] = weight[c + j];", "w[j] = weight[c + j] * select(1.0, 0.5, c + j == 37u);", "int8 values"),
    // One bit of one value in a block is below an int8's step, but moves the block's scale.
    fault("rms_norm", "let r = exact_rsqrt(", "let r = 1.0000002 * exact_rsqrt(", "scales"),
    fault("matmul", "f32(isum)", "f32(isum + 1)", "values"),
    fault("rope_append", "head[lane] * params.q_scale, 11u", "head[lane] * params.q_scale, 12u", "queries"),
    fault("rope_append", "keys[at] = vec4<u32>(pack(i)", "keys[at] = vec4<u32>(1u ^ pack(i)", "cached keys"),
    fault("rope_append", "values[at] = pack(2u * lane);", "values[at] = pack(2u * lane) ^ 1u;", "cached values"),
    fault("attention", "round_sig(exact_exp2(s - chunk_max), 12u)", "exact_exp2(s - chunk_max)", "partial results"),
    fault("attention_merge", "total.values * exact_recip(total.sum)", "total.values / (total.sum * 1.01)", "scales"),
    fault("gated_activation", "activated = exact_silu(", "activated = 1.01 * exact_silu(", "scales"),
    Fault {
        list: List::Sample,
        layer: None,
        ..fault("sample", "bitcast<u32>(logits[slot *", "bitcast<u32>(-logits[slot *", "token id, greedy")
    },
    Fault {
        list: List::Sample,
        layer: None,
        ..fault(
            "sample_finish",
            "best = better(best, partials[group.y * params.n_partials + i]);",
            "best = vec2<u32>(1u, 3u);",
            "token id, greedy",
        )
    },
    Fault {
        list: List::Sample,
        layer: None,
        ..fault("sample", "position = state.position + state.fed;", "position = 7u;", "token id, temperature 0.8")
    },
    Fault {
        op: "sample_filter or sample_kept",
        list: List::Sample,
        layer: None,
        ..fault(
            "sample_kept",
            "value_of(staying[j]) + gumbel_of",
            "value_of(staying[j]) - gumbel_of",
            "token id, with filters",
        )
    },
];

/// Faults of the operations on experts.
const EXPERT_FAULTS: [Fault; 3] = [
    fault("route", "picked[lane], select", "picked[lane] ^ 1u, select", "values"),
    fault("expert_matmul", "f32(isum)", "f32(isum + 1)", "values"),
    fault("combine_experts", "sum = sum + guard(", "sum = sum - guard(", "values"),
];

/// Faults of the operations of gated delta nets, and of a shared expert.
const DELTA_FAULTS: [Fault; 4] = [
    fault("delta_prepare", "let r = exact_rsqrt(", "let r = exact_recip(", "values"),
    fault("delta_rule", "(value - sum_keys(lane))", "(value + sum_keys(lane))", "values"),
    fault("gated_norm", "exact_silu(mixed[gate + j])", "mixed[gate + j]", "int8 values"),
    fault("gated_add", "exact_sigmoid(gate[group.y])", "gate[group.y]", "values"),
];

#[test]
fn planted_faults_are_named() {
    if !common::has_adapter() {
        return;
    }
    let of_llama = FAULTS.into_iter().map(|fault| (fault, llama()));
    let of_experts = EXPERT_FAULTS.into_iter().map(|fault| (fault, experts()));
    let of_hybrid = DELTA_FAULTS.into_iter().map(|fault| (fault, hybrid()));
    for (fault, micro) in of_llama.chain(of_experts).chain(of_hybrid) {
        let patch = ShaderPatch { stem: fault.stem, from: fault.from, to: fault.to };
        let d = found(patch, &micro, SHORT);
        assert_eq!((d.op, d.list, d.layer), (fault.op, fault.list, fault.layer), "{patch:?}: {d}");
        assert_eq!(d.what, fault.what, "{patch:?}: {d}");
        assert_eq!((d.phase, d.rows), (PhaseKind::Prefill, SHORT), "{d}");
        assert!(d.differing > 0 && d.device.bits != d.cpu.bits, "{d}");
    }
}

/// What only a cache of type q8_0 has.
#[test]
fn faults_in_a_cache_of_q8_0_are_named() {
    if !common::has_adapter() {
        return;
    }
    let gpu = block_on(Gpu::open(None)).unwrap();
    for micro in [llama(), gemma()] {
        let report = search_with(&gpu, &micro, LONG, 0, KvType::Q8_0).unwrap();
        assert!(report.is_equal(), "{report}");
    }
    let faults = [
        ("rope_append", "atomicStore(&keys[at], four.bytes)", "atomicStore(&keys[at], 1u ^ four.bytes)", "cached keys"),
        (
            "rope_append",
            "atomicStore(&values[at], four.bytes)",
            "atomicStore(&values[at], 1u ^ four.bytes)",
            "cached values",
        ),
        ("rope_append", "four.scale << shift", "(1u ^ four.scale) << shift", "scales of cached keys"),
        (
            "rope_append",
            "atomicOr(&values[word], four.scale",
            "atomicOr(&values[word], 1u ^ four.scale",
            "scales of cached values",
        ),
        ("attention", "round_sig(v.x, 11u)", "round_sig(v.x, 12u)", "partial results"),
        ("attention", "scale_of(word >> 16u);", "1.01 * scale_of(word >> 16u);", "partial results"),
    ];
    for (stem, from, to, what) in faults {
        let gpu = block_on(Gpu::open_patched(ShaderPatch { stem, from, to })).unwrap();
        assert!(search(&gpu, &llama(), SHORT, 0).unwrap().is_equal(), "f16 has no {from:?}");
        let report = search_with(&gpu, &llama(), SHORT, 0, KvType::Q8_0).unwrap();
        let d = report.difference.unwrap_or_else(|| panic!("{from:?} was not found"));
        assert_eq!((d.op, d.what.as_str(), d.layer), (stem, what, Some(0)), "{d}");
    }
}

/// The first operation of a body that a condition holds for, and its layer.
fn first_op(plan: &Plan, condition: impl Fn(&Op) -> bool) -> (usize, Option<usize>) {
    let at = plan.body.iter().position(condition).unwrap();
    (at, plan.layer_of(at))
}

/// Faults in what only some layers do.
#[test]
fn the_layer_of_a_fault_is_named() {
    if !common::has_adapter() {
        return;
    }
    let (llama, gemma) = (llama(), gemma());
    let (llama_plan, gemma_plan) = (plan(&llama), plan(&gemma));
    let global = |op: &Op| matches!(op, Op::Attention { heads, .. } if heads.window.is_none());
    let after_first_layer = |op: &Op| matches!(op, Op::RmsNorm { source: Some(0), .. });
    let is_matmul = |op: &&Op| matches!(op, Op::MatMul { .. });
    // The first layer's last product is the only kind over the feed-forward width, of 16 blocks.
    let first_layer = &llama_plan.body[..llama_plan.layer_starts[1]];
    let down = first_layer.iter().rposition(|op| is_matmul(&op)).unwrap();
    let cases = [
        (
            &gemma,
            "attention",
            "exact_exp2(s - chunk_max)",
            "exact_exp2(select(1.0, 1.5, params.window == 0u) * (s - chunk_max))",
            first_op(&gemma_plan, global),
        ),
        (
            &gemma,
            "attention_merge",
            "return total.values * ",
            "return select(1.0, 1.01, params.window == 0u) * total.values * ",
            first_op(&gemma_plan, global),
        ),
        (
            &llama,
            "matmul",
            "f32(isum)",
            "f32(isum + select(0, 1, params.segments == 16u))",
            (down, llama_plan.layer_of(down)),
        ),
        (
            &llama,
            "rms_norm",
            "w[j] = weight[c + j];",
            "w[j] = weight[c + j] * select(1.0, 2.0, params.source == 1u && c + j == 37u);",
            first_op(&llama_plan, after_first_layer),
        ),
    ];
    for (micro, stem, from, to, (index, layer)) in cases {
        let patch = ShaderPatch { stem, from, to };
        let d = found(patch, micro, SHORT);
        assert_eq!((d.op, d.list, d.index, d.layer), (stem, List::Body, index, layer), "{patch:?}: {d}");
    }
    assert_eq!(first_op(&gemma_plan, global).1, Some(5), "neither the first layer nor the last");
    assert_eq!(llama_plan.layer_of(first_op(&llama_plan, after_first_layer).0), Some(0), "its second norm");
}

/// A state that is kept wrongly shows where the rows that follow read it; what the rows gave was right.
#[test]
fn recurrent_states_are_compared() {
    if !common::has_adapter() {
        return;
    }
    let patch = ShaderPatch {
        stem: "delta_rule",
        from: "states[state_at + PARTS * i] = values[i];",
        to: "states[state_at] = 0.5;",
    };
    let d = found(patch, &hybrid(), SHORT);
    assert_eq!((d.op, &*d.what, d.phase, d.layer), (TOGETHER, "recurrent state", PhaseKind::Prefill, Some(0)), "{d}");
}

/// A fault in what decoding alone does: a unit of attention of one chunk.
#[test]
fn faults_of_the_decode_kernels_are_found() {
    if !common::has_adapter() {
        return;
    }
    let from = "exact_exp2(s - chunk_max)";
    let to = "exact_exp2(select(1.0, 1.5, params.chunks_per_unit == 1u) * (s - chunk_max))";
    let d = found(ShaderPatch { stem: "attention", from, to }, &gemma(), SHORT);
    assert_eq!((d.op, d.phase, d.rows, d.layer), ("attention", PhaseKind::Decode, 1, Some(0)), "{d}");
    assert_eq!((d.row, d.position), (0, SHORT), "{d}");
}

/// A merge that is wrong where partial results are several: those themselves are right, so attention is not blamed.
#[test]
fn partial_results_of_several_units_are_compared() {
    if !common::has_adapter() {
        return;
    }
    let (stem, from) = ("attention_merge", "return total.values * ");
    let decoding = "return select(1.0, 1.01, params.chunks_per_unit == 1u) * total.values * ";
    let late = "return select(1.0, 1.01, row_position(row) == 66u) * total.values * ";
    for micro in [llama(), gemma()] {
        let d = found(ShaderPatch { stem, from, to: decoding }, &micro, LONG);
        assert_eq!((d.op, d.phase, d.layer, d.position), (stem, PhaseKind::Decode, Some(0), LONG), "{d}");
        let d = found(ShaderPatch { stem, from, to: late }, &micro, LONG);
        assert_eq!((d.op, d.phase, d.layer, d.position), (stem, PhaseKind::Prefill, Some(0), 66), "{d}");
    }
}

/// A fault at one position, before the first that is traced: the step that shows it is traced after all.
#[test]
fn steps_that_run_as_a_whole_are_compared() {
    if !common::has_adapter() {
        return;
    }
    let (stem, from) = ("rope_append", "values[at] = pack(2u * lane);");
    let to = "values[at] = pack(2u * lane) ^ select(0u, 4u, position == 11u);";
    let gpu = block_on(Gpu::open_patched(ShaderPatch { stem, from, to })).unwrap();
    for (traced_from, untraced, phases) in [(0, 0, 2), (SHORT, SHORT, 1), (SHORT + 1, SHORT + 1, 1)] {
        let report = search(&gpu, &llama(), SHORT, traced_from).unwrap();
        assert!(report.is_equal(), "{report}");
        assert_eq!((report.untraced, report.phases.len()), (untraced, phases), "from {traced_from}");
    }
    let report = search(&gpu, &llama(), SHORT, 14).unwrap();
    assert_eq!((report.untraced, report.ids.len()), (11, 12));
    let d = report.difference.unwrap();
    assert_eq!((d.op, d.what.as_str(), d.layer, d.position), (stem, "cached values", Some(0), 11), "{d}");
}

/// A kernel that is wrong in its first runs only, those of the whole: alone, each operation is right.
#[test]
fn differences_that_no_single_operation_shows_are_told() {
    if !common::has_adapter() {
        return;
    }
    let micro = llama();
    // The lanes of all norms of the body, over all rows.
    let norms = plan(&micro).body.iter().filter(|op| matches!(op, Op::RmsNorm { .. })).count();
    assert_eq!(norms * SHORT * 256, 9216);
    let patch = ShaderPatch {
        stem: "rms_norm",
        from: "var sum = 0.0;",
        to: "var sum = select(0.0, 1.0, atomicSub(&tripped[0], 1u) > 0xffffffffu - 9216u);",
    };
    let d = found(patch, &micro, SHORT);
    assert_eq!((d.op, d.what.as_str(), d.layer), (TOGETHER, "cached keys", Some(0)), "{d}");
}

#[test]
fn bad_requests_are_errors() {
    if !common::has_adapter() {
        return;
    }
    let gpu = block_on(Gpu::open(None)).unwrap();
    let micro = llama();
    assert!(matches!(search(&gpu, &micro, 0, 0), Err(Error::BadOption { option: "prompt", .. })));
    assert!(matches!(search(&gpu, &micro, 128, 0), Err(Error::ContextFull { needed: 129, limit: 128 })));
    assert!(matches!(search(&gpu, &micro, 3, 128), Err(Error::ContextFull { needed: 129, limit: 128 })));
    let file = block_on(gguf::open(Source::memory("micro", micro.bytes()))).unwrap();
    let bad = find_difference(&file, &gpu, DebugPrompt::Ids(vec![1, 9999]), DebugOptions::default());
    assert!(matches!(block_on(bad), Err(Error::BadToken { id: 9999, .. })));
}

/// Tracing reads through the gate like everything else.
#[test]
fn readings_name_their_purpose() {
    if !common::has_adapter() {
        return;
    }
    let gpu = block_on(Gpu::open(None)).unwrap();
    gpu.restrict_readbacks(Some(vec![Readback::Tokens]));
    assert!(matches!(search(&gpu, &llama(), SHORT, 0), Err(Error::UnexpectedReadback { .. })));
    gpu.restrict_readbacks(Some(vec![Readback::Tokens, Readback::Trace]));
    assert!(search(&gpu, &llama(), SHORT, 0).unwrap().is_equal());
}
