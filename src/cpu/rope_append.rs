//! Norm and rotation of queries and keys; the query made ready for exact scores, key and value appended to the cache.

use super::kv::LayerCache;
use super::rms_norm::rms_norm;
use crate::numerics::{guard, round_sig};
use crate::plan::{Heads, PAGE, RopeKind};

/// What does not depend on the row.
#[derive(Debug, Clone, Copy)]
pub struct RopeAppend<'a> {
    /// Geometry.
    pub heads: Heads,
    /// Per-head norm of q, `[head_dim]`.
    pub q_norm: Option<&'a [f32]>,
    /// Per-head norm of k, `[head_dim]`.
    pub k_norm: Option<&'a [f32]>,
    /// Epsilon of both norms.
    pub eps: f32,
    /// Which elements are paired.
    pub kind: RopeKind,
    /// `[n_positions, pairs, 2]`: cos and sin.
    pub table: &'a [f32],
    /// Rotated pairs a head.
    pub n_pairs: usize,
    /// Multiplier of the query.
    pub q_scale: f32,
}

impl RopeAppend<'_> {
    /// Prepares one row `qkv [row width]` at `position`, whose page of the cache is `page`.
    pub fn row(&self, qkv: &mut [f32], position: usize, cache: &mut LayerCache, page: u32) {
        let Heads { n_kv_heads, head_dim, .. } = self.heads;
        let (queries, rest) = qkv.split_at_mut(self.heads.first_key());
        let (keys, values) = rest.split_at_mut(n_kv_heads * head_dim);
        let angles = &self.table[position * self.n_pairs * 2..][..self.n_pairs * 2];
        for query in queries.chunks_exact_mut(self.heads.query_stride()) {
            let query = &mut query[..head_dim];
            self.norm_rotate(query, self.q_norm, angles);
            for q in query {
                *q = round_sig(*q * self.q_scale, 11);
            }
        }
        for (head, (key, value)) in keys.chunks_exact_mut(head_dim).zip(values.chunks_exact(head_dim)).enumerate() {
            self.norm_rotate(key, self.k_norm, angles);
            cache.store(head, page as usize, position % PAGE, key, value);
        }
    }

    fn norm_rotate(&self, head: &mut [f32], norm: Option<&[f32]>, angles: &[f32]) {
        if let Some(weight) = norm {
            let x = head.to_vec();
            rms_norm(&x, weight, self.eps, head);
        }
        for (pair, angle) in angles.chunks_exact(2).enumerate() {
            let (i, j) = match self.kind {
                RopeKind::Norm => (2 * pair, 2 * pair + 1),
                RopeKind::Neox => (pair, pair + self.n_pairs),
            };
            let (x0, x1, cos, sin) = (head[i], head[j], angle[0], angle[1]);
            head[i] = guard(x0 * cos) - guard(x1 * sin);
            head[j] = guard(x0 * sin) + guard(x1 * cos);
        }
    }
}
