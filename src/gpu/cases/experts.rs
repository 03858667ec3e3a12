//! `route`, `expert_matmul` of every format, `combine_experts`, and `gated_activation` of several vectors a row.

use super::bench::Bench;
use super::elementwise::quantise;
use super::{CaseResult, Fill, bits};
use crate::cpu::combine_experts::combine_experts;
use crate::cpu::expert_matmul::expert_matmul;
use crate::cpu::gated_activation::gated_activation;
use crate::cpu::matmul::Activations;
use crate::cpu::pool::Pool;
use crate::cpu::route::route;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::gpu::kernels::MatMulForm;
use crate::plan::{Activation, BufferId, Op, Shape};
use crate::quant::QuantType;

/// Runs the tables of the operations on experts, with weights of the formats in `kinds`.
///
/// # Errors
/// Whatever the device fails with; a difference is a result, not an error.
pub async fn run_expert_cases(gpu: &Gpu, kinds: &[QuantType], results: &mut Vec<CaseResult>) -> Result<()> {
    for case in ROUTES {
        route_case(gpu, &case, results).await?;
    }
    for &kind in kinds {
        for case in PRODUCTS {
            let k = if kind.block_len() == 256 { case.k * 8 } else { case.k };
            for &form in gpu.info().matmul_forms {
                product_case(gpu, kind, form, &Product { k, ..case }, results).await?;
            }
        }
    }
    for (width, n_used, rows) in [(32, 1, 1), (100, 8, 3), (576, 3, 9)] {
        combine_case(gpu, width, n_used, rows, results).await?;
        if width.is_multiple_of(32) {
            gated_case(gpu, width, n_used, rows, results).await?;
        }
    }
    Ok(())
}

/// What the logits of a route look like.
#[derive(Debug, Clone, Copy)]
enum Logits {
    Filled(Fill),
    /// Few different values, both zeros among them: the order of ids decides.
    Ties,
    /// Large magnitudes, infinities and NaN in every other row.
    Broken,
}

impl Logits {
    fn values(self, rows: usize, n_experts: usize) -> Vec<f32> {
        let n = rows * n_experts;
        match self {
            Logits::Filled(fill) => fill.values("logits", n),
            Logits::Ties => (0..n).map(|i| [0.5, -0.0, 0.0, -1.5, 0.5][i * i % 5]).collect(),
            Logits::Broken => {
                let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38];
                let mut values = Fill::Uniform(1e38).values("logits", n);
                for (r, row) in values.chunks_exact_mut(n_experts).enumerate().skip(1).step_by(2) {
                    row[r * 7 % n_experts] = bad[r / 2 % bad.len()];
                }
                values
            }
        }
    }
}

struct Route {
    n_experts: usize,
    n_used: usize,
    rows: usize,
    logits: Logits,
}

const ROUTES: [Route; 8] = [
    Route { n_experts: 1, n_used: 1, rows: 1, logits: Logits::Filled(Fill::Uniform(1.0)) },
    Route { n_experts: 8, n_used: 3, rows: 9, logits: Logits::Filled(Fill::Uniform(2.0)) },
    Route { n_experts: 60, n_used: 60, rows: 2, logits: Logits::Filled(Fill::Uniform(10.0)) },
    // all equal
    Route { n_experts: 128, n_used: 8, rows: 1, logits: Logits::Filled(Fill::Zero) },
    Route { n_experts: 128, n_used: 8, rows: 5, logits: Logits::Ties },
    // shares from the largest to none
    Route { n_experts: 128, n_used: 64, rows: 3, logits: Logits::Filled(Fill::Uniform(100.0)) },
    Route { n_experts: 130, n_used: 5, rows: 12, logits: Logits::Broken },
    Route { n_experts: 512, n_used: 10, rows: 2, logits: Logits::Filled(Fill::Spread) },
];

