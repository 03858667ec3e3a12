// Finds which ids stay in the draw. By value, then by id, the likeliest come first, and each filter keeps a beginning of that order:
// all keys above a border, and at the border the lowest ids. The border's key is found byte by byte, from histograms. Grid: [1, 1, 1].
struct Params {
    zero: u32,
    n_vocab: u32,
    n_partials: u32,
}

const LANES: u32 = 256u;
// Weights are at most 2^26 and the vocabulary at most 2^19, so sums of half a weight fit in 32 bits.
const ONE: f32 = 67108864.0;
const HALF_BITS: u32 = 13u;
const MAX_ID_BITS: u32 = 19u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> rules: Rules;
// [ceil(n_vocab / 4)]: order keys, 0 for ids that cannot be drawn and past the end
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
// [n_partials]: order key, token id
@group(0) @binding(4) var<storage, read> partials: array<vec2<u32>>;
// [2]: the least key that stays, the last id that stays at this key
@group(0) @binding(5) var<storage, read_write> border: array<u32>;

// Keys above `key` stay, and the `take` lowest ids at it.
struct Border {
    key: u32,
    take: u32,
}

// What each value of a byte weighs: low and high halves of the weights, added apart.
var<workgroup> low: array<atomic<u32>, 256>;
var<workgroup> high: array<atomic<u32>, 256>;
// The bytes of the border found so far, and what is still to be reached below them.
var<workgroup> found: u32;
var<workgroup> missing: vec2<u32>;

// Integers of 64 bits: (low, high) words.
fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let x = a.x + b.x;
    return vec2<u32>(x, a.y + b.y + u32(x < a.x));
}

fn subtract64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn bin_weight(bin: u32) -> vec2<u32> {
    let upper = atomicLoad(&high[bin]);
    return add64(vec2<u32>(atomicLoad(&low[bin]), 0u), vec2<u32>(upper << HALF_BITS, upper >> (32u - HALF_BITS)));
}

// The likelihood of a key over that of the largest value, in units of 2^-26.
fn likelihood(key: u32, top: f32) -> u32 {
    return u32(exact_exp2(guard((value_of(key) - top) * LOG2E)) * ONE);
}

fn weight(key: u32, by_mass: bool, top: f32) -> u32 {
    if by_mass {
        return likelihood(key, top);
    }
    return 1u;
}

// ceil(total * top_p / 65536)
fn top_p_of(total: vec2<u32>) -> vec2<u32> {
    let product = multiply_wide(total.x, rules.top_p);
    let up = add64(vec2<u32>(product.x, product.y + total.y * rules.top_p), vec2<u32>(0xffffu, 0u));
    return vec2<u32>((up.x >> 16u) | (up.y << 16u), up.y >> 16u);
}

// The byte of the border among the bins: the largest with which the weight from above reaches what is missing.
fn choose(by_mass: bool, shift: u32) {
    if by_mass && shift == 24u {
        var total = vec2<u32>(0u);
        for (var bin = 0u; bin < 256u; bin += 1u) {
            total = add64(total, bin_weight(bin));
        }
        missing = top_p_of(total);
    }
    var rest = missing;
    var bin = 255u;
    loop {
        let here = bin_weight(bin);
        if bin == 0u || !less64(here, rest) {
            break;
        }
        rest = subtract64(rest, here);
        bin -= 1u;
    }
    found |= bin << shift;
    missing = rest;
}

// The smallest number of ids of `each` that reach `wanted`, which is not 0.
fn reach(wanted: vec2<u32>, each: u32) -> u32 {
    var fewer = 0u;
    for (var bit = 1u << MAX_ID_BITS; bit > 0u; bit >>= 1u) {
        if less64(multiply_wide(fewer + bit, each), wanted) {
            fewer += bit;
        }
    }
    return fewer + 1u;
}

// The border of top-k, or of top-p by mass, among the ids that `before` keeps.
fn next_border(lane: u32, by_mass: bool, top: f32, before: Border) -> Border {
    if lane == 0u {
        found = 0u;
        missing = vec2<u32>(rules.top_k, 0u);
    }
    for (var digit = 0u; digit < 4u; digit += 1u) {
        let shift = 24u - 8u * digit;
        let known = 0xffffff00u << shift;
        atomicStore(&low[lane], 0u);
        atomicStore(&high[lane], 0u);
        workgroupBarrier();
        for (var i = lane; i * 4u < params.n_vocab; i += LANES) {
            let four = keys[i];
            for (var j = 0u; j < 4u; j += 1u) {
                let key = four[j];
                if key > before.key && ((key ^ found) & known) == 0u {
                    let w = weight(key, by_mass, top);
                    let bin = (key >> shift) & 0xffu;
                    atomicAdd(&low[bin], w & ((1u << HALF_BITS) - 1u));
                    if by_mass {
                        atomicAdd(&high[bin], w >> HALF_BITS);
                    }
                }
            }
        }
        if lane == 0u && before.take > 0u && ((before.key ^ found) & known) == 0u {
            let w = weight(before.key, by_mass, top);
            let bin = (before.key >> shift) & 0xffu;
            atomicAdd(&low[bin], before.take * (w & ((1u << HALF_BITS) - 1u)));
            atomicAdd(&high[bin], before.take * (w >> HALF_BITS));
        }
        workgroupBarrier();
        if lane == 0u {
            choose(by_mass, shift);
        }
        workgroupBarrier();
    }
    var result = Border(found, 0u);
    if result.key != 0u {
        result.take = reach(missing, weight(result.key, by_mass, top));
    }
    workgroupBarrier();
    return result;
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    if state.done != 0u {
        return;
    }
    var best = vec2<u32>(0u);
    for (var i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[i]);
    }
    let top_key = best256(lane, best).x;
    let top = value_of(top_key);
    var kept = Border(0u, 0u);
    if rules.top_k > 0u {
        kept = next_border(lane, false, top, kept);
    }
    if rules.top_p > 0u {
        kept = next_border(lane, true, top, kept);
    }
    var least = 0u;
    if rules.min_p == 1u && top_key != 0u {
        least = order_key(flush_small(top + rules.min_p_offset));
    }
    if lane == 0u {
        border[0] = max(kept.key, least);
    }

    // The lanes share the ids out in runs, so that the run with the last id that stays is found from counts.
    let n = (params.n_vocab + 3u) / 4u;
    let run = (n + LANES - 1u) / LANES;
    let end = min((lane + 1u) * run, n);
    var ties = 0u;
    for (var i = lane * run; i < end; i += 1u) {
        let four = keys[i];
        for (var j = 0u; j < 4u; j += 1u) {
            ties += u32(four[j] == kept.key);
        }
    }
    atomicStore(&low[lane], ties);
    workgroupBarrier();
    var earlier = 0u;
    for (var l = 0u; l < lane; l += 1u) {
        earlier += atomicLoad(&low[l]);
    }
    if least > kept.key {
        if lane == 0u {
            border[1] = 0xffffffffu;
        }
    } else if earlier < kept.take && kept.take <= earlier + ties {
        var left = kept.take - earlier;
        for (var i = lane * run; i < end; i += 1u) {
            let four = keys[i];
            for (var j = 0u; j < 4u; j += 1u) {
                if four[j] == kept.key && left > 0u {
                    left -= 1u;
                    border[1] = i * 4u + j;
                }
            }
        }
    }
}
