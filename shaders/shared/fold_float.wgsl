// Folds a segment of ROWS rows of float weights over TILE rows of f32 activations, value by value. A format's file defines
//   weights4(row, place, block, group)   values 4 group .. 4 group + 4 of a block
//   rounded(x)                           the activation as the format takes it
//   product(w, x)                        exact or guarded
// [x rows, k / 4]
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>;

fn rounded4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

fn plus_products(start: f32, w: vec4<f32>, x: vec4<f32>) -> f32 {
    var sum = start + product(w.x, x.x);
    sum = sum + product(w.y, x.y);
    sum = sum + product(w.z, x.z);
    sum = sum + product(w.w, x.w);
    return sum;
}

// Adds to `acc`, [ROWS, TILE]. Rows past the last are read as the last; nobody asks for their sums.
fn fold(row: u32, segment: u32, first_x: u32, acc: ptr<function, array<f32, ROWS * TILE>>) {
    for (var t = 0u; t < params.segment_len; t += 1u) {
        let block = segment * params.segment_len + t;
        if block >= params.blocks {
            break;
        }
        let place = t * params.segments + segment;
        for (var group = 0u; group < 8u; group += 1u) {
            var w: array<vec4<f32>, ROWS>;
            for (var j = 0u; j < ROWS; j += 1u) {
                w[j] = weights4(min(row + j, params.rows - 1u), place, block, group);
            }
            for (var r = 0u; r < TILE; r += 1u) {
                let values = rounded4(x[((first_x + r) * params.blocks + block) * 8u + group]);
                for (var j = 0u; j < ROWS; j += 1u) {
                    (*acc)[j * TILE + r] = plus_products((*acc)[j * TILE + r], w[j], values);
                }
            }
        }
    }
}
