// Finds which ids stay in the draw. By value, then by id, the likeliest come first; top-k, top-p and min-p each keep a beginning of that
// order: all keys above a border, and at the border the lowest ids. Typical-p keeps a beginning of another order of what they left, by distance
// from the expected surprise, then by id. Borders are found byte by byte, from histograms. Grid: [1, rows, 1].
struct Params {
    zero: u32,
    n_vocab: u32,
    n_partials: u32,
}

const LANES: u32 = 256u;
// Weights are at most 2^26 and the vocabulary is below 2^19, so sums of half a weight fit in 32 bits, and sums of masses times surprises in 64.
const ONE: f32 = 67108864.0;
const HALF_BITS: u32 = 13u;
const MAX_ID_BITS: u32 = 19u;
const SURPRISE_BITS: u32 = 16u;
const NO_LIMIT: u32 = 0xffffffffu;
// Keys that fit in workgroup memory.
const POOL: u32 = 1024u;

@group(0) @binding(0) var<uniform> params: Params;
// By slot.
@group(0) @binding(2) var<storage, read> all_rules: array<Rules>;
// [rows, ceil(n_vocab / 4)]: order keys, 0 for ids that cannot be drawn and past the end
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
// [rows, n_partials]: order key, token id
@group(0) @binding(4) var<storage, read> partials: array<vec2<u32>>;
// By row.
@group(0) @binding(5) var<storage, read_write> borders: array<Kept>;

// What a filter keeps: a beginning of the ids in descending order of their ranks, whose weights add up to enough.
struct Cut {
    // What is enough: 65536 times the share of all weights, or where this is 0, a number of ids.
    share: u32,
    count: u32,
    // Ranks are closenesses to the expected surprise rather than keys.
    typical: bool,
    expected: u32,
    top: f32,
}

// Ranks above `rank` stay. At it stay the lowest ids, as many as `missing` takes of the weight `there`.
struct Border {
    rank: u32,
    missing: vec2<u32>,
    there: vec2<u32>,
}

// Keys above `key` stay, and the `take` lowest ids at it.
struct Beginning {
    key: u32,
    take: u32,
}

// What each value of a byte weighs: low and high halves of the weights, added apart.
var<workgroup> low: array<atomic<u32>, 256>;
var<workgroup> high: array<atomic<u32>, 256>;
var<workgroup> sums: array<vec2<u32>, 256>;
// The bytes of the border found so far, what is still to be reached below them, and what ids with these bytes weigh.
var<workgroup> found: u32;
var<workgroup> missing: vec2<u32>;
var<workgroup> there: vec2<u32>;
// The id after the last that stays at a border.
var<workgroup> end: u32;

// The keys that top-k left above its border, where they are few; 0 elsewhere.
var<workgroup> pool: array<u32, POOL>;
var<workgroup> pooled: atomic<u32>;
var<private> from_pool: bool;
// The row's first vector of keys.
var<private> first_four: u32;

// How many times four keys there are to look at.
fn n_fours() -> u32 {
    return select((params.n_vocab + 3u) / 4u, POOL / 4u, from_pool);
}

fn four_keys(i: u32) -> vec4<u32> {
    if from_pool {
        return vec4<u32>(pool[i * 4u], pool[i * 4u + 1u], pool[i * 4u + 2u], pool[i * 4u + 3u]);
    }
    return keys[first_four + i];
}

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

fn times64(a: vec2<u32>, n: u32) -> vec2<u32> {
    let product = multiply_wide(a.x, n);
    return vec2<u32>(product.x, product.y + a.y * n);
}

// The sum of the values of this lane and of those before it; then sums[255] is that of all lanes.
fn prefix64(lane: u32, value: vec2<u32>) -> vec2<u32> {
    var sum = value;
    sums[lane] = sum;
    workgroupBarrier();
    for (var n = 1u; n < LANES; n *= 2u) {
        var before = vec2<u32>(0u);
        if lane >= n {
            before = sums[lane - n];
        }
        workgroupBarrier();
        sum = add64(sum, before);
        sums[lane] = sum;
        workgroupBarrier();
    }
    return sum;
}

// The likelihood of a key over that of the largest value, in units of 2^-26.
fn mass(key: u32, top: f32) -> u32 {
    return u32(exact_exp2(guard((value_of(key) - top) * LOG2E)) * ONE);
}

fn weight_of(cut: Cut, key: u32) -> u32 {
    if cut.share > 0u {
        return mass(key, cut.top);
    }
    return 1u;
}

fn rank_of(cut: Cut, key: u32) -> u32 {
    if cut.typical {
        return (0xffffu - distance_of(key, cut.top, cut.expected)) << 16u;
    }
    return key;
}

// ceil(total * share / 65536)
fn share_of(total: vec2<u32>, share: u32) -> vec2<u32> {
    let up = add64(times64(total, share), vec2<u32>(0xffffu, 0u));
    return vec2<u32>((up.x >> 16u) | (up.y << 16u), up.y >> 16u);
}

