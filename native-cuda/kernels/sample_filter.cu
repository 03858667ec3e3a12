// Finds which ids stay in the draw. By value, then by id, the likeliest come first; top-k, top-p and min-p each keep a beginning of that
// order: all keys above a border, and at the border the lowest ids. Typical-p keeps a beginning of another order of what they left, by distance
// from the expected surprise, then by id. Borders are found byte by byte, from histograms. Grid: [1, rows, 1].
#include "shared/best.cuh"
#include "shared/exact.cuh"
#include "shared/kept.cuh"
#include "shared/rules.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned n_vocab;
    unsigned n_partials;
};

using u64 = unsigned long long;

constexpr unsigned LANES = 256;
constexpr unsigned WARPS = LANES / 32;
// Weights are at most 2^26 and the vocabulary is below 2^19, so sums of half a weight fit in 32 bits, and sums of masses times surprises in 64.
constexpr float ONE = 67108864.0f;
constexpr unsigned HALF_BITS = 13;
constexpr unsigned MAX_ID_BITS = 19;
constexpr unsigned SURPRISE_BITS = 16;
constexpr unsigned NO_LIMIT = 0xffffffff;
// Keys that fit in shared memory.
constexpr unsigned POOL = 1024;

// Order keys, 0 for ids that cannot be drawn and past the end.
struct Fours {
    const uint4* at;
    unsigned n;
};

// What a filter keeps: a beginning of the ids in descending order of their ranks, whose weights add up to enough.
struct Cut {
    // What is enough: 65536 times the share of all weights, or where this is 0, a number of ids.
    unsigned share;
    unsigned count;
    // Ranks are closenesses to the expected surprise rather than keys.
    bool typical;
    unsigned expected;
    float top;
};

// Ranks above `rank` stay. At it stay the lowest ids, as many as `missing` takes of the weight `there`.
struct Border {
    unsigned rank;
    u64 missing;
    u64 there;
};

// Keys above `key` stay, and the `take` lowest ids at it.
struct Beginning {
    unsigned key;
    unsigned take;
};

struct Sums {
    // Of the values of this lane and of those before it.
    u64 reached;
    // Of all lanes.
    u64 total;
};

__device__ Sums prefix_sums(unsigned lane, u64 value) {
    __shared__ u64 warps[WARPS];
    for (unsigned n = 1; n < 32; n *= 2) {
        const u64 before = __shfl_up_sync(0xffffffff, value, n);
        value += lane % 32 >= n ? before : 0;
    }
    // The sums of the last call have been read.
    __syncthreads();
    if (lane % 32 == 31) {
        warps[lane / 32] = value;
    }
    __syncthreads();
    u64 total = 0;
    for (unsigned warp = 0; warp < WARPS; warp++) {
        value += warp < lane / 32 ? warps[warp] : 0;
        total += warps[warp];
    }
    return {value, total};
}

// Calls `look` with each key that `before` keeps and how many ids with it: 1, but for the key at the border.
template <class Look> __device__ void each_key(unsigned lane, Fours fours, Beginning before, Look look) {
    for (unsigned i = lane; i < fours.n; i += LANES) {
        const uint4 four = fours.at[i];
        const unsigned keys[4] = {four.x, four.y, four.z, four.w};
        for (unsigned key : keys) {
            if (key > before.key) {
                look(key, 1u);
            }
        }
    }
    if (lane == 0 && before.take > 0) {
        look(before.key, before.take);
    }
}

// The likelihood of a key over that of the largest value, in units of 2^-26.
__device__ unsigned mass(unsigned key, float top) {
    return __float2uint_rz(exact_exp2(product(value_of(key) - top, LOG2E)) * ONE);
}

__device__ unsigned weight_of(const Cut& cut, unsigned key) {
    return cut.share > 0 ? mass(key, cut.top) : 1;
}

__device__ unsigned rank_of(const Cut& cut, unsigned key) {
    return cut.typical ? (0xffff - distance_of(key, cut.top, cut.expected)) << 16 : key;
}

// ceil(total * share / 65536)
__device__ u64 share_of(u64 total, unsigned share) {
    return (total * share + 0xffff) >> 16;
}

