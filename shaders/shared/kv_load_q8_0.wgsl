// How `attention` reads keys and values that are q8_0. `region` is page n_kv_heads + head.
// [pages, n_kv_heads]: int8 [head_dim / 8, PAGE, 8], scales
@group(0) @binding(4) var<storage, read> keys: array<vec2<u32>>;
// [pages, n_kv_heads]: int8 [PAGE, head_dim], scales
@group(0) @binding(5) var<storage, read> values: array<u32>;

// Eight values of a key, and the words that hold a pair of values in four slots, as they are stored.
alias Eight = vec2<u32>;
alias FourPairs = vec4<u32>;

// Scales of the page's values, [head_dim / 32, PAGE].
var<workgroup> value_scales: array<f32, MAX_HEAD_DIM / 32u * PAGE>;

// Integers times their scale, rounded to 11 bits; a NaN where the block holds one.
fn scaled(q: vec4<i32>, scale: f32) -> vec4<f32> {
    // exact: 7 + 11 significant bits
    let v = vec4<f32>(q) * scale;
    let rounded = vec4<f32>(round_sig(v.x, 11u), round_sig(v.y, 11u), round_sig(v.z, 11u), round_sig(v.w, 11u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(rounded) | vec4<u32>(select(0u, NAN_BITS, scale < 0.0)));
}

fn four_of(word: u32) -> vec4<i32> {
    return bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
}

// Where a key's first eight values are; the next eight are PAGE entries on.
fn key_at(region: u32, slot: u32) -> u32 {
    return region * 17u * (params.head_dim / 2u) + slot;
}

fn load_eight(at: u32, g: u32) -> Eight {
    return keys[at + g * PAGE];
}

// The scale of the block that holds the `g`th eight values.
fn key_scale(region: u32, slot: u32, g: u32) -> f32 {
    let first = region * 17u * (params.head_dim / 2u) + 8u * params.head_dim;
    let words = keys[first + g / 4u * (PAGE / 4u) + slot / 4u];
    let word = select(words.x, words.y, (slot & 2u) != 0u);
    return scale_of((word >> (16u * (slot & 1u))) & 0xffffu);
}

fn low_half(eight: Eight, scale: f32) -> vec4<f32> {
    return scaled(four_of(eight.x), scale);
}

fn high_half(eight: Eight, scale: f32) -> vec4<f32> {
    return scaled(four_of(eight.y), scale);
}

// Reads the scales of a page's values; a barrier follows before they are used.
fn prepare_values(region: u32, lane: u32) {
    // A word is two scales.
    if lane < params.head_dim {
        let word = values[region * 17u * params.head_dim + 16u * params.head_dim + lane];
        value_scales[2u * lane] = scale_of(word & 0xffffu);
        value_scales[2u * lane + 1u] = scale_of(word >> 16u);
    }
}

// A dimension pair in the slots from `slot` on, and the pair beside it.
fn load_pairs(region: u32, slot: u32, pair: u32) -> FourPairs {
    let stride = params.head_dim / 4u;
    let at = region * 17u * params.head_dim + slot * stride + pair / 2u;
    return vec4<u32>(values[at], values[at + stride], values[at + 2u * stride], values[at + 3u * stride]);
}

// The `j`th of them; zeros where it is not used, whatever the slot holds.
fn pair_of(pairs: FourPairs, j: u32, slot: u32, pair: u32, used: bool) -> vec2<f32> {
    let word = select(0u, pairs[j] >> (16u * (pair % 2u)), used);
    let q = bitcast<vec2<i32>>(vec2<u32>(word) << vec2<u32>(24u, 16u)) >> vec2<u32>(24u);
    let scale = select(0.0, value_scales[pair / 16u * PAGE + slot + j], used);
    return scaled(vec4<i32>(q, 0, 0), scale).xy;
}
