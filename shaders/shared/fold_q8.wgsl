// Blocks of integer weights against blocks of int8 activations, TILE rows of them.
// [x rows, places, 2]
@group(0) @binding(4) var<storage, read> x_q: array<vec4<u32>>;
// [x rows, places]: bits of d, sum
@group(0) @binding(5) var<storage, read> x_s: array<vec2<u32>>;

// A block of 32 int8 activations.
struct Activations {
    low: vec4<u32>,
    high: vec4<u32>,
    d: f32,
    // Of the integers: times what the weights' are to lose, and as it is.
    offset: i32,
    sum: f32,
}

// The block at `place` of row `row` of x.
fn activations(row: u32, place: u32) -> Activations {
    let at = row * (params.segments * params.segment_len) + place;
    let scale = x_s[at];
    let sum = bitcast<i32>(scale.y);
    return Activations(x_q[2u * at], x_q[2u * at + 1u], bitcast<f32>(scale.x), OFFSET * sum, f32(sum));
}

// `start` plus 16 products, each four added to those before.
fn dot16(start: i32, w: vec4<u32>, x: vec4<u32>) -> i32 {
    return (((start + dot4I8Packed(w.x, x.x)) + dot4I8Packed(w.y, x.y)) + dot4I8Packed(w.z, x.z)) + dot4I8Packed(w.w, x.w);
}

fn term(w: Block, x: Activations) -> f32 {
    var isum: i32;
    if HAS_SUBS {
        isum = w.sub.x * dot16(0, w.low, x.low) + w.sub.y * dot16(0, w.high, x.high);
    } else {
        isum = dot16(dot16(0 - x.offset, w.low, x.low), w.high, x.high);
    }
    let main_term = guard((w.dw * x.d) * f32(isum));
    if HAS_MIN {
        return main_term + guard((w.dm * x.d) * x.sum);
    }
    return main_term;
}

fn place_of(segment: u32, t: u32) -> u32 {
    return t * params.segments + segment;
}

// Block `t` of a segment of a row.
fn block_of(row: u32, segment: u32, t: u32) -> Block {
    return load_block(row, place_of(segment, t), segment * params.segment_len + t);
}

// Adds the terms of a block and the block at `place` of each row of x.
fn add_block(w: Block, place: u32, first_x: u32, acc: ptr<function, array<f32, TILE>>) {
    for (var r = 0u; r < TILE; r += 1u) {
        (*acc)[r] = (*acc)[r] + term(w, activations(first_x + r, place));
    }
}
