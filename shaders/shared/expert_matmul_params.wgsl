// What both forms of expert_matmul are told about a part of the experts' matrices.
struct Params {
    zero: u32,
    // First row of this part of the matrices, and its rows.
    first_row: u32,
    rows: u32,
    // Rows of one expert; other parts may hold some of them.
    n_rows: u32,
    // Blocks a row, its segments and blocks a segment.
    blocks: u32,
    segments: u32,
    segment_len: u32,
    // Rows a workgroup computes, as in matmul_params.wgsl.
    rows_a_group: u32,
    // Experts picked a row; vectors of x a row, either 1 or as many.
    n_used: u32,
    x_vectors: u32,
    // Column of an expert's first row's result, columns of `out`.
    out_offset: u32,
    out_width: u32,
    quants_stride: u32,
    high_offset: u32,
    high_stride: u32,
    scales_offset: u32,
    scales_stride: u32,
    supers_offset: u32,
    supers_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, n_used]: id, bits of the weight
@group(0) @binding(6) var<storage, read> route: array<vec2<u32>>;
// [rows, n_used, out_width]
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

// Where row `j` of a pick's expert lies in this part; at least `rows` where it lies in another, or is none of the expert's.
fn part_row(pick: u32, j: u32) -> u32 {
    let row = route[pick].x * params.n_rows + j - params.first_row;
    return select(params.rows, row, j < params.n_rows);
}

// The vector of x that a pick reads.
fn x_of(pick: u32) -> u32 {
    return pick * params.x_vectors / params.n_used;
}