// The smallest number of ids of `each` that reach `wanted`, or one that is larger than any vocabulary; 0 for 0.
__device__ unsigned reach(u64 wanted, unsigned each) {
    unsigned fewer = 0;
    for (unsigned bit = 1u << MAX_ID_BITS; bit > 0; bit >>= 1) {
        fewer += (u64)(fewer + bit) * each < wanted ? bit : 0;
    }
    return wanted == 0 ? 0 : fewer + 1;
}

// What `cut` keeps of what `before` keeps; `digits` is how many upper bytes ranks have.
__device__ Border border_of(unsigned lane, const Cut& cut, Fours fours, Beginning before, unsigned digits) {
    // What each value of a byte weighs: low and high halves of the weights, added apart.
    __shared__ unsigned low[256];
    __shared__ unsigned high[256];
    // The bytes of the border found so far, what is still to be reached below them, and what ids with these bytes weigh.
    __shared__ Border found;

    if (lane == 0) {
        found = {0, cut.count, 0};
    }
    for (unsigned digit = 0; digit < digits; digit++) {
        const unsigned shift = 24 - 8 * digit;
        low[lane] = 0;
        high[lane] = 0;
        __syncthreads();
        const unsigned known = 0xffffff00u << shift;
        const unsigned prefix = found.rank;
        each_key(lane, fours, before, [&](unsigned key, unsigned times) {
            const unsigned rank = rank_of(cut, key);
            if (((rank ^ prefix) & known) != 0) {
                return;
            }
            const unsigned bin = rank >> shift & 0xff;
            const unsigned weight = weight_of(cut, key);
            atomicAdd(&low[bin], times * (weight & ((1u << HALF_BITS) - 1)));
            if (weight >> HALF_BITS > 0) {
                atomicAdd(&high[bin], times * (weight >> HALF_BITS));
            }
        });
        __syncthreads();
        // The largest byte with which the weight from above reaches what is missing; the lowest one where none does.
        const unsigned bin = 255 - lane;
        const u64 here = low[bin] + ((u64)high[bin] << HALF_BITS);
        const Sums sums = prefix_sums(lane, here);
        const u64 above = sums.reached - here;
        const u64 wanted = digit == 0 && cut.share > 0 ? share_of(sums.total, cut.share) : found.missing;
        __syncthreads();
        if (above < wanted && (bin == 0 || wanted <= sums.reached)) {
            found = {prefix | bin << shift, wanted - above, here};
        }
        __syncthreads();
    }
    const Border border = found;
    __syncthreads();
    return border;
}

// The ids of `cut`, which ranks by key, among those of `before`.
__device__ Beginning beginning_of(unsigned lane, const Cut& cut, Fours fours, Beginning before) {
    const Border border = border_of(lane, cut, fours, before, 4);
    if (border.rank == 0) {
        return {0, 0};
    }
    const unsigned each = weight_of(cut, border.rank);
    const unsigned take = reach(border.missing, each);
    // At the border of `before` are ids that it left out.
    if (border.rank == before.key || (u64)take * each < border.there) {
        return {border.rank, take};
    }
    return {border.rank - 1, 0};
}

// The keys above the border of `beginning`, at most POOL, in shared memory. Once a block.
__device__ Fours pool_of(unsigned lane, Fours fours, Beginning beginning) {
    __shared__ uint4 pool[POOL / 4];
    __shared__ unsigned pooled;

    for (unsigned i = lane; i < POOL / 4; i += LANES) {
        pool[i] = {0, 0, 0, 0};
    }
    if (lane == 0) {
        pooled = 0;
    }
    __syncthreads();
    unsigned* keys = &pool[0].x;
    each_key(lane, fours, {beginning.key, 0}, [&](unsigned key, unsigned) { keys[atomicAdd(&pooled, 1u)] = key; });
    __syncthreads();
    return {pool, POOL / 4};
}

// The mean surprise by mass, rounded down.
__device__ unsigned expected_surprise(unsigned lane, Fours fours, Beginning before, float top) {
    u64 total = 0;
    u64 weighted = 0;
    each_key(lane, fours, before, [&](unsigned key, unsigned times) {
        const u64 m = (u64)mass(key, top) * times;
        total += m;
        weighted += m * surprise(key, top);
    });
    total = prefix_sums(lane, total).total;
    weighted = prefix_sums(lane, weighted).total;
    unsigned quotient = 0;
    for (unsigned bit = 1u << (SURPRISE_BITS - 1); bit > 0; bit >>= 1) {
        quotient += weighted >= total * (quotient + bit) ? bit : 0;
    }
    return quotient;
}

