//! Products of each row with the experts it picked. The bits are those of `matmul`.

use super::matmul::{Activations, products_of_rows, rows_of};
use super::matrix::PackedMatrix;
use super::pool::Pool;

/// Writes `out[v * out_stride + out_offset + j] = w[expert[v] * n_rows + j] · x` for every pick v of `route [rows, n_used, 2]` and
/// every j below `n_rows`, the rows that each of `n_experts` experts has in `w`. `x` has one vector a row, or one a pick.
///
/// The picks of one expert are multiplied together, so its weights are read once.
///
/// # Panics
/// If the activations do not match the weights' type and width or the number of picks, or a pick does not fit `w` or `out`.
pub fn expert_matmul(
    w: &PackedMatrix,
    n_experts: usize,
    x: Activations<'_>,
    route: &[f32],
    n_used: usize,
    out: &mut [f32],
    out_stride: usize,
    out_offset: usize,
    pool: &Pool,
) {
    let n_rows = w.rows() / n_experts;
    let mut picks: Vec<(usize, usize)> =
        route.as_chunks::<2>().0.iter().map(|[id, _]| id.to_bits() as usize).zip(0..).collect();
    let x_rows = rows_of(w.layout(), x);
    assert!(x_rows == picks.len() || x_rows * n_used == picks.len(), "{x_rows} vectors for {} picks", picks.len());
    let picks_a_vector = picks.len() / x_rows.max(1);
    picks.sort_unstable();
    for group in picks.chunk_by(|a, b| a.0 == b.0) {
        let first = group[0].0 * n_rows;
        let vectors = group.iter().map(|(_, v)| v / picks_a_vector);
        let products = match x {
            Activations::Q8(x) => products_of_rows(w, first..first + n_rows, Activations::Q8(&x.gather(vectors)), pool),
            Activations::F32(x) => {
                let k = w.layout().k;
                let gathered: Vec<f32> = vectors.flat_map(|v| &x[v * k..][..k]).copied().collect();
                products_of_rows(w, first..first + n_rows, Activations::F32(&gathered), pool)
            }
        };
        for (i, (_, v)) in group.iter().enumerate() {
            let out = &mut out[v * out_stride + out_offset..][..n_rows];
            out.iter_mut().zip(products.chunks_exact(group.len())).for_each(|(out, products)| *out = products[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::matmul::matmul;
    use crate::cpu::quantise::Q8Rows;
    use crate::micro::blocks::push_row;
    use crate::micro::rng::Rng;
    use crate::quant::{PlaneLayout, QuantType};

    const N_EXPERTS: usize = 5;
    const N_ROWS: usize = 17;
    const N_USED: usize = 3;
    const K: usize = 256;

    fn matrix(kind: QuantType) -> PackedMatrix {
        let (mut rng, mut bytes) = (Rng::new(1, "experts"), Vec::new());
        (0..N_EXPERTS * N_ROWS).for_each(|_| push_row(&mut rng, kind, K, 0.1, &mut bytes));
        let mut matrix = PackedMatrix::zeroed(PlaneLayout::new(kind, K).unwrap(), N_EXPERTS * N_ROWS);
        matrix.fill_rows(0, &bytes);
        matrix
    }

    /// Both forms of `n` vectors.
    fn vectors(n: usize) -> (Q8Rows, Vec<f32>) {
        let mut rng = Rng::new(2, "x");
        let values: Vec<f32> = (0..n * K).map(|_| rng.uniform(-1.0, 1.0)).collect();
        let mut rows = Q8Rows::zeroed(K, n);
        values.chunks_exact(K).enumerate().for_each(|(r, x)| rows.quantise_row(r, x));
        (rows, values)
    }

    fn activations(kind: QuantType, (q8, values): &(Q8Rows, Vec<f32>)) -> Activations<'_> {
        if kind.is_quantised() { Activations::Q8(q8) } else { Activations::F32(values) }
    }

    #[test]
    fn every_pick_has_the_bits_of_a_matmul_with_the_whole_weight() {
        // Rows that share experts, and one expert that nobody picks.
        let ids: [[u32; N_USED]; 4] = [[4, 0, 2], [0, 2, 4], [2, 0, 3], [0, 4, 3]];
        let route: Vec<f32> = ids.iter().flatten().flat_map(|id| [f32::from_bits(*id), 0.5]).collect();
        let (stride, offset) = (N_ROWS + 7, 4);
        for kind in QuantType::ALL {
            let w = matrix(kind);
            for n in [ids.len(), ids.len() * N_USED] {
                let x = vectors(n);
                let mut all = vec![0.0; n * w.rows()];
                matmul(&w, activations(kind, &x), false, &mut all, w.rows(), 0, &Pool::serial());
                for threads in [1, 3] {
                    let mut out = vec![7.0; ids.len() * N_USED * stride];
                    let pool = Pool::new(threads);
                    let x = activations(kind, &x);
                    expert_matmul(&w, N_EXPERTS, x, &route, N_USED, &mut out, stride, offset, &pool);
                    for (v, id) in ids.iter().flatten().enumerate() {
                        let vector = if n == ids.len() { v / N_USED } else { v };
                        let wanted = &all[vector * w.rows() + *id as usize * N_ROWS..][..N_ROWS];
                        let found = &out[v * stride..][..stride];
                        assert!(found[offset..offset + N_ROWS] == *wanted, "{kind:?}, {n} vectors, pick {v}");
                        assert!(found[..offset].iter().chain(&found[offset + N_ROWS..]).all(|x| *x == 7.0));
                    }
                }
            }
        }
    }
}
