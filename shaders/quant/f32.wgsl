// F32: values in order.
fn weights4(row: u32, place: u32, block: u32, group: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(quants[row * params.quants_stride + 8u * place + group]);
}

fn rounded(x: f32) -> f32 {
    return x;
}

fn product(w: f32, x: f32) -> f32 {
    return guard(w * x);
}
