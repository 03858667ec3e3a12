// Softmax of a few query heads over one unit of chunks, as partial results (maximum, sum, weighted values).
// Grid: [units, n_kv_heads * head_groups, rows]; a block has up to HEADS query heads of one key/value head.
// Macros: KV_F16 or KV_Q8_0.
#include "shared/exact.cuh"
#include "shared/position.cuh"

constexpr unsigned LANES = 256;
constexpr unsigned HEADS = 4;
constexpr unsigned MAX_HEAD_DIM = 256;
// Pairs of dimensions a lane has at most.
constexpr unsigned MAX_PAIRS = HEADS * MAX_HEAD_DIM / 2 / LANES;
// Below any score.
constexpr float LOWEST = -3.0e38f;

struct Params {
    unsigned zero;
    unsigned n_heads;
    unsigned n_kv_heads;
    unsigned head_dim;
    // Values from one query head to the next.
    unsigned query_stride;
    // Groups of query heads a key/value head.
    unsigned head_groups;
    // Keys seen backwards, 0 for all.
    unsigned window;
    unsigned chunks_per_unit;
    // Room for units a row in `partials`.
    unsigned max_units;
    // Entries of a slot in the block table.
    unsigned pages_a_slot;
};

#include "shared/chunks.cuh"
#include "shared/kv_load.cuh"

// [HEADS, head_dim]
__shared__ float4 query[HEADS * MAX_HEAD_DIM / 4];
__shared__ float weights[HEADS * PAGE];
// The largest score of each warp; a head has two.
__shared__ float maxima[LANES / 32];

__device__ inline void add_products(float4& sums, float4 q, float4 k) {
    // exact: 11 + 11 significant bits
    sums.x = sums.x + q.x * k.x;
    sums.y = sums.y + q.y * k.y;
    sums.z = sums.z + q.z * k.z;
    sums.w = sums.w + q.w * k.w;
}

// Dot product of a query with the key of a slot. Four loads are on their way at once; a scale is that of all four.
__device__ inline float score(const Params& params, const Eight* keys, unsigned head, unsigned region, unsigned slot) {
    const Eight* key = &keys[key_at(params, region, slot)];
    const unsigned n = params.head_dim / 8;
    float4 low = make_float4(0.0f, 0.0f, 0.0f, 0.0f), high = low;
    for (unsigned first = 0; first < n; first += 4) {
        const float scale = key_scale(params, keys, region, slot, first);
        Eight eights[4];
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            eights[j] = __ldg(&key[min(first + j, n - 1) * PAGE]);
        }
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            if (first + j < n) {
                const float4* q = &query[(head * n + first + j) * 2];
                add_products(low, q[0], low_half(eights[j], scale));
                add_products(high, q[1], high_half(eights[j], scale));
            }
        }
    }
    return ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
}

// Softmax over some keys, of which a lane has a pair of dimensions.
struct Partial {
    float maximum, sum;
    float2 values;
};

// `a` is the earlier one.
__device__ inline Partial merge(const Partial& a, const Partial& b) {
    const float maximum = max(a.maximum, b.maximum);
    const float fa = exact_exp2(a.maximum - maximum), fb = exact_exp2(b.maximum - maximum);
    const float x = product(a.values.x, fa) + product(b.values.x, fb);
    const float y = product(a.values.y, fa) + product(b.values.y, fb);
    return {maximum, product(a.sum, fa) + product(b.sum, fb), make_float2(x, y)};
}

// A pair's values in the slots from `first` to `end`, ascending, with the weights of `head`. Sixteen loads are on their way at once; slots
// that are not visible have the weight 0 and may hold anything.
__device__ inline Partial weigh(
    const Params& params, const ValueWord* values, unsigned region, unsigned head, unsigned pair, unsigned first, unsigned end) {
    Partial found = {max(maxima[2 * head], maxima[2 * head + 1]), 0.0f, make_float2(0.0f, 0.0f)};
    for (unsigned t = first / 16 * 16; t < end; t += 16) {
        unsigned words[16];
#pragma unroll
        for (unsigned j = 0; j < 16; j++) {
            words[j] = load_pair(params, values, region, t + j, pair);
        }
#pragma unroll
        for (unsigned j = 0; j < 16; j++) {
            const float weight = weights[head * PAGE + t + j];
            const float2 value = pair_of(words[j], t + j, pair, weight > 0.0f);
            found.sum = found.sum + weight;
            // exact: 12 + 11 significant bits
            found.values.x = found.values.x + weight * value.x;
            found.values.y = found.values.y + weight * value.y;
        }
    }
    return found;
}

