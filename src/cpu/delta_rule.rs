//! The gated delta rule: `M = g M`, `delta = beta (v - M k)`, `M = M + delta k`, `out = M q`, row after row.

use super::pool::Pool;
use super::recurrent::Recurrent;
use crate::numerics::{flush_small, guard};
use crate::plan::DeltaHeads;

/// Partial sums of a product with a column: those of its values `i = j mod 8`, ascending, then adjacent pairs.
const LANES: usize = 8;

/// Runs every value head over the rows `prepared [rows, prepared width]` of one sequence into `out [rows, n_value_heads size]`.
pub fn delta_rules(prepared: &[f32], heads: DeltaHeads, recurrent: &mut Recurrent, out: &mut [f32], pool: &Pool) {
    let (size, n_rows) = (heads.size, prepared.len() / heads.prepared_width());
    let states = recurrent.states.chunks_exact_mut(size * size);
    let mut work: Vec<_> = states.map(|state| (state, vec![0.0; n_rows * size])).collect();
    pool.for_chunks(&mut work, 1, |head, work| {
        for (state, out) in work {
            delta_rule(prepared, heads, head, state, out);
        }
    });
    for (head, (_, of_head)) in work.iter().enumerate() {
        for (row, of_head) in of_head.chunks_exact(size).enumerate() {
            out[row * heads.values_width() + head * size..][..size].copy_from_slice(of_head);
        }
    }
}

/// Runs value head `head` over the rows `prepared [rows, prepared width]` of one sequence: advances its state `[size, size]`, a column of
/// which is contiguous, and writes `out [rows, size]`.
pub fn delta_rule(prepared: &[f32], heads: DeltaHeads, head: usize, state: &mut [f32], out: &mut [f32]) {
    let size = heads.size;
    let (query_at, key_at) = (heads.key_head(head) * size, (heads.n_key_heads + heads.key_head(head)) * size);
    let value_at = (2 * heads.n_key_heads + head) * size;
    let beta_at = heads.n_channels() + head;
    let rows = prepared.chunks_exact(heads.prepared_width());
    for (row, out) in rows.zip(out.chunks_exact_mut(size)) {
        let (query, key) = (&row[query_at..][..size], &row[key_at..][..size]);
        let (beta, decay) = (row[beta_at], row[beta_at + heads.n_value_heads]);
        let columns = state.chunks_exact_mut(size).zip(&row[value_at..]);
        for ((column, value), out) in columns.zip(out) {
            *out = step(column, query, key, *value, beta, decay);
        }
    }
}

/// Advances one column of a state by one row and gives its product with the query.
fn step(column: &mut [f32], query: &[f32], key: &[f32], value: f32, beta: f32, decay: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (column, key) in column.as_chunks_mut::<LANES>().0.iter_mut().zip(key.as_chunks::<LANES>().0) {
        for j in 0..LANES {
            column[j] = guard(column[j] * decay);
            lanes[j] += guard(column[j] * key[j]);
        }
    }
    let delta = flush_small(guard((value - pairs(lanes)) * beta));
    let mut lanes = [0.0f32; LANES];
    let keys = key.as_chunks::<LANES>().0.iter().zip(query.as_chunks::<LANES>().0);
    for (column, (key, query)) in column.as_chunks_mut::<LANES>().0.iter_mut().zip(keys) {
        for j in 0..LANES {
            column[j] = flush_small(column[j] + guard(key[j] * delta));
            lanes[j] += guard(column[j] * query[j]);
        }
    }
    pairs(lanes)
}

fn pairs([a, b, c, d, e, f, g, h]: [f32; LANES]) -> f32 {
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::rng::Rng;
    use crate::plan::HeadOrder;

    /// The formulas in f64, the state as a matrix `[key, value]`.
    fn reference(rows: &[f32], heads: DeltaHeads, head: usize) -> Vec<f64> {
        let size = heads.size;
        let mut m = vec![vec![0.0f64; size]; size];
        let mut out = Vec::new();
        for row in rows.chunks_exact(heads.prepared_width()) {
            let at = |i: usize| f64::from(row[i]);
            let key_head = heads.key_head(head);
            let q: Vec<f64> = (0..size).map(|i| at(key_head * size + i)).collect();
            let k: Vec<f64> = (0..size).map(|i| at((heads.n_key_heads + key_head) * size + i)).collect();
            let v: Vec<f64> = (0..size).map(|i| at((2 * heads.n_key_heads + head) * size + i)).collect();
            let (beta, decay) = (at(heads.n_channels() + head), at(heads.n_channels() + heads.n_value_heads + head));
            for j in 0..size {
                let kv: f64 = (0..size).map(|i| decay * m[i][j] * k[i]).sum();
                for i in 0..size {
                    m[i][j] = decay * m[i][j] + k[i] * (v[j] - kv) * beta;
                }
            }
            out.extend((0..size).map(|j| (0..size).map(|i| m[i][j] * q[i]).sum::<f64>()));
        }
        out
    }

    fn prepared(heads: DeltaHeads, n_rows: usize) -> Vec<f32> {
        let mut rng = Rng::new(3, "prepared");
        let mut rows: Vec<f32> = (0..n_rows * heads.prepared_width()).map(|_| rng.uniform(-0.2, 0.2)).collect();
        for row in rows.chunks_exact_mut(heads.prepared_width()) {
            row[heads.n_channels()..].iter_mut().for_each(|gate| *gate = rng.uniform(0.1, 1.0));
        }
        rows
    }

    #[test]
    fn the_rule_is_the_papers() {
        for order in [HeadOrder::Tiled, HeadOrder::Grouped] {
            let heads = DeltaHeads { n_key_heads: 2, n_value_heads: 4, size: 32, kernel: 4, order };
            let rows = prepared(heads, 9);
            for head in 0..heads.n_value_heads {
                let mut state = vec![0.0; 32 * 32];
                let mut out = vec![0.0; 9 * 32];
                delta_rule(&rows, heads, head, &mut state, &mut out);
                for (found, expected) in out.iter().zip(reference(&rows, heads, head)) {
                    assert!((f64::from(*found) - expected).abs() < 1e-5, "{order:?}, head {head}: {found}, {expected}");
                }
            }
        }
    }

    #[test]
    fn any_chunking_gives_the_same_bits() {
        let heads = DeltaHeads { n_key_heads: 1, n_value_heads: 2, size: 32, kernel: 4, order: HeadOrder::Tiled };
        let rows = prepared(heads, 12);
        let run = |chunk: usize| {
            let mut state = vec![0.0; 32 * 32];
            let mut out = vec![0.0; 12 * 32];
            let chunks = rows.chunks(chunk * heads.prepared_width()).zip(out.chunks_mut(chunk * 32));
            chunks.for_each(|(rows, out)| delta_rule(rows, heads, 1, &mut state, out));
            (state, out)
        };
        assert!(run(1) == run(12) && run(5) == run(12));
    }
}
