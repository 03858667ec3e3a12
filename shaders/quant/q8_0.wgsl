// Q8_0: int8, f16 d.
const OFFSET: i32 = 0;
const HAS_MIN: bool = false;
const HAS_SUBS: bool = false;

fn load_block(row: u32, place: u32, block: u32) -> Block {
    let at = row * params.quants_stride + 2u * place;
    return Block(quants[at], quants[at + 1u], half_of(scale16(row, place)), 0.0, vec2<i32>(1));
}
