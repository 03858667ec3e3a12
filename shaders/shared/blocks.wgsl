// A block of 32 integer weights, decoded. A format's file defines
//   OFFSET    what is taken off every integer
//   HAS_MIN   whether weights have an offset dm of their own
//   HAS_SUBS  whether the halves have integer scales `sub`
//   load_block(row, place, block)
struct Block {
    // Weights 0..16 and 16..32, int8.
    low: vec4<u32>,
    high: vec4<u32>,
    dw: f32,
    dm: f32,
    sub: vec2<i32>,
}

const NIBBLES: vec4<u32> = vec4<u32>(0x0f0f0f0fu);

// Values 4 group .. 4 group + 4 of a block.
fn weights4(row: u32, place: u32, block: u32, group: u32) -> vec4<f32> {
    let w = load_block(row, place, block);
    let bytes = select(w.low, w.high, group >= 4u)[group % 4u];
    let q = vec4<i32>(vec4<u32>(bytes << 24u, bytes << 16u, bytes << 8u, bytes)) >> vec4<u32>(24u);
    var value = w.dw * vec4<f32>(q - vec4<i32>(OFFSET));
    if HAS_SUBS {
        // exact: 11 + 7 significant bits, then 6 more
        value = (w.dw * f32(w.sub[group / 4u])) * vec4<f32>(q);
    }
    if HAS_MIN {
        // exact: 17 + 5 significant bits
        value = value + vec4<f32>(w.dm);
    }
    return value;
}
