//! `embed` and `matmul` of every format.

use super::bench::Bench;
use super::elementwise::quantise;
use super::{CaseResult, Fill, bits};
use crate::cpu::matmul::{Activations, matmul};
use crate::cpu::pool::Pool;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::gpu::kernels::MatMulForm;
use crate::plan::{BufferId, Op, Shape};
use crate::quant::QuantType;

struct Case {
    /// Weights a row; formats of 256-blocks take it times eight.
    k: usize,
    /// Rows of the weight.
    n: usize,
    /// Rows of activations.
    rows: usize,
    /// Bytes of a part, where the matrix is to be split.
    max_part: Option<u64>,
}

const CASES: [Case; 6] = [
    // one block, more rows than a workgroup has
    Case { k: 32, n: 17, rows: 1, max_part: None },
    Case { k: 96, n: 5, rows: 3, max_part: None },
    // 18 segments of one block; two tiles, the second not full
    Case { k: 576, n: 33, rows: 9, max_part: None },
    // 37 blocks: padded segments
    Case { k: 1184, n: 20, rows: 1, max_part: None },
    // 24 segments of two blocks, several parts
    Case { k: 1536, n: 50, rows: 2, max_part: Some(60_000) },
    Case { k: 2048, n: 40, rows: 1, max_part: None },
];

pub(super) async fn run(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    for kind in QuantType::ALL {
        for case in CASES {
            let k = if kind.block_len() == 256 { case.k * 8 } else { case.k };
            for &form in gpu.info().matmul_forms {
                matmul_case(gpu, kind, form, &Case { k, ..case }, results).await?;
            }
            embed_case(gpu, kind, &Case { k, ..case }, results).await?;
        }
    }
    Ok(())
}

async fn matmul_case(
    gpu: &Gpu,
    kind: QuantType,
    form: MatMulForm,
    case: &Case,
    results: &mut Vec<CaseResult>,
) -> Result<()> {
    let &Case { k, n, rows, max_part } = case;
    let (x, out, sum) = (BufferId(0), BufferId(1), BufferId(2));
    // The result goes to the middle of a wider row.
    let (offset, width) = (3, n + 5);
    let input = if kind.is_quantised() { Shape::q8(k) } else { Shape::f32(k) };
    let mut bench = Bench::new(gpu, vec![input, Shape::f32(width), Shape::f32(width)]);
    bench.form = form;
    bench.weights.set_max_part(max_part);
    let (weight, matrix) = bench.matrix(kind, n, k)?;
    let op = |out, accumulate| Op::MatMul { weight, x, out, out_offset: offset, accumulate };
    let mut table = bench.table(1).await?;
    let instance = table.instance(rows, &[&[op(out, false), op(sum, true)]]).await?;

    let values = Fill::Uniform(3.0).values("x", rows * k);
    let old = Fill::Uniform(1.0).values("old", rows * width);
    let int8 = quantise(&values, k);
    let activations = if kind.is_quantised() {
        instance.set_q8(x, &int8);
        Activations::Q8(&int8)
    } else {
        instance.set(x, &values);
        Activations::F32(&values)
    };
    instance.set(out, &old);
    instance.set(sum, &old);
    instance.run(0, rows, 0);

    for (buffer, accumulate, name) in [(out, false, "replaced"), (sum, true, "added")] {
        let mut wanted = old.clone();
        matmul(&matrix, activations, accumulate, &mut wanted, width, offset, &Pool::serial());
        let found = instance.words(buffer, rows).await?;
        let case = format!("{kind:?}, {form:?}, {rows} x {k} x {n}, {name}");
        results.push(CaseResult::compare("matmul", case, &found, &bits(&wanted)));
    }
    Ok(())
}

async fn embed_case(gpu: &Gpu, kind: QuantType, case: &Case, results: &mut Vec<CaseResult>) -> Result<()> {
    let &Case { k, n, rows, max_part } = case;
    let (plain, scaled) = (BufferId(0), BufferId(1));
    let scale = (k as f32).sqrt();
    let mut bench = Bench::new(gpu, vec![Shape::f32(k); 2]);
    bench.weights.set_max_part(max_part);
    let (weight, matrix) = bench.matrix(kind, n, k)?;
    let op = |out, scale| Op::Embed { weight, out, scale };
    let mut table = bench.table(1).await?;
    let instance = table.instance(rows, &[&[op(plain, 1.0), op(scaled, scale)]]).await?;
    // The last row, then others far apart.
    let tokens: Vec<u32> = (0..rows).map(|r| ((n - 1 + r * 7) % n) as u32).collect();
    instance.set_tokens(&tokens);
    instance.run(0, rows, 0);

    let mut wanted = vec![0.0; rows * k];
    for (out, token) in wanted.chunks_exact_mut(k).zip(&tokens) {
        matrix.dequantise_row(*token as usize, out);
    }
    for (buffer, scale) in [(plain, 1.0), (scaled, scale)] {
        let wanted: Vec<f32> = wanted.iter().map(|w| w * scale).collect();
        let case = format!("{kind:?}, {rows} x {k} of {n}, times {scale}");
        let found = instance.words(buffer, rows).await?;
        results.push(CaseResult::compare("embed", case, &found, &bits(&wanted)));
    }
    Ok(())
}
