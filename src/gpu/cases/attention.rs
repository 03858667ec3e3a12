//! `rope_append` and `attention`: a prompt in chunks, then one row as decoding does it.

use super::super::driver::Buffer;
use super::bench::{Bench, Instance};
use super::elementwise::quantise;
use super::{CaseResult, Fill, bits};
use crate::cpu::attention::{Visible, attention};
use crate::cpu::kv::LayerCache;
use crate::cpu::rope_append::RopeAppend;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::gpu::kv::{SIDES, to_host};
use crate::gpu::params::State;
use crate::plan::{BufferId, Heads, KvShape, KvType, Op, PAGE, RopeKind, RopeTable, Shape};

/// Rows of a chunk of the prompt.
const CHUNK: usize = 64;
const QKV: BufferId = BufferId(0);
const PLAIN: BufferId = BufferId(1);
const INT8: BufferId = BufferId(2);

struct Case {
    name: &'static str,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    kind: RopeKind,
    /// Whether q and k heads are normed.
    normed: bool,
    /// Whether each query head is followed by its gate.
    gated: bool,
    /// Positions: all but the last are prefilled.
    n: usize,
    fill: Fill,
    kv: KvType,
}

const PLAIN_CASE: Case = Case {
    name: "smallest",
    n_heads: 4,
    n_kv_heads: 1,
    head_dim: 8,
    window: None,
    kind: RopeKind::Norm,
    normed: false,
    gated: false,
    n: 2,
    fill: Fill::Uniform(2.0),
    kv: KvType::F16,
};

const Q8_CASE: Case = Case { name: "q8_0", head_dim: 32, kv: KvType::Q8_0, ..PLAIN_CASE };

const CASES: [Case; 17] = [
    PLAIN_CASE,
    Case { name: "a page and a position", n: 65, ..PLAIN_CASE },
    Case { name: "SmolLM2's heads", n_heads: 9, n_kv_heads: 3, head_dim: 64, n: 131, ..PLAIN_CASE },
    // Six query heads a key/value head: two groups, the second not full.
    Case { name: "f16 clamps", n_heads: 6, head_dim: 16, n: 70, fill: Fill::Uniform(3e5), ..PLAIN_CASE },
    Case {
        name: "Gemma's heads and window",
        head_dim: 256,
        window: Some(70),
        kind: RopeKind::Neox,
        normed: true,
        n: 200,
        ..PLAIN_CASE
    },
    Case { name: "two groups of chunks", n: 2200, fill: Fill::Uniform(4.0), ..PLAIN_CASE },
    Case { name: "gates", n_heads: 12, n_kv_heads: 2, head_dim: 40, normed: true, gated: true, n: 70, ..PLAIN_CASE },
    // First visible chunk inside a group.
    Case { name: "a window over two groups", window: Some(2000), n: 2300, ..PLAIN_CASE },
    Q8_CASE,
    Case { name: "q8_0, a page and a position", n: 65, ..Q8_CASE },
    Case { name: "q8_0, SmolLM2's heads", n_heads: 9, n_kv_heads: 3, head_dim: 64, n: 131, ..Q8_CASE },
    // Three blocks a head; six query heads a key/value head.
    Case { name: "q8_0 clamps", n_heads: 12, n_kv_heads: 2, head_dim: 96, n: 70, fill: Fill::Uniform(3e5), ..Q8_CASE },
    Case { name: "q8_0, scales that are denormal halves", n: 70, fill: Fill::Uniform(3e-3), ..Q8_CASE },
    Case { name: "q8_0, scales that round to nothing", n: 70, fill: Fill::Uniform(8e-6), ..Q8_CASE },
    Case { name: "q8_0, all magnitudes", head_dim: 128, n: 70, fill: Fill::Spread, ..Q8_CASE },
    Case {
        name: "q8_0, Gemma's heads and window",
        head_dim: 256,
        window: Some(70),
        kind: RopeKind::Neox,
        normed: true,
        n: 200,
        ..Q8_CASE
    },
    Case { name: "q8_0, a window over two groups", window: Some(2000), n: 2300, ..Q8_CASE },
];

pub(super) async fn run(gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
    for case in CASES {
        case.run(gpu, results).await?;
    }
    Ok(())
}

impl Case {
    fn heads(&self) -> Heads {
        Heads {
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            window: self.window,
            gated: self.gated,
        }
    }

    fn shape(&self) -> KvShape {
        KvShape { n_kv_heads: self.n_kv_heads, head_dim: self.head_dim, kv: self.kv }
    }

