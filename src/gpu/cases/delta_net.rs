//! `delta_prepare`, `delta_rule` and `gated_norm`: a prompt in two chunks, then one row as decoding does it; `gated_add`.

use super::bench::Bench;
use super::elementwise::quantise;
use super::{CaseResult, Fill, bits};
use crate::cpu::delta_prepare::DeltaPrepare;
use crate::cpu::delta_rule::delta_rules;
use crate::cpu::gated_add::gated_add;
use crate::cpu::gated_norm::gated_norm;
use crate::cpu::pool::Pool;
use crate::cpu::recurrent::Recurrent;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::gpu::params::State;
use crate::plan::{BufferId, DeltaHeads, HeadOrder, Op, Shape};

const MIXED: BufferId = BufferId(0);
const PREPARED: BufferId = BufferId(1);
const X: BufferId = BufferId(2);
const PLAIN: BufferId = BufferId(3);
const INT8: BufferId = BufferId(4);

struct Case {
    name: &'static str,
    heads: DeltaHeads,
    fill: Fill,
    /// Rates of decay up to this.
    rate: f32,
    /// Rows of the first and of the second chunk; one more row follows.
    chunks: [usize; 2],
}

const SMALLEST: DeltaHeads =
    DeltaHeads { n_key_heads: 1, n_value_heads: 1, size: 32, kernel: 4, order: HeadOrder::Tiled };
const PLAIN_CASE: Case =
    Case { name: "smallest", heads: SMALLEST, fill: Fill::Uniform(2.0), rate: 1.0, chunks: [5, 2] };

const CASES: [Case; 6] = [
    PLAIN_CASE,
    Case {
        name: "tiled",
        heads: DeltaHeads { n_key_heads: 2, n_value_heads: 6, size: 64, ..SMALLEST },
        chunks: [64, 3],
        ..PLAIN_CASE
    },
    Case {
        name: "grouped",
        heads: DeltaHeads { n_key_heads: 2, n_value_heads: 6, size: 96, order: HeadOrder::Grouped, ..SMALLEST },
        chunks: [9, 3],
        ..PLAIN_CASE
    },
    // The sizes of real models; a convolution longer than the second chunk.
    Case {
        name: "heads of 128",
        heads: DeltaHeads { n_key_heads: 2, n_value_heads: 4, size: 128, kernel: 8, ..SMALLEST },
        chunks: [17, 2],
        ..PLAIN_CASE
    },
    Case {
        name: "heads of 256, a convolution of two",
        heads: DeltaHeads { n_key_heads: 1, n_value_heads: 2, size: 256, kernel: 2, ..SMALLEST },
        chunks: [4, 2],
        ..PLAIN_CASE
    },
    // States fade away, inputs are tiny and large.
    Case { name: "fading", fill: Fill::Spread, rate: 60.0, chunks: [30, 9], ..PLAIN_CASE },
];

pub(super) async fn run(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    for case in CASES {
        case.run(gpu, results).await?;
    }
    for (width, rows) in [(32, 1), (100, 3), (576, 9)] {
        add_case(gpu, width, rows, results).await?;
    }
    Ok(())
}

