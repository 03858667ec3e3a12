// Blocks of integer weights against blocks of int8 activations, TILE rows of them.
// [x rows, places, 2]
@group(0) @binding(4) var<storage, read> x_q: array<vec4<u32>>;
// [x rows, places]: bits of d, sum
@group(0) @binding(5) var<storage, read> x_s: array<vec2<u32>>;

fn dot16(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return (dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y)) + (dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w));
}

fn term(w: Block, low: vec4<u32>, high: vec4<u32>, scale: vec2<u32>) -> f32 {
    let dx = bitcast<f32>(scale.x);
    let sum = bitcast<i32>(scale.y);
    var isum: i32;
    if HAS_SUBS {
        isum = w.sub.x * dot16(w.low, low) + w.sub.y * dot16(w.high, high);
    } else {
        isum = dot16(w.low, low) + dot16(w.high, high) - OFFSET * sum;
    }
    let main_term = guard((w.dw * dx) * f32(isum));
    if HAS_MIN {
        return main_term + guard((w.dm * dx) * f32(sum));
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
    let places = params.segments * params.segment_len;
    for (var r = 0u; r < TILE; r += 1u) {
        let at = (first_x + r) * places + place;
        (*acc)[r] = (*acc)[r] + term(w, x_q[2u * at], x_q[2u * at + 1u], x_s[at]);
    }
}
