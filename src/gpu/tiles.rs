//! How a product is cut into workgroups and lanes.

use super::kernels::MatMulForm;
use crate::quant::{PlaneLayout, QuantType};

/// Rows of x a workgroup of the WGSL kernels computes.
pub(crate) const TILES: [u32; 4] = [1, 2, 4, 8];
/// Rows of x a block of the CUDA kernels computes: tensor cores are as fast for four as other lanes, or faster.
const WARP_TILES: [u32; 6] = [1, 2, 8, 16, 32, 64];
/// From this tile on integer weights are multiplied by tensor cores.
const FIRST_TENSOR_TILE: u32 = 8;
/// Lanes of the CUDA kernels, and rows of the weight a block of theirs computes at most without tensor cores.
const WARPS_LANES: usize = 256;
const WARPS_MAX_ROWS: usize = 16;
/// Rows of the weight one workgroup of the serial form computes: `LANES` of `matmul_serial.wgsl`.
const SERIAL_LANES: usize = 64;

impl MatMulForm {
    /// Rows of x a workgroup may compute, ascending: a chunk of a prompt takes the most, decoding as few as hold all rows.
    pub fn tiles(self) -> &'static [u32] {
        match self {
            MatMulForm::Lanes | MatMulForm::Serial => &TILES,
            MatMulForm::Warps => &WARP_TILES,
        }
    }

    /// The largest tile.
    pub(crate) fn largest_tile(self) -> u32 {
        self.tiles().last().copied().unwrap_or(1)
    }

    /// The tile for weights of a format where others take `tile`.
    pub(crate) fn tile_for(self, kind: QuantType, tile: u32) -> u32 {
        // Floats have no tensor cores that keep the order of additions.
        if kind.is_quantised() { tile } else { tile.min(8) }
    }

    /// Rows of a weight one workgroup computes.
    pub(crate) fn rows_a_group(self, tile: u32, layout: &PlaneLayout) -> usize {
        match self {
            MatMulForm::Lanes => Cut::of(tile).rows_a_group(layout),
            MatMulForm::Serial => SERIAL_LANES,
            // `ROWS` of `matmul_mma.cu`.
            MatMulForm::Warps if layout.kind.is_quantised() && tile >= FIRST_TENSOR_TILE => tile.max(32) as usize,
            MatMulForm::Warps => (WARPS_LANES / layout.segments.count).min(WARPS_MAX_ROWS),
        }
    }
}

/// Rows of x an `expert_matmul` workgroup computes: each has experts of its own.
pub(crate) const EXPERT_TILE: u32 = 1;

/// Lanes of a workgroup at most; all of them for a single row of x.
const MAX_LANES: u32 = 256;
/// Rows of the weight a workgroup computes at most for each that a lane folds.
const MAX_ROWS: u32 = 16;
/// Sums of segments that fit a workgroup's memory: 16 KiB.
const MAX_SUMS: u32 = 4096;

/// Rows of the weight that a lane folds at once: with several rows of x it is their blocks that take the time, and one that was loaded
/// serves all rows of the weight.
fn lane_rows(tile: u32) -> u32 {
    match tile {
        8 => 4,
        4 => 2,
        _ => 1,
    }
}

/// The workgroups of `matmul.wgsl` and `expert_matmul.wgsl` for a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    tile: u32,
    /// Rows of the weight that a lane folds at once.
    pub(crate) lane_rows: u32,
    /// Lanes of a workgroup: as many as have room for all their sums where a row has 32 segments.
    lanes: u32,
    /// Rows of the weight a workgroup computes at most.
    max_rows: u32,
}

impl Cut {
    /// For tiles of `tile` rows of x.
    pub(crate) fn of(tile: u32) -> Self {
        let lane_rows = lane_rows(tile);
        Cut {
            tile,
            lane_rows,
            lanes: MAX_LANES.min(MAX_SUMS / (tile * lane_rows)),
            max_rows: (MAX_ROWS * lane_rows).min(MAX_SUMS / (tile * 32)),
        }
    }

    /// The constants of the shader.
    pub(crate) fn constants(self) -> String {
        let Cut { tile, lane_rows, lanes, max_rows } = self;
        let constants = [("TILE", tile), ("ROWS", lane_rows), ("LANES", lanes), ("MAX_ROWS", max_rows)];
        constants.map(|(name, value)| format!("const {name}: u32 = {value}u;\n")).concat()
    }

    /// Rows of a weight that a workgroup computes: those of all lanes, a lane for each of its segments.
    pub(crate) fn rows_a_group(self, layout: &PlaneLayout) -> usize {
        let lanes_a_row = layout.segments.count as u32;
        (self.lanes / lanes_a_row * self.lane_rows).min(self.max_rows) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QuantType;

    #[test]
    fn workgroups_fit_every_device() {
        for tile in TILES {
            let cut = Cut::of(tile);
            assert!(cut.lanes <= 256 && cut.max_rows * tile * 32 * 4 <= 16 << 10, "{cut:?}");
            for blocks in 1..200 {
                let layout = PlaneLayout::new(QuantType::Q4_0, 32 * blocks).unwrap();
                let rows = cut.rows_a_group(&layout) as u32;
                assert!(rows > 0 && rows.is_multiple_of(cut.lane_rows) && rows <= cut.max_rows, "{cut:?}, {blocks}");
                assert!(rows / cut.lane_rows * layout.segments.count as u32 <= cut.lanes, "{cut:?}, {blocks}");
            }
        }
    }

    /// No lane of a workgroup is idle where rows have 32 segments.
    #[test]
    fn wide_rows_use_all_lanes() {
        let layout = PlaneLayout::new(QuantType::Q4_0, 4096).unwrap();
        for tile in TILES {
            let cut = Cut::of(tile);
            assert_eq!(cut.rows_a_group(&layout) as u32 * 32, cut.lanes * cut.lane_rows, "{cut:?}");
        }
    }
}
