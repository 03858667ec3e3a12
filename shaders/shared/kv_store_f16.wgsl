// How `rope_append` stores a key or a value, which is in `head`, as f16. `region` is page n_kv_heads + head.
// [pages, n_kv_heads, head_dim / 8, PAGE], eight f16 an entry
@group(0) @binding(7) var<storage, read_write> keys: array<vec4<u32>>;
// [pages, n_kv_heads, PAGE, head_dim / 2], two f16 an entry
@group(0) @binding(8) var<storage, read_write> values: array<u32>;

fn pack(i: u32) -> u32 {
    return to_f16_bits(head[i]) | (to_f16_bits(head[i + 1u]) << 16u);
}

fn store_key(region: u32, position: u32, lane: u32) {
    if lane < params.head_dim / 8u {
        let at = (region * (params.head_dim / 8u) + lane) * PAGE + position % PAGE;
        let i = 8u * lane;
        keys[at] = vec4<u32>(pack(i), pack(i + 2u), pack(i + 4u), pack(i + 6u));
    }
}

fn store_value(region: u32, position: u32, lane: u32) {
    if lane < params.head_dim / 2u {
        let at = (region * PAGE + position % PAGE) * (params.head_dim / 2u) + lane;
        values[at] = pack(2u * lane);
    }
}
