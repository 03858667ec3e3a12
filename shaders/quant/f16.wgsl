// F16: values in order.
fn weights4(row: u32, place: u32, block: u32, group: u32) -> vec4<f32> {
    let four = quants[row * params.quants_stride + 4u * place + group / 2u];
    let two = select(four.xy, four.zw, group % 2u == 1u);
    return vec4<f32>(unpack2x16float(two.x), unpack2x16float(two.y));
}

fn rounded(x: f32) -> f32 {
    return round_sig(x, 12u);
}

fn product(w: f32, x: f32) -> f32 {
    // exact: 11 + 12 significant bits
    return w * x;
}
