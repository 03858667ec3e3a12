//! The steps of a gated delta net layer's operations.

use super::Lowering;
use crate::gpu::kernels::Kernel;
use crate::gpu::params;
use crate::gpu::recorder::Grid;
use crate::plan::{BufferId, DeltaHeads, HeadOrder, Op};

/// Columns of a state one workgroup advances: `COLUMNS` of `delta_rule.wgsl`.
const COLUMNS: usize = 32;

impl Lowering<'_> {
    pub(super) fn delta_prepare(&mut self, op: &Op) {
        let Op::DeltaPrepare { mixed, conv, dt_bias, rate, out, eps, heads, state } = *op else {
            unreachable!("called for this operation");
        };
        let params = params::DeltaPrepare {
            zero: 0,
            n_key_heads: heads.n_key_heads as u32,
            n_value_heads: heads.n_value_heads as u32,
            size: heads.size as u32,
            kernel: heads.kernel as u32,
            grouped: u32::from(heads.order == HeadOrder::Grouped),
            eps,
            query_scale: heads.query_scale(),
        };
        let vector = |id| self.weights.vector(id).clone();
        let bindings = vec![
            (1, self.sequence.state.clone()),
            (2, self.buffer(mixed).f32().clone()),
            (3, vector(conv)),
            (4, vector(dt_bias)),
            (5, vector(rate)),
            (6, self.sequence.recurrent[state].ring.clone()),
            (7, self.buffer(out).f32().clone()),
        ];
        let grid = Grid::Rows { x: (2 * heads.n_key_heads + heads.n_value_heads + 1) as u32 };
        self.push(Kernel::DeltaPrepare, params, bindings, grid);
    }

    pub(super) fn delta_rule(
        &mut self,
        mixed: BufferId,
        prepared: BufferId,
        out: BufferId,
        heads: DeltaHeads,
        state: usize,
    ) {
        let params = params::DeltaRule {
            zero: 0,
            n_key_heads: heads.n_key_heads as u32,
            n_value_heads: heads.n_value_heads as u32,
            kernel: heads.kernel as u32,
            grouped: u32::from(heads.order == HeadOrder::Grouped),
        };
        let recurrent = &self.sequence.recurrent[state];
        let bindings = vec![
            (1, self.sequence.state.clone()),
            (2, self.buffer(mixed).f32().clone()),
            (3, self.buffer(prepared).f32().clone()),
            (4, recurrent.states.clone()),
            (5, recurrent.ring.clone()),
            (6, self.buffer(out).f32().clone()),
        ];
        let x = (heads.values_width() / COLUMNS) as u32;
        let grid = Grid::Tiles { x, y: 1, tile: if self.spread.is_chunk { u32::MAX } else { 1 } };
        self.push(Kernel::DeltaRule { size: heads.size as u32 }, params, bindings, grid);
    }

    pub(super) fn gated_norm(&mut self, op: &Op) {
        let Op::GatedNorm { x, mixed, weight, out, eps, heads } = *op else {
            unreachable!("called for this operation");
        };
        let out = self.buffer(out);
        let (segments, segment_len) = out.segments();
        let params = params::GatedNorm {
            zero: 0,
            width: out.width() as u32,
            segments,
            segment_len,
            size: heads.size as u32,
            mixed_width: heads.mixed_width() as u32,
            gates_at: heads.n_channels() as u32,
            eps,
            inverse_size: 1.0 / heads.size as f32,
        };
        let (output, mut bindings) = out.output(false);
        bindings.extend([
            (1, self.sequence.state.clone()),
            (2, self.buffer(x).f32().clone()),
            (3, self.buffer(mixed).f32().clone()),
            (4, self.weights.vector(weight).clone()),
        ]);
        self.push(Kernel::GatedNorm(output), params, bindings, Grid::Rows { x: heads.n_value_heads as u32 });
    }
}
