//! `rms_norm` and `gated_activation`, with every form of output.

use super::bench::Bench;
use super::{CaseResult, Fill, bits};
use crate::cpu::gated_activation::gated_activation;
use crate::cpu::quantise::Q8Rows;
use crate::cpu::rms_norm::rms_norm;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::plan::{Activation, BufferId, Op, Shape};

/// Input, output as f32 (replaced), as f32 (added to), as int8.
const X: BufferId = BufferId(0);
const PLAIN: BufferId = BufferId(1);
const ADDED: BufferId = BufferId(2);
const INT8: BufferId = BufferId(3);

struct Case {
    width: usize,
    rows: usize,
    fill: Fill,
}

const CASES: [Case; 9] = [
    Case { width: 32, rows: 1, fill: Fill::Uniform(1.0) },
    // no multiple of a block or of four: only f32 output
    Case { width: 33, rows: 3, fill: Fill::Uniform(1.0) },
    Case { width: 96, rows: 2, fill: Fill::Zero },
    Case { width: 256, rows: 1, fill: Fill::Uniform(1e-12) },
    Case { width: 576, rows: 5, fill: Fill::Uniform(1e15) },
    Case { width: 1024, rows: 2, fill: Fill::Spread },
    // more than one round of a workgroup, and padded segments: 37 blocks
    Case { width: 1184, rows: 9, fill: Fill::Uniform(30.0) },
    Case { width: 4096, rows: 1, fill: Fill::Uniform(4.0) },
    Case { width: 9728, rows: 1, fill: Fill::Spread },
];

pub(super) async fn run(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    for case in CASES {
        norm_case(gpu, &case, results).await?;
        for activation in [Activation::Silu, Activation::GeluTanh] {
            gated_case(gpu, &case, activation, results).await?;
        }
    }
    Ok(())
}

fn shapes(input: usize, width: usize) -> Vec<Shape> {
    let float = Shape::f32(width);
    let mut shapes = vec![Shape::f32(input), float, float];
    if width.is_multiple_of(32) {
        shapes.push(Shape::q8(width));
    }
    shapes
}

async fn norm_case(gpu: &Gpu, case: &Case, results: &mut Vec<CaseResult>) -> Result<()> {
    let &Case { width, rows, fill } = case;
    let eps = 1e-5;
    let scales = Fill::Uniform(2.0).values("scales", width);
    let x = fill.values("x", rows * width);
    let old = Fill::Uniform(1.0).values("old", rows * width);

    let mut bench = Bench::new(gpu, shapes(width, width));
    let weight = bench.vector(&scales)?;
    let op = |out, accumulate| Op::RmsNorm { x: X, weight, out, accumulate, eps, source: None };
    let mut ops = vec![op(PLAIN, false), op(ADDED, true)];
    if width.is_multiple_of(32) {
        ops.push(op(INT8, false));
    }
    let mut table = bench.table(1).await?;
    let instance = table.instance(rows, &[&ops]).await?;
    instance.set(X, &x);
    instance.set(ADDED, &old);
    instance.run(0, rows, 0);

    let mut plain = vec![0.0; rows * width];
    for (out, x) in plain.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
        rms_norm(x, &scales, eps, out);
    }
    let added: Vec<f32> = old.iter().zip(&plain).map(|(old, y)| old + y).collect();
    let name = |output: &str| format!("{rows} x {width}, {fill:?}, {output}");
    let mut push = |output: &str, found: Vec<u32>, wanted: &[u32]| {
        results.push(CaseResult::compare("rms_norm", name(output), &found, wanted));
    };
    push("f32", instance.words(PLAIN, rows).await?, &bits(&plain));
    push("added", instance.words(ADDED, rows).await?, &bits(&added));
    if width.is_multiple_of(32) {
        push("int8", instance.words(INT8, rows).await?, &quantised(&plain, width));
    }
    Ok(())
}

async fn gated_case(gpu: &Gpu, case: &Case, activation: Activation, results: &mut Vec<CaseResult>) -> Result<()> {
    let &Case { width, rows, fill } = case;
    let x = fill.values("gate and up", rows * 2 * width);
    let op = |out| Op::GatedActivation { gate_up: X, out, activation };
    let mut ops = vec![op(PLAIN)];
    if width.is_multiple_of(32) {
        ops.push(op(INT8));
    }
    let mut table = Bench::new(gpu, shapes(2 * width, width)).table(1).await?;
    let instance = table.instance(rows, &[&ops]).await?;
    instance.set(X, &x);
    instance.run(0, rows, 0);

    let mut plain = vec![0.0; rows * width];
    for (out, x) in plain.chunks_exact_mut(width).zip(x.chunks_exact(2 * width)) {
        gated_activation(x, activation, out);
    }
    let name = |output: &str| format!("{rows} x {width}, {fill:?}, {activation:?}, {output}");
    let mut push = |output: &str, found: Vec<u32>, wanted: &[u32]| {
        results.push(CaseResult::compare("gated_activation", name(output), &found, wanted));
    };
    push("f32", instance.words(PLAIN, rows).await?, &bits(&plain));
    if width.is_multiple_of(32) {
        push("int8", instance.words(INT8, rows).await?, &quantised(&plain, width));
    }
    Ok(())
}

/// The twin's int8 form of rows of `width` values.
pub(super) fn quantise(values: &[f32], width: usize) -> Q8Rows {
    let mut rows = Q8Rows::zeroed(width, values.len() / width);
    for (r, row) in values.chunks_exact(width).enumerate() {
        rows.quantise_row(r, row);
    }
    rows
}

fn quantised(values: &[f32], width: usize) -> Vec<u32> {
    quantise(values, width).words()
}