impl Case {
    async fn run(&self, gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
        let (heads, eps) = (self.heads, 1e-6);
        let [mixed_width, width] = [heads.mixed_width(), heads.values_width()];
        let n = self.chunks[0] + self.chunks[1] + 1;
        let values = self.fill.values(self.name, n * mixed_width);
        let conv = Fill::Uniform(1.0).values("conv", heads.n_channels() * heads.kernel);
        let dt_bias = Fill::Uniform(2.0).values("dt bias", heads.n_value_heads);
        let rate: Vec<f32> =
            Fill::Uniform(self.rate).values("rate", heads.n_value_heads).iter().map(|r| -r.abs()).collect();
        let scales = Fill::Uniform(2.0).values("scales", heads.size);

        let shapes = [mixed_width, heads.prepared_width(), width, width].map(Shape::f32);
        let mut bench = Bench::new(gpu, [&shapes[..], &[Shape::q8(width)]].concat());
        bench.plan.recurrent.push(heads);
        let [conv_id, dt_id, rate_id, weight] =
            [bench.vector(&conv)?, bench.vector(&dt_bias)?, bench.vector(&rate)?, bench.vector(&scales)?];
        let norm = |out| Op::GatedNorm { x: X, mixed: MIXED, weight, out, eps, heads };
        let ops = [
            Op::DeltaPrepare {
                mixed: MIXED,
                conv: conv_id,
                dt_bias: dt_id,
                rate: rate_id,
                out: PREPARED,
                eps,
                heads,
                state: 0,
            },
            Op::DeltaRule { mixed: MIXED, prepared: PREPARED, out: X, heads, state: 0 },
            norm(PLAIN),
            norm(INT8),
        ];
        let mut table = bench.table(n).await?;
        let prefill = table.instance(self.chunks[0].max(2), &[&ops]).await?;
        let decode = table.instance(1, &[&ops]).await?;

        let prepare = DeltaPrepare { heads, conv: &conv, dt_bias: &dt_bias, rate: &rate, eps };
        let mut recurrent = Recurrent::new(heads);
        let mut position = 0;
        for rows in [self.chunks[0], self.chunks[1], 1] {
            let instance = if rows == 1 { &decode } else { &prefill };
            let mixed = &values[position * mixed_width..][..rows * mixed_width];
            instance.set_state(State::at(position));
            instance.set(MIXED, mixed);
            instance.run(0, rows, position);

            let mut prepared = vec![0.0; rows * heads.prepared_width()];
            for (r, out) in prepared.chunks_exact_mut(heads.prepared_width()).enumerate() {
                prepare.row(mixed, r, position, &recurrent, out);
            }
            recurrent.begin(mixed, heads, position);
            let mut x = vec![0.0; rows * width];
            delta_rules(&prepared, heads, &mut recurrent, &mut x, &Pool::serial());
            let mut plain = vec![0.0; rows * width];
            for (i, out) in plain.chunks_exact_mut(heads.size).enumerate() {
                let (row, head) = (i / heads.n_value_heads, i % heads.n_value_heads);
                let gate = row * mixed_width + heads.n_channels() + head * heads.size;
                gated_norm(&x[i * heads.size..][..heads.size], &mixed[gate..][..heads.size], &scales, eps, out);
            }

            let case = |what: &str| format!("{}, {rows} rows at {position}, {what}", self.name);
            let mut push = |op, what, found: Vec<u32>, wanted: &[u32]| {
                results.push(CaseResult::compare(op, case(what), &found, wanted));
            };
            push("delta_prepare", "f32", instance.words(PREPARED, rows).await?, &bits(&prepared));
            push("delta_rule", "values", instance.words(X, rows).await?, &bits(&x));
            let [(states, _), (ring, _)] = table.sequence.recurrent[0].current();
            let found = instance.read(states, heads.states_len()).await?;
            push("delta_rule", "states", found, &bits(&recurrent.states));
            let found = instance.read(ring, heads.ring_len()).await?;
            push("delta_rule", "ring", found, &bits(&recurrent.ring));
            push("gated_norm", "f32", instance.words(PLAIN, rows).await?, &bits(&plain));
            push("gated_norm", "int8", instance.words(INT8, rows).await?, &quantise(&plain, width).words());
            position += rows;
        }
        Ok(())
    }
}

async fn add_case(gpu: &Gpu, width: usize, rows: usize, results: &mut Vec<CaseResult>) -> Result<()> {
    let (y, gate, out) = (BufferId(0), BufferId(1), BufferId(2));
    let mut table = Bench::new(gpu, [width, 1, width].map(Shape::f32).to_vec()).table(1).await?;
    let instance = table.instance(rows, &[&[Op::GatedAdd { y, gate, out }]]).await?;
    let values = Fill::Spread.values("y", rows * width);
    let gates = Fill::Uniform(90.0).values("gates", rows);
    let old = Fill::Uniform(1e-9).values("old", rows * width);
    for (buffer, values) in [(y, &values), (gate, &gates), (out, &old)] {
        instance.set(buffer, values);
    }
    instance.run(0, rows, 0);

    let mut wanted = vec![0.0; rows * width];
    for (r, out) in wanted.chunks_exact_mut(width).enumerate() {
        gated_add(&values[r * width..][..width], gates[r], out);
    }
    wanted.iter_mut().zip(&old).for_each(|(sum, old)| *sum += old);
    let case = format!("{rows} x {width}");
    results.push(CaseResult::compare("gated_add", case, &instance.words(out, rows).await?, &bits(&wanted)));
    Ok(())
}
