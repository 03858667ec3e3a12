// Q4_1: nibbles, f16 d and m.
const OFFSET: i32 = 0;
const HAS_MIN: bool = true;
const HAS_SUBS: bool = false;

fn load_block(row: u32, place: u32, block: u32) -> Block {
    let q = quants[row * params.quants_stride + place];
    let dm = unpack2x16float(scale32(row, place));
    return Block(q & NIBBLES, (q >> vec4<u32>(4u)) & NIBBLES, dm.x, dm.y, vec2<i32>(1));
}