async fn route_case(gpu: &Gpu, case: &Route, results: &mut Vec<CaseResult>) -> Result<()> {
    let &Route { n_experts, n_used, rows, logits } = case;
    let (x, out) = (BufferId(0), BufferId(1));
    let shapes = vec![Shape::f32(n_experts), Shape::F32 { vectors: n_used, width: 2 }];
    let mut table = Bench::new(gpu, shapes).table(1).await?;
    let instance = table.instance(rows, &[&[Op::Route { logits: x, out }]]).await?;
    let values = logits.values(rows, n_experts);
    instance.set(x, &values);
    instance.run(0, rows, 0);

    let mut wanted = vec![0.0; rows * n_used * 2];
    for (out, logits) in wanted.chunks_exact_mut(n_used * 2).zip(values.chunks_exact(n_experts)) {
        route(logits, out);
    }
    let name = format!("{rows} rows, {n_used} of {n_experts}, {logits:?}");
    results.push(CaseResult::compare("route", name, &instance.words(out, rows).await?, &bits(&wanted)));
    Ok(())
}

struct Product {
    /// Weights a row; formats of 256-blocks take it times eight.
    k: usize,
    n_experts: usize,
    /// Rows of an expert.
    n_rows: usize,
    n_used: usize,
    rows: usize,
    /// Bytes of a part, where the matrices are to be split.
    max_part: Option<u64>,
}

const PRODUCTS: [Product; 4] = [
    // one block, more rows than a workgroup has
    Product { k: 32, n_experts: 3, n_rows: 17, n_used: 2, rows: 1, max_part: None },
    // one expert of one
    Product { k: 96, n_experts: 1, n_rows: 5, n_used: 1, rows: 3, max_part: None },
    // 18 segments of one block; a part ends inside an expert
    Product { k: 576, n_experts: 8, n_rows: 21, n_used: 3, rows: 9, max_part: Some(20_000) },
    // 37 blocks: padded segments; several parts an expert
    Product { k: 1184, n_experts: 4, n_rows: 40, n_used: 4, rows: 2, max_part: Some(16_000) },
];

/// Different experts of each row, with weights that nobody reads.
fn picks(n_experts: usize, n_used: usize, rows: usize) -> Vec<f32> {
    let pick = |v: usize| [f32::from_bits(((v / n_used * 5 + v % n_used * 3) % n_experts) as u32), f32::NAN];
    (0..rows * n_used).flat_map(pick).collect()
}

async fn product_case(
    gpu: &Gpu,
    kind: QuantType,
    form: MatMulForm,
    case: &Product,
    results: &mut Vec<CaseResult>,
) -> Result<()> {
    let &Product { k, n_experts, n_rows, n_used, rows, max_part } = case;
    let (shared, own, route) = (BufferId(0), BufferId(1), BufferId(2));
    let (from_shared, from_own) = (BufferId(3), BufferId(4));
    // The result goes to the middle of a wider vector.
    let (out_offset, width) = (3, n_rows + 5);
    let input = |vectors| match kind.is_quantised() {
        true => Shape::Q8 { vectors, width: k },
        false => Shape::F32 { vectors, width: k },
    };
    let output = Shape::F32 { vectors: n_used, width };
    let shapes = vec![input(1), input(n_used), Shape::F32 { vectors: n_used, width: 2 }, output, output];
    let mut bench = Bench::new(gpu, shapes);
    bench.form = form;
    bench.weights.set_max_part(max_part);
    let (weight, matrix) = bench.matrix(kind, n_experts * n_rows, k)?;
    let op = |x, out| Op::ExpertMatMul { weight, n_experts, x, route, out, out_offset };
    let mut table = bench.table(1).await?;
    let instance = table.instance(rows, &[&[op(shared, from_shared), op(own, from_own)]]).await?;

    let route_values = picks(n_experts, n_used, rows);
    let old = Fill::Uniform(1.0).values("old", rows * n_used * width);
    instance.set(route, &route_values);
    instance.set(from_shared, &old);
    instance.set(from_own, &old);
    let inputs = [(shared, rows), (own, rows * n_used)].map(|(x, n)| {
        let values = Fill::Uniform(3.0).values("x", n * k);
        let int8 = quantise(&values, k);
        if kind.is_quantised() {
            instance.set_q8(x, &int8);
        } else {
            instance.set(x, &values);
        }
        (int8, values)
    });
    instance.run(0, rows, 0);

    for ((int8, values), out, name) in
        inputs.iter().zip([(from_shared, "x a row"), (from_own, "x a pick")]).map(|(x, (out, name))| (x, out, name))
    {
        let x = if kind.is_quantised() { Activations::Q8(int8) } else { Activations::F32(values) };
        let mut wanted = old.clone();
        let pool = Pool::serial();
        expert_matmul(&matrix, n_experts, x, &route_values, n_used, &mut wanted, width, out_offset, &pool);
        let case = format!("{kind:?}, {form:?}, {rows} x {k} x {n_rows}, {n_used} of {n_experts}, {name}");
        let found = instance.words(out, rows).await?;
        results.push(CaseResult::compare("expert_matmul", case, &found, &bits(&wanted)));
    }
    Ok(())
}

