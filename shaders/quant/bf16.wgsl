// BF16: values in order.
fn weights4(row: u32, place: u32, block: u32, group: u32) -> vec4<f32> {
    let four = quants[row * params.quants_stride + 4u * place + group / 2u];
    let two = select(four.xy, four.zw, group % 2u == 1u);
    return bitcast<vec4<f32>>(vec4<u32>(two.x << 16u, two.x & 0xffff0000u, two.y << 16u, two.y & 0xffff0000u));
}

fn rounded(x: f32) -> f32 {
    return round_sig(x, 16u);
}

fn product(w: f32, x: f32) -> f32 {
    // exact: 8 + 16 significant bits
    return w * x;
}
