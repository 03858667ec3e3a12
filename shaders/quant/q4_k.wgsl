// Q4_K: nibbles, u8 scale and minimum a block, f16 d and dmin a superblock.
const OFFSET: i32 = 0;
const HAS_MIN: bool = true;
const HAS_SUBS: bool = false;

fn load_block(row: u32, place: u32, block: u32) -> Block {
    let q = quants[row * params.quants_stride + place];
    // Padding blocks read the last entry; their integers are 0.
    let entry = min(block / 8u, params.supers_stride - 1u);
    let d = unpack2x16float(planes[params.supers_offset + row * params.supers_stride + entry]);
    let scale = scale16(row, place);
    // Both exact: 11 + 6 significant bits.
    let dw = d.x * f32(scale & 0xffu);
    let dm = -(d.y * f32(scale >> 8u));
    return Block(q & NIBBLES, (q >> vec4<u32>(4u)) & NIBBLES, dw, dm, vec2<i32>(1));
}