// The smallest number of ids of `each` that reach `wanted`; 0 for 0.
fn reach(wanted: vec2<u32>, each: u32) -> u32 {
    var fewer = 0u;
    for (var bit = 1u << MAX_ID_BITS; bit > 0u; bit >>= 1u) {
        if less64(multiply_wide(fewer + bit, each), wanted) {
            fewer += bit;
        }
    }
    return select(0u, fewer + 1u, any(wanted != vec2<u32>(0u)));
}

// Adds what the ids at the border of `before` and all keys above it weigh to the histogram of a byte of their ranks.
fn add_weights(lane: u32, cut: Cut, before: Beginning, shift: u32) {
    let known = 0xffffff00u << shift;
    let prefix = found;
    for (var i = lane; i < n_fours(); i += LANES) {
        let four = four_keys(i);
        for (var j = 0u; j < 4u; j += 1u) {
            if four[j] > before.key {
                let rank = rank_of(cut, four[j]);
                if ((rank ^ prefix) & known) == 0u {
                    add_weight((rank >> shift) & 0xffu, weight_of(cut, four[j]), 1u);
                }
            }
        }
    }
    if lane == 0u && before.take > 0u {
        let rank = rank_of(cut, before.key);
        if ((rank ^ prefix) & known) == 0u {
            add_weight((rank >> shift) & 0xffu, weight_of(cut, before.key), before.take);
        }
    }
}

fn add_weight(bin: u32, weight: u32, times: u32) {
    atomicAdd(&low[bin], times * (weight & ((1u << HALF_BITS) - 1u)));
    if weight >> HALF_BITS > 0u {
        atomicAdd(&high[bin], times * (weight >> HALF_BITS));
    }
}

// What `cut` keeps of what `before` keeps; `digits` is how many upper bytes ranks have.
fn border_of(lane: u32, cut: Cut, before: Beginning, digits: u32) -> Border {
    if lane == 0u {
        found = 0u;
        missing = vec2<u32>(cut.count, 0u);
        there = vec2<u32>(0u);
    }
    for (var digit = 0u; digit < digits; digit += 1u) {
        let shift = 24u - 8u * digit;
        atomicStore(&low[lane], 0u);
        atomicStore(&high[lane], 0u);
        workgroupBarrier();
        add_weights(lane, cut, before, shift);
        workgroupBarrier();
        // The largest byte with which the weight from above reaches what is missing; the lowest one where none does.
        let bin = 255u - lane;
        let upper = atomicLoad(&high[bin]);
        let here = add64(vec2<u32>(atomicLoad(&low[bin]), 0u), vec2<u32>(upper << HALF_BITS, upper >> (32u - HALF_BITS)));
        let reached = prefix64(lane, here);
        let above = subtract64(reached, here);
        var wanted = missing;
        if digit == 0u && cut.share > 0u {
            wanted = share_of(sums[LANES - 1u], cut.share);
        }
        workgroupBarrier();
        if less64(above, wanted) && (bin == 0u || !less64(reached, wanted)) {
            found |= bin << shift;
            missing = subtract64(wanted, above);
            there = here;
        }
        workgroupBarrier();
    }
    let result = Border(found, missing, there);
    workgroupBarrier();
    return result;
}

// The ids of `cut`, which ranks by key, among those of `before`.
fn beginning_of(lane: u32, cut: Cut, before: Beginning) -> Beginning {
    let border = border_of(lane, cut, before, 4u);
    if border.rank == 0u {
        return Beginning(0u, 0u);
    }
    let each = weight_of(cut, border.rank);
    let take = reach(border.missing, each);
    // At the border of `before` are ids that it left out.
    if border.rank == before.key || less64(multiply_wide(take, each), border.there) {
        return Beginning(border.rank, take);
    }
    return Beginning(border.rank - 1u, 0u);
}

// Fills the pool with the keys above the border of `beginning`.
fn fill_pool(lane: u32, beginning: Beginning) {
    for (var i = lane; i < POOL; i += LANES) {
        pool[i] = 0u;
    }
    if lane == 0u {
        atomicStore(&pooled, 0u);
    }
    workgroupBarrier();
    for (var i = lane; i < n_fours(); i += LANES) {
        let four = four_keys(i);
        for (var j = 0u; j < 4u; j += 1u) {
            if four[j] > beginning.key {
                pool[atomicAdd(&pooled, 1u)] = four[j];
            }
        }
    }
    workgroupBarrier();
    from_pool = true;
}

