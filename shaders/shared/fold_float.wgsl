// Folds a segment of a row of float weights over TILE rows of f32 activations, value by value. A format's file defines
//   weights4(row, place, block, group)   values 4 group .. 4 group + 4 of a block
//   rounded(x)                           the activation as the format takes it
//   product(w, x)                        exact or guarded
// [x rows, k / 4]
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>;

fn fold(row: u32, segment: u32, first_x: u32, acc: ptr<function, array<f32, TILE>>) {
    for (var t = 0u; t < params.segment_len; t += 1u) {
        let block = segment * params.segment_len + t;
        if block >= params.blocks {
            break;
        }
        let place = t * params.segments + segment;
        for (var group = 0u; group < 8u; group += 1u) {
            let w = weights4(row, place, block, group);
            for (var r = 0u; r < TILE; r += 1u) {
                let values = x[((first_x + r) * params.blocks + block) * 8u + group];
                var sum = (*acc)[r];
                sum = sum + product(w.x, rounded(values.x));
                sum = sum + product(w.y, rounded(values.y));
                sum = sum + product(w.z, rounded(values.z));
                sum = sum + product(w.w, rounded(values.w));
                (*acc)[r] = sum;
            }
        }
    }
}
