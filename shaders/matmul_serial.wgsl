// As matmul.wgsl, with one lane for a whole row: for adapters that compute on the processor, where a lane is cheap to keep busy and a
// barrier is dear. The segments are folded one after another and combined by the same tree: a sum waits for its right neighbour.
// Grid: [x, y, ceil(x rows / TILE)], x * y workgroups of LANES rows.

const LANES: u32 = 64u;

@group(0) @binding(0) var<uniform> params: Params;
// [x rows, out_width]
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

fn plus(a: array<f32, TILE>, b: array<f32, TILE>) -> array<f32, TILE> {
    var sum: array<f32, TILE>;
    for (var r = 0u; r < TILE; r += 1u) {
        sum[r] = a[r] + b[r];
    }
    return sum;
}

// Sum of the 32 segments, those past the last being zeros.
fn tree(row: u32, first_x: u32) -> array<f32, TILE> {
    // Sums of 1, 2, 4, 8 and 16 segments.
    var of1: array<f32, TILE>;
    var of2: array<f32, TILE>;
    var of4: array<f32, TILE>;
    var of8: array<f32, TILE>;
    var of16: array<f32, TILE>;
    var sum: array<f32, TILE>;
    for (var segment = 0u; segment < 32u; segment += 1u) {
        for (var r = 0u; r < TILE; r += 1u) {
            sum[r] = 0.0;
        }
        if segment < params.segments {
            fold(row, segment, first_x, &sum);
        }
        if (segment & 1u) == 0u {
            of1 = sum;
            continue;
        }
        sum = plus(of1, sum);
        if (segment & 2u) == 0u {
            of2 = sum;
            continue;
        }
        sum = plus(of2, sum);
        if (segment & 4u) == 0u {
            of4 = sum;
            continue;
        }
        sum = plus(of4, sum);
        if (segment & 8u) == 0u {
            of8 = sum;
            continue;
        }
        sum = plus(of8, sum);
        if (segment & 16u) == 0u {
            of16 = sum;
            continue;
        }
        sum = plus(of16, sum);
    }
    return sum;
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if !tile_runs(group.z * TILE) {
        return;
    }
    let row = (group.y * grid.x + group.x) * LANES + lane;
    if row >= params.rows {
        return;
    }
    let first_x = group.z * TILE;
    let sums = tree(row, first_x);
    for (var r = 0u; r < TILE; r += 1u) {
        if !row_runs(first_x + r) {
            continue;
        }
        let at = out_row(first_x + r) * params.out_width + params.out_offset + row;
        if params.accumulate == 1u {
            out[at] = out[at] + sums[r];
        } else {
            out[at] = sums[r];
        }
    }
}
