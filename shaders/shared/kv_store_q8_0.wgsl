// How `rope_append` stores a key or a value, which is in `head`, as q8_0. `region` is page n_kv_heads + head. Words are atomic because two
// positions, which are two workgroups' or two submits', share a word of scales.
// [pages, n_kv_heads]: int8 [head_dim / 8, PAGE, 8], scales
@group(0) @binding(7) var<storage, read_write> keys: array<atomic<u32>>;
// [pages, n_kv_heads]: int8 [PAGE, head_dim], scales
@group(0) @binding(8) var<storage, read_write> values: array<atomic<u32>>;

const INFINITY: u32 = 0x7f800000u;
// 1/127 rounded.
const ONE_127TH: u32 = 0x3c010204u;
const LARGEST: f32 = 65504.0;

// amax / 127 as f16 bits, ties to even, magnitudes below 2^-14 kept.
fn scale_bits(amax: f32) -> u32 {
    // Below 2^-100.
    if bitcast<u32>(amax) < 0x0d800000u {
        return 0u;
    }
    let d = guard(amax * bitcast<f32>(ONE_127TH));
    let b = bitcast<u32>(d);
    if b < 0x38800000u {
        // Units of 2^-24.
        return u32(round(d * 16777216.0));
    }
    return (b + 0xfffu + ((b >> 13u) & 1u) - 0x38000000u) >> 13u;
}

// Four int8 and the bits of their block's scale.
struct Four {
    bytes: u32,
    scale: u32,
}

// The values from `i` on, a multiple of 4.
fn quantise(i: u32) -> Four {
    let first = i & ~31u;
    var amax = 0u;
    for (var j = 0u; j < 32u; j += 1u) {
        amax = max(amax, bitcast<u32>(head[first + j]) & 0x7fffffffu);
    }
    if amax > INFINITY {
        return Four(0u, NAN_SCALE);
    }
    let scale = scale_bits(bitcast<f32>(min(amax, bitcast<u32>(LARGEST))));
    if scale == 0u {
        return Four(0u, 0u);
    }
    let r = exact_recip(scale_of(scale));
    let x = clamp(vec4<f32>(head[i], head[i + 1u], head[i + 2u], head[i + 3u]), vec4<f32>(-LARGEST), vec4<f32>(LARGEST));
    let q = clamp(vec4<i32>(round(x * r)), vec4<i32>(-127), vec4<i32>(127));
    let bytes = bitcast<vec4<u32>>(q) & vec4<u32>(0xffu);
    return Four(bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u), scale);
}

// The word of a region that holds the scale of the block of values `i`.
fn scale_word(region: u32, position: u32, i: u32) -> u32 {
    return region * 17u * params.head_dim + 16u * params.head_dim + (i / 32u) * (PAGE / 2u) + position % PAGE / 2u;
}

fn store_key(region: u32, position: u32, lane: u32) {
    if lane < params.head_dim / 4u {
        let four = quantise(4u * lane);
        let at = region * 17u * params.head_dim + ((lane / 2u) * PAGE + position % PAGE) * 2u + lane % 2u;
        atomicStore(&keys[at], four.bytes);
        if lane % 8u == 0u {
            let shift = 16u * (position % 2u);
            let word = scale_word(region, position, 4u * lane);
            atomicAnd(&keys[word], 0xffff0000u >> shift);
            atomicOr(&keys[word], four.scale << shift);
        }
    }
}

fn store_value(region: u32, position: u32, lane: u32) {
    if lane < params.head_dim / 4u {
        let four = quantise(4u * lane);
        let at = region * 17u * params.head_dim + position % PAGE * (params.head_dim / 4u) + lane;
        atomicStore(&values[at], four.bytes);
        if lane % 8u == 0u {
            let shift = 16u * (position % 2u);
            let word = scale_word(region, position, 4u * lane);
            atomicAnd(&values[word], 0xffff0000u >> shift);
            atomicOr(&values[word], four.scale << shift);
        }
    }
}
