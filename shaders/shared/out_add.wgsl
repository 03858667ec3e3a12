// Output of an operation, often a product, added to f32 [rows, width]. Every lane of a workgroup calls `emit` with values of columns first..first+4.
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

fn emit(row: u32, lane: u32, first: u32, values: vec4<f32>) {
    for (var j = 0u; j < 4u; j += 1u) {
        if first + j < params.width {
            let at = row * params.width + first + j;
            out[at] = out[at] + guard(values[j]);
        }
    }
}
