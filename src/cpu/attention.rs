//! Causal attention over the cache: chunks of one page, merged in a fixed order.

use super::kv::{Eights, HeadPage, LayerCache};
use crate::numerics::{exact_exp2, exact_recip, exact_sigmoid, flush_small, guard, round_sig};
use crate::plan::{CHUNKS_PER_GROUP, Heads, PAGE};

/// Softmax over some keys: the maximum score, the sum of exponentials and the weighted values.
#[derive(Debug, Clone)]
struct Partial {
    max: f32,
    sum: f32,
    values: Vec<f32>,
}

/// The keys and values of one sequence in a layer's cache.
#[derive(Debug, Clone, Copy)]
pub struct Visible<'a> {
    /// Pages of all sequences.
    pub cache: &'a LayerCache,
    /// The sequence's pages, first positions first.
    pub pages: &'a [u32],
}

/// Attention of one query head at `position` into `out [head_dim]`. `query` is `[head_dim]`, or `[2 head_dim]` with the head's gate.
pub fn attention(query: &[f32], seen: Visible<'_>, heads: Heads, kv_head: usize, position: usize, out: &mut [f32]) {
    let (query, gate) = query.split_at(heads.head_dim);
    let first_key = first_visible(heads, position);
    let mut total: Option<Partial> = None;
    let mut group: Option<Partial> = None;
    for chunk in first_key / PAGE..=position / PAGE {
        if chunk % CHUNKS_PER_GROUP == 0 {
            total = merge(total, group.take());
        }
        group = merge(group, Some(attend_visible(query, seen, kv_head, chunk, first_key, position)));
    }
    let total = merge(total, group).expect("a row sees at least itself");
    let scale = exact_recip(total.sum);
    for (out, value) in out.iter_mut().zip(&total.values) {
        *out = value * scale;
    }
    for (out, gate) in out.iter_mut().zip(gate) {
        *out = flush_small(*out * exact_sigmoid(*gate));
    }
}

/// The same before the merge: maximum, sum and weighted values `[2 + head_dim]` of each unit of `chunks_per_unit` chunks that the query
/// sees, first unit first. A unit's chunks are those of one multiple of `chunks_per_unit`, which divides `CHUNKS_PER_GROUP`.
pub(crate) fn unit_partials(
    query: &[f32],
    seen: Visible<'_>,
    heads: Heads,
    kv_head: usize,
    position: usize,
    chunks_per_unit: usize,
) -> Vec<Vec<f32>> {
    let first_key = first_visible(heads, position);
    let (first_chunk, last_chunk) = (first_key / PAGE, position / PAGE);
    let unit = |unit: usize| {
        let chunks = (unit * chunks_per_unit).max(first_chunk)..=((unit + 1) * chunks_per_unit - 1).min(last_chunk);
        let parts = chunks.map(|chunk| Some(attend_visible(query, seen, kv_head, chunk, first_key, position)));
        let merged = parts.fold(None, merge);
        merged.map_or(Vec::new(), |p| [&[p.max, p.sum][..], &p.values].concat())
    };
    (first_chunk / chunks_per_unit..=last_chunk / chunks_per_unit).map(unit).collect()
}

fn first_visible(heads: Heads, position: usize) -> usize {
    heads.window.map_or(0, |window| (position + 1).saturating_sub(window))
}

/// The keys of a chunk from `first_key` to `position`.
fn attend_visible(
    query: &[f32],
    seen: Visible<'_>,
    kv_head: usize,
    chunk: usize,
    first_key: usize,
    position: usize,
) -> Partial {
    let visible = first_key.saturating_sub(chunk * PAGE)..(position + 1 - chunk * PAGE).min(PAGE);
    match seen.cache.page(kv_head, seen.pages[chunk] as usize) {
        HeadPage::F16([keys, values]) => attend_chunk(query, &keys, &values, visible),
        HeadPage::Q8_0([keys, values]) => attend_chunk(query, &keys, &values, visible),
    }
}