    async fn run(&self, gpu: &Gpu, results: &mut Vec<CaseResult>) -> Result<()> {
        let heads = self.heads();
        let (out_width, width) = (self.n_heads * self.head_dim, heads.row_width());
        let rope = self.rope();
        let qkv = self.fill.values(self.name, self.n * width);
        let norms = ["q norm", "k norm"].map(|name| Fill::Uniform(2.0).values(name, self.head_dim));

        let shapes = [Shape::f32(width), Shape::f32(out_width), Shape::q8(out_width)];
        let mut bench = Bench::new(gpu, shapes.to_vec());
        bench.layer(rope.clone(), self.shape());
        let ids = [bench.vector(&norms[0])?, bench.vector(&norms[1])?];
        let angles = rope.values(self.n);
        let twin = RopeAppend {
            heads,
            q_norm: self.normed.then_some(&norms[0]),
            k_norm: self.normed.then_some(&norms[1]),
            eps: 1e-6,
            kind: self.kind,
            table: &angles,
            n_pairs: rope.frequencies.len(),
            q_scale: (std::f64::consts::LOG2_E / (self.head_dim as f64).sqrt()) as f32,
        };
        let append = [Op::RopeAppend {
            qkv: QKV,
            q_norm: self.normed.then_some(ids[0]),
            k_norm: self.normed.then_some(ids[1]),
            eps: twin.eps,
            rope: 0,
            kind: self.kind,
            heads,
            q_scale: twin.q_scale,
            layer: 0,
        }];
        let attend = [PLAIN, INT8].map(|out| Op::Attention { qkv: QKV, out, heads, layer: 0 });
        let mut table = bench.table(self.n).await?;
        let lists: [&[Op]; 2] = [&append, &attend];
        let prefill = table.instance(CHUNK, &lists).await?;
        let decode = table.instance(1, &lists).await?;

        let mut cache = LayerCache::new(self.shape());
        let mut position = 0;
        while position < self.n {
            let last = position == self.n - 1;
            let rows = if last { 1 } else { CHUNK.min(self.n - 1 - position) };
            let instance = if last { &decode } else { &prefill };
            let input = &qkv[position * width..][..rows * width];
            instance.set_state(State::at(position));
            instance.set(QKV, input);
            instance.run(0, rows, position);
            let mut prepared = input.to_vec();
            for (r, row) in prepared.chunks_exact_mut(width).enumerate() {
                twin.row(row, position + r, &mut cache, ((position + r) / PAGE) as u32);
            }
            // The last chunk and the last row show everything the cache holds.
            if position + rows >= self.n - 1 {
                instance.run(1, rows, position);
                let name = |what: &str| format!("{}, {rows} rows at {position}, {what}", self.name);
                let queries = |words: &[f32]| -> Vec<u32> {
                    words.chunks_exact(width).flat_map(|row| bits(&row[..heads.first_key()])).collect()
                };
                let found: Vec<f32> = instance.words(QKV, rows).await?.into_iter().map(f32::from_bits).collect();
                let (found, wanted) = (queries(&found), queries(&prepared));
                results.push(CaseResult::compare("rope_append", name("queries"), &found, &wanted));
                let page = (position + rows - 1) / PAGE;
                let found = self.device_page(&prefill, &table.sequence.cache[0], page).await?;
                results.push(CaseResult::compare(
                    "rope_append",
                    name("cache"),
                    &found,
                    &words(&cache.page_bytes(page)),
                ));
                let wanted = twin_attention(&prepared, &cache, heads, position);
                let found = instance.words(PLAIN, rows).await?;
                results.push(CaseResult::compare("attention", name("f32"), &found, &bits(&wanted)));
                let found = instance.words(INT8, rows).await?;
                let wanted = quantise(&wanted, out_width).words();
                results.push(CaseResult::compare("attention", name("int8"), &found, &wanted));
            }
            position += rows;
        }
        Ok(())
    }

    /// A page's keys and values on the device, in the hosts' order.
    async fn device_page(&self, instance: &Instance, cache: &(Buffer, Buffer), page: usize) -> Result<Vec<u32>> {
        let n = self.shape().page_bytes() / 4;
        let mut found = Vec::new();
        for (side, buffer) in SIDES.into_iter().zip([&cache.0, &cache.1]) {
            let all = instance.read(buffer, (page + 1) * n).await?;
            found.extend(words(&to_host(self.shape(), side, bytemuck::cast_slice(&all[page * n..]))));
        }
        Ok(found)
    }

    /// Rotates all but the last two pairs of a head.
    fn rope(&self) -> RopeTable {
        let n_pairs = self.head_dim / 2 - 2;
        let frequency = |i: usize| 1e4f64.powf(-(i as f64) / n_pairs as f64);
        RopeTable { frequencies: (0..n_pairs).map(frequency).collect(), magnitude: 1.0 }
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// The CPU's attention over prepared rows, the first at `position`.
fn twin_attention(prepared: &[f32], cache: &LayerCache, heads: Heads, position: usize) -> Vec<f32> {
    let Heads { n_heads, n_kv_heads, head_dim, .. } = heads;
    let pages: Vec<u32> = (0..(position + prepared.len()).div_ceil(PAGE) as u32).collect();
    let seen = Visible { cache, pages: &pages };
    let mut out = Vec::new();
    for (r, row) in prepared.chunks_exact(heads.row_width()).enumerate() {
        for (h, query) in row[..heads.first_key()].chunks_exact(heads.query_stride()).enumerate() {
            let at = out.len();
            out.resize(at + head_dim, 0.0);
            attention(query, seen, heads, h / (n_heads / n_kv_heads), position + r, &mut out[at..]);
        }
    }
    out
}
