//! Steps of the operations on experts.

use super::Lowering;
use crate::gpu::kernels::Kernel;
use crate::gpu::params;
use crate::gpu::recorder::Grid;
use crate::gpu::tiles::EXPERT_TILE;
use crate::plan::{BufferId, Op};

/// Columns of a workgroup: `LANES` of `combine_experts.wgsl`.
const COMBINE_LANES: usize = 64;

impl Lowering<'_> {
    pub(super) fn route(&mut self, logits: BufferId, out: BufferId) {
        let (logits, out) = (self.buffer(logits), self.buffer(out));
        let params = params::Route { zero: 0, n_experts: logits.width() as u32, n_used: out.vectors() as u32 };
        let bindings = vec![(1, self.sequence.state.clone()), (2, logits.f32().clone()), (10, out.f32().clone())];
        self.push(Kernel::Route, params, bindings, Grid::Rows { x: 1 });
    }

    pub(super) fn expert_matmul(&mut self, op: &Op) {
        let Op::ExpertMatMul { weight, n_experts, x, route, out, out_offset } = *op else {
            unreachable!("called for this operation");
        };
        let (weights, form) = (self.weights, self.form);
        let (x, route, out) = (self.buffer(x), self.buffer(route), self.buffer(out));
        let matrix = weights.matrix(weight);
        let layout = &matrix.layout;
        let rows: usize = matrix.parts.iter().map(|part| part.rows).sum();
        let (n_rows, rows_a_group) = (rows / n_experts, form.rows_a_group(EXPERT_TILE, layout));
        let bytes = self.tag.bytes;
        for part in &matrix.parts {
            // What a part has of the experts picked is known on the device alone: on average its share.
            self.tag.bytes = bytes * part.rows as u64 / rows as u64;
            let params = params::ExpertMatMul {
                zero: 0,
                first_row: part.first_row as u32,
                rows: part.rows as u32,
                n_rows: n_rows as u32,
                blocks: layout.segments.blocks as u32,
                segments: layout.segments.count as u32,
                segment_len: layout.segments.len as u32,
                rows_a_group: rows_a_group as u32,
                n_used: out.vectors() as u32,
                x_vectors: x.vectors() as u32,
                out_offset: out_offset as u32,
                out_width: out.width() as u32,
                planes: params::Planes::of(layout, part),
            };
            let mut bindings = vec![
                (1, self.sequence.state.clone()),
                (2, part.quants.clone()),
                (3, part.planes.clone()),
                (6, route.f32().clone()),
                (10, out.f32().clone()),
            ];
            bindings.extend(x.factor());
            let grid = Grid::picks(n_rows.div_ceil(rows_a_group) as u32, out.vectors() as u32);
            self.push(Kernel::ExpertMatMul { kind: layout.kind, form }, params, bindings, grid);
        }
    }

    pub(super) fn combine_experts(&mut self, y: BufferId, route: BufferId, out: BufferId) {
        let (y, out) = (self.buffer(y), self.buffer(out));
        let params = params::CombineExperts { zero: 0, width: out.width() as u32, n_used: y.vectors() as u32 };
        let bindings = vec![
            (1, self.sequence.state.clone()),
            (2, y.f32().clone()),
            (3, self.buffer(route).f32().clone()),
            (10, out.f32().clone()),
        ];
        let grid = Grid::Rows { x: out.width().div_ceil(COMBINE_LANES) as u32 };
        self.push(Kernel::CombineExperts, params, bindings, grid);
    }

    pub(super) fn gated_add(&mut self, y: BufferId, gate: BufferId, out: BufferId) {
        let out = self.buffer(out);
        let params = params::GatedAdd { zero: 0, width: out.width() as u32 };
        let bindings = vec![
            (1, self.sequence.state.clone()),
            (2, self.buffer(y).f32().clone()),
            (3, self.buffer(gate).f32().clone()),
            (10, out.f32().clone()),
        ];
        let grid = Grid::Rows { x: out.width().div_ceil(COMBINE_LANES) as u32 };
        self.push(Kernel::GatedAdd, params, bindings, grid);
    }
}