// block_table: [slots, pages_a_slot], the physical page of each logical page. qkv: [rows, n_heads query_stride + 2 n_kv_heads head_dim], the query
// part scaled and rounded to 11 bits. keys, values: see kv_load_*.cuh. partials: [rows, max_units, n_heads, 2 + head_dim].
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const unsigned* __restrict__ block_table, const float* __restrict__ qkv,
    const Eight* __restrict__ keys, const ValueWord* __restrict__ values, float* __restrict__ partials) {
    const unsigned row = blockIdx.z, lane = threadIdx.x;
    if (row_done(batch, row)) {
        return;
    }
    const unsigned position = row_position(batch, row);
    const unsigned unit = first_unit(params, position) + blockIdx.x;
    // Rows that see fewer units than the grid has leave here.
    if (unit >= end_unit(params, position)) {
        return;
    }
    const unsigned* pages = &block_table[row_slot(batch, row) * params.pages_a_slot];
    const unsigned kv_head = blockIdx.y / params.head_groups;
    const unsigned heads_a_kv = params.n_heads / params.n_kv_heads;
    const unsigned first_of_group = blockIdx.y % params.head_groups * HEADS;
    const unsigned n_heads_here = min(HEADS, heads_a_kv - first_of_group);
    const unsigned first_head = kv_head * heads_a_kv + first_of_group;
    const float* row_values = &qkv[row * (params.n_heads * params.query_stride + 2 * params.n_kv_heads * params.head_dim)];
    for (unsigned i = lane; i < n_heads_here * params.head_dim / 4; i += LANES) {
        const unsigned h = first_head + 4 * i / params.head_dim;
        query[i] = *reinterpret_cast<const float4*>(&row_values[h * params.query_stride + 4 * i % params.head_dim]);
    }
    __syncthreads();

    const unsigned first_key = first_visible(params, position);
    const unsigned first_chunk = max(first_key / PAGE, unit * params.chunks_per_unit);
    const unsigned end_chunk = min(position / PAGE, unit * params.chunks_per_unit + params.chunks_per_unit - 1) + 1;
    const unsigned head = lane / PAGE, slot = lane % PAGE;
    const unsigned pairs_a_head = params.head_dim / 2;
    Partial totals[MAX_PAIRS];
    for (unsigned chunk = first_chunk; chunk < end_chunk; chunk++) {
        const unsigned region = pages[chunk] * params.n_kv_heads + kv_head;
        const unsigned key = chunk * PAGE + slot;
        const bool visible = key >= first_key && key <= position && head < n_heads_here;
        const float s = visible ? score(params, keys, head, region, slot) : LOWEST;
        float largest = s;
        for (unsigned step = 1; step < 32; step *= 2) {
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        }
        if (lane % 32 == 0) {
            maxima[lane / 32] = largest;
        }
        prepare_values(params, values, region, lane);
        __syncthreads();
        const float chunk_max = max(maxima[2 * head], maxima[2 * head + 1]);
        weights[lane] = visible ? round_sig(exact_exp2(s - chunk_max), 12) : 0.0f;
        __syncthreads();

        const unsigned first_slot = max(first_key, chunk * PAGE) - chunk * PAGE;
        const unsigned end_slot = min(position - chunk * PAGE, PAGE - 1) + 1;
#pragma unroll
        for (unsigned k = 0; k < MAX_PAIRS; k++) {
            const unsigned i = lane + k * LANES;
            if (i < n_heads_here * pairs_a_head) {
                const unsigned h = i / pairs_a_head, pair = i % pairs_a_head;
                const Partial found = weigh(params, values, region, h, pair, first_slot, end_slot);
                totals[k] = chunk == first_chunk ? found : merge(totals[k], found);
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (unsigned k = 0; k < MAX_PAIRS; k++) {
        const unsigned i = lane + k * LANES;
        if (i < n_heads_here * pairs_a_head) {
            const unsigned h = i / pairs_a_head, pair = i % pairs_a_head;
            // Two values at an even offset.
            float2* to = reinterpret_cast<float2*>(&partials[partial_at(params, row, blockIdx.x, first_head + h)]);
            to[1 + pair] = totals[k].values;
            if (pair == 0) {
                to[0] = make_float2(totals[k].maximum, totals[k].sum);
            }
        }
    }
}
