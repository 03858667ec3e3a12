// How `attention` reads keys and values that are f16. `region` is page n_kv_heads + head.
// [pages, n_kv_heads, head_dim / 8, PAGE], eight f16 an entry
@group(0) @binding(4) var<storage, read> keys: array<vec4<u32>>;
// [pages, n_kv_heads, PAGE, head_dim / 2], two f16 an entry
@group(0) @binding(5) var<storage, read> values: array<u32>;

// Eight values of a key, and a pair of values in four slots, as they are stored.
alias Eight = vec4<u32>;
alias FourPairs = vec4<u32>;

// Where a key's first eight values are; the next eight are PAGE entries on.
fn key_at(region: u32, slot: u32) -> u32 {
    return region * (params.head_dim / 8u) * PAGE + slot;
}

fn load_eight(at: u32, g: u32) -> Eight {
    return keys[at + g * PAGE];
}

// f16 has no scales.
fn key_scale(region: u32, slot: u32, g: u32) -> f32 {
    return 1.0;
}

fn low_half(eight: Eight, scale: f32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(eight.x), unpack2x16float(eight.y));
}

fn high_half(eight: Eight, scale: f32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(eight.z), unpack2x16float(eight.w));
}

fn prepare_values(region: u32, lane: u32) {
}

// A dimension pair in the slots from `slot` on.
fn load_pairs(region: u32, slot: u32, pair: u32) -> FourPairs {
    let stride = params.head_dim / 2u;
    let at = (region * PAGE + slot) * stride + pair;
    return vec4<u32>(values[at], values[at + stride], values[at + 2u * stride], values[at + 3u * stride]);
}

// The `j`th of them; zeros where it is not used, whatever the slot holds.
fn pair_of(pairs: FourPairs, j: u32, slot: u32, pair: u32, used: bool) -> vec2<f32> {
    return unpack2x16float(select(0u, pairs[j], used));
}