// What an id adds to the ties at the border of `cut`: nothing where it is elsewhere.
__device__ unsigned tie(const Cut& cut, const Kept& kept, unsigned rank, unsigned key, unsigned id) {
    if (key == 0 || rank_of(cut, key) != rank || (cut.typical && !stays(kept, key, id))) {
        return 0;
    }
    return weight_of(cut, key);
}

// The id after the last with which the ties at `border` reach what is missing; any number where all of them stay. The lanes share the ids out in
// runs, so that the run with that id is found from sums.
__device__ unsigned end_of(unsigned lane, const Cut& cut, const Kept& kept, const Border& border, Fours all) {
    // The id after the last that stays at a border.
    __shared__ unsigned end;

    const bool some = border.missing != 0 && border.missing != border.there;
    const unsigned run = (all.n + LANES - 1) / LANES;
    const unsigned run_end = some ? min((lane + 1) * run, all.n) : 0;
    const unsigned* keys = &all.at[0].x;
    u64 own = 0;
    for (unsigned id = lane * run * 4; id < run_end * 4; id++) {
        own += tie(cut, kept, border.rank, keys[id], id);
    }
    if (lane == 0) {
        end = border.missing == border.there ? NO_LIMIT : 0;
    }
    const u64 reached = prefix_sums(lane, own).reached;
    u64 sum = reached - own;
    if (sum < border.missing && border.missing <= reached) {
        unsigned id = lane * run * 4;
        for (; id < run_end * 4 && sum < border.missing; id++) {
            sum += tie(cut, kept, border.rank, keys[id], id);
        }
        end = id;
    }
    __syncthreads();
    const unsigned found = end;
    __syncthreads();
    return found;
}

// all_rules: by slot
// keys [rows, ceil(n_vocab / 4)]: order keys, 0 for ids that cannot be drawn and past the end
// partials [rows, n_partials]: order key, token id
// borders: by row
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const Rules* __restrict__ all_rules,
    const uint4* __restrict__ keys,
    const uint2* __restrict__ partials,
    Kept* __restrict__ borders) {
    const unsigned lane = threadIdx.x;
    const unsigned row = blockIdx.y;
    if (row_done(batch, row) || (batch->rows[row].how & FILTERED) == 0) {
        return;
    }
    const Rules& rules = all_rules[row_slot(batch, row)];
    const unsigned n_fours = (params.n_vocab + 3) / 4;
    const Fours all = {keys + row * n_fours, n_fours};
    Fours fours = all;
    uint2 best = {0, 0};
    for (unsigned i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[row * params.n_partials + i]);
    }
    const unsigned top_key = best256(lane, best).x;
    const float top = value_of(top_key);
    Beginning beginning = {0, 0};
    const Cut by_count = {0, rules.top_k, false, 0, top};
    if (rules.top_k > 0) {
        beginning = beginning_of(lane, by_count, fours, beginning);
    }
    if (rules.top_k > 0 && rules.top_k <= POOL && (rules.top_p > 0 || rules.typical_p > 0)) {
        fours = pool_of(lane, fours, beginning);
    }
    if (rules.top_p > 0) {
        beginning = beginning_of(lane, {rules.top_p, 0, false, 0, top}, fours, beginning);
    }
    if (rules.min_p == 1 && top_key != 0) {
        const unsigned least = order_key(flush_small(top + rules.min_p_offset));
        if (least > beginning.key) {
            beginning = {least - 1, 0};
        }
    }
    Kept kept = {beginning.key, 0, top_key, 0, NO_LIMIT, 0};
    kept.end = end_of(lane, by_count, kept, {beginning.key, beginning.take, ~0ull}, all);
    if (rules.typical_p > 0) {
        kept.expected = expected_surprise(lane, fours, beginning, top);
        const Cut typical = {rules.typical_p, 0, true, kept.expected, top};
        const Border last = border_of(lane, typical, fours, beginning, 2);
        const unsigned distance_end = end_of(lane, typical, kept, last, all);
        kept.distance = 0xffff - (last.rank >> 16);
        kept.distance_end = distance_end;
    }
    if (lane == 0) {
        borders[row] = kept;
    }
}
