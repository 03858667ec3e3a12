//! `embed` and `matmul` of every format.

use super::bench::Bench;
use super::elementwise::quantise;
use super::{CaseResult, Fill, bits};
use crate::cpu::matmul::{Activations, matmul};
use crate::cpu::pool::Pool;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::gpu::kernels::MatMulForm;
use crate::plan::{BufferId, Op, Shape};
use crate::quant::{PlaneLayout, QuantType};

struct Case {
    /// Weights a row; formats of 256-blocks take it times eight.
    k: usize,
    /// Rows of the weight.
    n: usize,
    /// Rows of activations.
    rows: usize,
    /// Rows of x a matmul workgroup computes.
    tile: u32,
    /// Rows of a part, where the matrix is to be split.
    part_rows: Option<usize>,
}

impl Case {
    /// Bytes of a part of a matrix of a format.
    fn max_part(&self, kind: QuantType) -> Result<Option<u64>> {
        let layout = PlaneLayout::new(kind, self.k).map_err(|reason| Error::Device { reason })?;
        // The quants are the largest plane.
        Ok(self.part_rows.map(|rows| (rows * layout.quants_stride) as u64))
    }
}

const CASES: [Case; 13] = [
    // one block, more rows than a workgroup has
    Case { k: 32, n: 17, rows: 1, tile: 1, part_rows: None },
    Case { k: 96, n: 5, rows: 3, tile: 8, part_rows: None },
    // 18 segments of one block; two tiles, the second not full
    Case { k: 576, n: 33, rows: 9, tile: 8, part_rows: None },
    // 37 blocks: padded segments
    Case { k: 1184, n: 20, rows: 1, tile: 1, part_rows: None },
    // 24 segments of two blocks, several parts
    Case { k: 1536, n: 50, rows: 2, tile: 8, part_rows: Some(9) },
    Case { k: 2048, n: 40, rows: 1, tile: 1, part_rows: None },
    // Lanes that fold several rows, the last of them with fewer: segments of one block, of two (the last ones padded), and of three (a lane loads two
    // ahead).
    Case { k: 32, n: 67, rows: 8, tile: 8, part_rows: None },
    Case { k: 1184, n: 35, rows: 2, tile: 2, part_rows: Some(17) },
    Case { k: 576, n: 39, rows: 3, tile: 4, part_rows: None },
    Case { k: 1184, n: 35, rows: 4, tile: 4, part_rows: Some(17) },
    Case { k: 3072, n: 38, rows: 6, tile: 4, part_rows: Some(35) },
    Case { k: 3072, n: 23, rows: 7, tile: 8, part_rows: Some(18) },
    // more rows than the largest tile
    Case { k: 1184, n: 70, rows: 67, tile: 8, part_rows: Some(69) },
];

/// Runs the table for formats of `kinds`.
///
/// # Errors
/// Whatever the device fails with; a difference is a result, not an error.
pub async fn run_matrix_cases(gpu: &Gpu, kinds: &[QuantType], results: &mut Vec<CaseResult>) -> Result<()> {
    for &kind in kinds {
        for case in CASES {
            let k = if kind.block_len() == 256 { case.k * 8 } else { case.k };
            for &form in gpu.info().matmul_forms {
                // What multiplies eight rows may multiply more.
                let tiles = form.tiles().iter().filter(|tile| **tile == case.tile || (**tile > 8 && case.tile == 8));
                for &tile in tiles {
                    matmul_case(gpu, kind, form, &Case { k, tile, ..case }, results).await?;
                }
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
    let &Case { k, n, rows, tile, .. } = case;
    let (x, out, sum) = (BufferId(0), BufferId(1), BufferId(2));
    // The result goes to the middle of a wider row.
    let (offset, width) = (3, n + 5);
    let input = if kind.is_quantised() { Shape::q8(k) } else { Shape::f32(k) };
    let mut bench = Bench::new(gpu, vec![input, Shape::f32(width), Shape::f32(width)]);
    (bench.form, bench.tile) = (form, tile);
    bench.weights.set_max_part(case.max_part(kind)?);
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
        let case = format!("{kind:?}, {form:?} by {tile}, {rows} x {k} x {n}, tiles of {tile}, {name}");
        results.push(CaseResult::compare("matmul", case, &found, &bits(&wanted)));
    }
    Ok(())
}

async fn embed_case(gpu: &Gpu, kind: QuantType, case: &Case, results: &mut Vec<CaseResult>) -> Result<()> {
    let &Case { k, n, rows, .. } = case;
    let (plain, scaled) = (BufferId(0), BufferId(1));
    let scale = (k as f32).sqrt();
    let mut bench = Bench::new(gpu, vec![Shape::f32(k); 2]);
    bench.weights.set_max_part(case.max_part(kind)?);
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