async fn combine_case(
    gpu: &Gpu,
    width: usize,
    n_used: usize,
    rows: usize,
    results: &mut Vec<CaseResult>,
) -> Result<()> {
    let (y, route, out) = (BufferId(0), BufferId(1), BufferId(2));
    let vectors = n_used;
    let shapes = vec![Shape::F32 { vectors, width }, Shape::F32 { vectors, width: 2 }, Shape::f32(width)];
    let mut table = Bench::new(gpu, shapes).table(1).await?;
    let instance = table.instance(rows, &[&[Op::CombineExperts { y, route, out }]]).await?;
    // Every other column holds results whose products are below the smallest that counts, and nothing that would hide them.
    let is_small = |i: usize| (i % width).is_multiple_of(2);
    let mut values = Fill::Spread.values("y", rows * n_used * width);
    values.iter_mut().enumerate().filter(|(i, _)| is_small(*i)).for_each(|(_, y)| *y *= 2f32.powi(-50));
    let weights = Fill::Spread.values("weights", rows * n_used);
    let picks: Vec<f32> = weights.iter().flat_map(|w| [f32::from_bits(7), *w]).collect();
    let mut old = Fill::Uniform(1e-9).values("old", rows * width);
    old.iter_mut().enumerate().filter(|(i, _)| is_small(*i)).for_each(|(_, old)| *old = 0.0);
    for (buffer, values) in [(y, &values), (route, &picks), (out, &old)] {
        instance.set(buffer, values);
    }
    instance.run(0, rows, 0);

    let mut wanted = vec![0.0; rows * width];
    for (r, out) in wanted.chunks_exact_mut(width).enumerate() {
        combine_experts(&values[r * n_used * width..][..n_used * width], &picks[r * n_used * 2..][..n_used * 2], out);
    }
    wanted.iter_mut().zip(&old).for_each(|(sum, old)| *sum += old);
    let case = format!("{rows} x {n_used} x {width}");
    results.push(CaseResult::compare("combine_experts", case, &instance.words(out, rows).await?, &bits(&wanted)));
    Ok(())
}

/// Every vector is quantised by itself.
async fn gated_case(gpu: &Gpu, width: usize, vectors: usize, rows: usize, results: &mut Vec<CaseResult>) -> Result<()> {
    let (gate_up, out) = (BufferId(0), BufferId(1));
    let shapes = vec![Shape::F32 { vectors, width: 2 * width }, Shape::Q8 { vectors, width }];
    let mut table = Bench::new(gpu, shapes).table(1).await?;
    let activation = Activation::Silu;
    let instance = table.instance(rows, &[&[Op::GatedActivation { gate_up, out, activation }]]).await?;
    let values = Fill::Uniform(4.0).values("gate and up", rows * vectors * 2 * width);
    instance.set(gate_up, &values);
    instance.run(0, rows, 0);

    let mut plain = vec![0.0; rows * vectors * width];
    for (out, x) in plain.chunks_exact_mut(width).zip(values.chunks_exact(2 * width)) {
        gated_activation(x, activation, out);
    }
    let wanted = quantise(&plain, width).words();
    let case = format!("{rows} x {vectors} vectors of {width}, int8");
    results.push(CaseResult::compare("gated_activation", case, &instance.words(out, rows).await?, &wanted));
    Ok(())
}