/// Softmax over the visible slots of one page.
fn attend_chunk<E: Eights>(query: &[f32], keys: &E, values: &E, visible: std::ops::Range<usize>) -> Partial {
    let groups = query.len() / 8;
    let mut p = [0.0f32; PAGE];
    let mut max = f32::NEG_INFINITY;
    for slot in visible.clone() {
        p[slot] = score(query, keys, slot * groups);
        max = if p[slot] > max { p[slot] } else { max };
    }
    let mut sum = 0.0;
    let mut weighted = vec![0.0f32; query.len()];
    for slot in visible {
        let weight = round_sig(exact_exp2(p[slot] - max), 12);
        sum += weight;
        for (g, acc) in weighted.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let v = values.eight(slot * groups + g);
            for j in 0..8 {
                // exact: 12 + 11 significant bits
                acc[j] += weight * v[j];
            }
        }
    }
    Partial { max, sum, values: weighted }
}

/// Dot product of a query rounded to 11 bits with the key whose first eight values are the `at`th: eight partial sums, then adjacent pairs.
fn score(query: &[f32], keys: &impl Eights, at: usize) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (g, q) in query.as_chunks::<8>().0.iter().enumerate() {
        let k = keys.eight(at + g);
        for j in 0..8 {
            // exact: 11 + 11 significant bits
            lanes[j] += q[j] * k[j];
        }
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// Joins two partial results, the earlier one first.
fn merge(a: Option<Partial>, b: Option<Partial>) -> Option<Partial> {
    let (mut a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (a, b) => return a.or(b),
    };
    let max = if b.max > a.max { b.max } else { a.max };
    let (fa, fb) = (exact_exp2(a.max - max), exact_exp2(b.max - max));
    a.max = max;
    a.sum = guard(a.sum * fa) + guard(b.sum * fb);
    for (x, y) in a.values.iter_mut().zip(&b.values) {
        *x = guard(*x * fa) + guard(*y * fb);
    }
    Some(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::rng::Rng;
    use crate::plan::{KvShape, KvType};

    const HEADS: Heads = Heads { n_heads: 2, n_kv_heads: 1, head_dim: 64, window: Some(100), gated: false };
    const N: usize = 150;

    /// A cache of `N` positions.
    fn cache(kv: KvType, mut row: impl FnMut(usize) -> [Vec<f32>; 2]) -> LayerCache {
        let mut cache = LayerCache::new(KvShape { n_kv_heads: HEADS.n_kv_heads, head_dim: HEADS.head_dim, kv });
        for position in 0..N {
            let [key, value] = row(position);
            cache.store(0, position / PAGE, position % PAGE, &key, &value);
        }
        cache
    }

    /// What attention reads.
    fn read(cache: &LayerCache, position: usize) -> [Vec<f32>; 2] {
        let row = |side: &dyn Fn(usize) -> [f32; 8]| -> Vec<f32> {
            (0..HEADS.head_dim / 8).flat_map(|g| side(position % PAGE * HEADS.head_dim / 8 + g)).collect()
        };
        match cache.page(0, position / PAGE) {
            HeadPage::F16([keys, values]) => [row(&|at| keys.eight(at)), row(&|at| values.eight(at))],
            HeadPage::Q8_0([keys, values]) => [row(&|at| keys.eight(at)), row(&|at| values.eight(at))],
        }
    }

    #[test]
    fn a_cache_of_q8_0_is_an_f16_cache_of_its_values() {
        let mut rng = Rng::new(1, "cache");
        let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.uniform(-3.0, 3.0)).collect() };
        let rows: Vec<_> = (0..N).map(|_| [random(HEADS.head_dim), random(HEADS.head_dim)]).collect();
        let query: Vec<f32> = random(HEADS.head_dim).into_iter().map(|q| round_sig(q, 11)).collect();
        let q8_0 = cache(KvType::Q8_0, |position| rows[position].clone());
        let same = cache(KvType::F16, |position| read(&q8_0, position));
        let f16 = cache(KvType::F16, |position| rows[position].clone());
        let pages = [0, 1, 2];
        let attend = |cache: &LayerCache, position| {
            let mut out = vec![0.0; HEADS.head_dim];
            attention(&query, Visible { cache, pages: &pages }, HEADS, 0, position, &mut out);
            out
        };
        for position in [0, 63, 64, N - 1] {
            let (found, wanted) = (attend(&q8_0, position), attend(&same, position));
            assert!(found.iter().zip(&wanted).all(|(a, b)| a.to_bits() == b.to_bits()), "position {position}");
            assert_ne!(found, attend(&f16, position), "the values before rounding are others");
        }
    }
}
