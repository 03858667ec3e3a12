//! A row's experts, weighted and added (docs/numerics.md, "Experts").

use crate::numerics::{flush_small, guard};

/// `out[c] = Σ weight[p] * y[p, c]` in the order of p, of `y [n_used, out.len()]` and `route [n_used, 2]`.
pub fn combine_experts(y: &[f32], route: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (y, [_, weight]) in y.chunks_exact(out.len()).zip(route.as_chunks::<2>().0) {
        for (sum, y) in out.iter_mut().zip(y) {
            *sum += guard(flush_small(weight * y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_added_in_their_order() {
        // (1 + 1e8) - 1e8 loses the one; another order would not.
        let (y, weights) = ([1.0, 2.0, 1e8, 0.0, -1e8, 4.0], [1.0, 1.0, 1.0]);
        let route: Vec<f32> = weights.iter().flat_map(|w| [f32::from_bits(5), *w]).collect();
        let mut out = [9.0, 9.0];
        combine_experts(&y, &route, &mut out);
        assert_eq!(out, [0.0, 6.0]);
    }

    #[test]
    fn products_below_the_smallest_are_zero() {
        let mut out = [1.0];
        combine_experts(&[2f32.powi(-60), 2f32.powi(-90)], &[0.0, 2f32.powi(-50), 0.0, 1.0], &mut out);
        assert_eq!(out, [2f32.powi(-90)]);
    }
}