// The mean surprise by mass, rounded down.
fn expected_surprise(lane: u32, before: Beginning, top: f32) -> u32 {
    var total = vec2<u32>(0u);
    var weighted = vec2<u32>(0u);
    for (var i = lane; i < n_fours(); i += LANES) {
        let four = four_keys(i);
        for (var j = 0u; j < 4u; j += 1u) {
            if four[j] > before.key {
                let m = mass(four[j], top);
                total = add64(total, vec2<u32>(m, 0u));
                weighted = add64(weighted, multiply_wide(m, surprise(four[j], top)));
            }
        }
    }
    if lane == 0u && before.take > 0u {
        let m = mass(before.key, top);
        total = add64(total, multiply_wide(m, before.take));
        weighted = add64(weighted, times64(multiply_wide(m, surprise(before.key, top)), before.take));
    }
    prefix64(lane, total);
    total = sums[LANES - 1u];
    workgroupBarrier();
    prefix64(lane, weighted);
    weighted = sums[LANES - 1u];
    workgroupBarrier();
    var quotient = 0u;
    for (var bit = 1u << (SURPRISE_BITS - 1u); bit > 0u; bit >>= 1u) {
        if !less64(weighted, times64(total, quotient + bit)) {
            quotient += bit;
        }
    }
    return quotient;
}

// What an id adds to the ties at the border of `cut`: nothing where it is elsewhere.
fn tie(cut: Cut, kept: Kept, rank: u32, key: u32, id: u32) -> u32 {
    if key == 0u || rank_of(cut, key) != rank || (cut.typical && !stays(kept, key, id)) {
        return 0u;
    }
    return weight_of(cut, key);
}

// The id after the last with which the ties at `border` reach what is missing; any number where all of them stay. The lanes share the ids out in runs, so that the run with
// that id is found from sums.
fn end_of(lane: u32, cut: Cut, kept: Kept, border: Border) -> u32 {
    let n = (params.n_vocab + 3u) / 4u;
    let run = (n + LANES - 1u) / LANES;
    let some = any(border.missing != vec2<u32>(0u)) && any(border.missing != border.there);
    let run_end = select(0u, min((lane + 1u) * run, n), some);
    var own = vec2<u32>(0u);
    for (var i = lane * run; i < run_end; i += 1u) {
        let four = keys[first_four + i];
        for (var j = 0u; j < 4u; j += 1u) {
            own = add64(own, vec2<u32>(tie(cut, kept, border.rank, four[j], i * 4u + j), 0u));
        }
    }
    if lane == 0u {
        end = select(0u, NO_LIMIT, all(border.missing == border.there));
    }
    let reached = prefix64(lane, own);
    var sum = subtract64(reached, own);
    if less64(sum, border.missing) && !less64(reached, border.missing) {
        for (var i = lane * run; i < run_end; i += 1u) {
            let four = keys[first_four + i];
            for (var j = 0u; j < 4u; j += 1u) {
                if less64(sum, border.missing) {
                    sum = add64(sum, vec2<u32>(tie(cut, kept, border.rank, four[j], i * 4u + j), 0u));
                    end = i * 4u + j + 1u;
                }
            }
        }
    }
    workgroupBarrier();
    return end;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if row_done(row) || (batch.rows[row].z & FILTERED) == 0u {
        return;
    }
    let slot = row_slot(row);
    first_four = row * ((params.n_vocab + 3u) / 4u);
    var best = vec2<u32>(0u);
    for (var i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[row * params.n_partials + i]);
    }
    let top_key = best256(lane, best).x;
    let top = value_of(top_key);
    var beginning = Beginning(0u, 0u);
    let by_count = Cut(0u, all_rules[slot].top_k, false, 0u, top);
    if all_rules[slot].top_k > 0u {
        beginning = beginning_of(lane, by_count, beginning);
    }
    if all_rules[slot].top_k > 0u && all_rules[slot].top_k <= POOL && (all_rules[slot].top_p > 0u || all_rules[slot].typical_p > 0u) {
        fill_pool(lane, beginning);
    }
    if all_rules[slot].top_p > 0u {
        beginning = beginning_of(lane, Cut(all_rules[slot].top_p, 0u, false, 0u, top), beginning);
    }
    if all_rules[slot].min_p == 1u && top_key != 0u {
        let least = order_key(flush_small(top + all_rules[slot].min_p_offset));
        if least > beginning.key {
            beginning = Beginning(least - 1u, 0u);
        }
    }
    var kept = Kept(beginning.key, 0u, top_key, 0u, NO_LIMIT, 0u);
    kept.end = end_of(lane, by_count, kept, Border(beginning.key, vec2<u32>(beginning.take, 0u), vec2<u32>(NO_LIMIT)));
    if all_rules[slot].typical_p > 0u {
        kept.expected = expected_surprise(lane, beginning, top);
        let typical = Cut(all_rules[slot].typical_p, 0u, true, kept.expected, top);
        let last = border_of(lane, typical, beginning, 2u);
        let distance_end = end_of(lane, typical, kept, last);
        kept.distance = 0xffffu - (last.rank >> 16u);
        kept.distance_end = distance_end;
    }
    if lane == 0u {
        borders[row] = kept;
    }
}
