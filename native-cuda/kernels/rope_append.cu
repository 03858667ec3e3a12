// Norms (where asked) and rotates one head of q or k, or takes one head of v. q goes back into qkv, scaled and rounded to 11 bits; k and
// v go to the cache. Grid: [n_heads + 2 n_kv_heads, rows, 1].
// Macros: KV_F16 or KV_Q8_0.
#include "shared/exact.cuh"
#include "shared/position.cuh"
#include "shared/tree256.cuh"

constexpr unsigned LANES = 256;
constexpr unsigned PAGE = 64;
constexpr unsigned MAX_HEAD_DIM = 256;

struct Params {
    unsigned zero;
    unsigned n_heads;
    unsigned n_kv_heads;
    unsigned head_dim;
    // Values from one query head to the next: head_dim, or twice that where each is followed by its gate.
    unsigned query_stride;
    // Rotated pairs a head.
    unsigned n_pairs;
    // 0: pairs 2i, 2i+1. 1: pairs i, i + n_pairs.
    unsigned neox;
    // 1 where q or k heads are normed.
    unsigned norm_q;
    unsigned norm_k;
    float eps;
    // 1 / head_dim, rounded.
    float inverse_dim;
    float q_scale;
    // Entries of a slot in the block table.
    unsigned pages_a_slot;
};

#include "shared/kv_store.cuh"

__device__ inline void rotate(const Params& params, float* head, float2 angle, unsigned pair) {
    const unsigned i = params.neox == 1 ? pair : 2 * pair;
    const unsigned j = params.neox == 1 ? pair + params.n_pairs : 2 * pair + 1;
    const float x0 = head[i], x1 = head[j];
    head[i] = product(x0, angle.x) - product(x1, angle.y);
    head[j] = product(x0, angle.y) + product(x1, angle.x);
}

// block_table: [slots, pages_a_slot], the physical page of each logical page. qkv: [rows, n_heads query_stride + 2 n_kv_heads head_dim].
// q_norm, k_norm: [head_dim] each. angles: [positions, n_pairs]: cos, sin. keys, values: see kv_store_*.cuh.
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const unsigned* __restrict__ block_table, float* __restrict__ qkv,
    const float* __restrict__ q_norm, const float* __restrict__ k_norm, const float2* __restrict__ angles, KeyWord* __restrict__ keys,
    ValueWord* __restrict__ values) {
    __shared__ float head[MAX_HEAD_DIM];
    const unsigned row = blockIdx.y, lane = threadIdx.x;
    if (row_done(batch, row)) {
        return;
    }
    const unsigned first_key = params.n_heads * params.query_stride;
    const unsigned width = first_key + 2 * params.n_kv_heads * params.head_dim;
    const unsigned position = row_position(batch, row);
    const bool is_query = blockIdx.x < params.n_heads;
    const bool is_value = blockIdx.x >= params.n_heads + params.n_kv_heads;
    const unsigned column = is_query ? blockIdx.x * params.query_stride : first_key + (blockIdx.x - params.n_heads) * params.head_dim;
    float* own = &qkv[row * width + column];
    const bool inside = lane < params.head_dim;
    const bool rotates = !is_value && lane < params.n_pairs;
    const bool normed = (is_query && params.norm_q == 1) || (!is_query && !is_value && params.norm_k == 1);

    float x = inside ? own[lane] : 0.0f;
    const float2 angle = rotates ? angles[position * params.n_pairs + lane] : make_float2(0.0f, 0.0f);
    if (normed) {
        const float weight = inside ? (is_query ? q_norm : k_norm)[lane] : 0.0f;
        const float total = tree256(lane, product(x, x));
        const float r = exact_rsqrt(product(total, params.inverse_dim) + params.eps);
        x = (x * r) * weight;
    }
    if (inside) {
        head[lane] = x;
    }
    __syncthreads();
    if (rotates) {
        rotate(params, head, angle, lane);
    }
    __syncthreads();

    if (is_query) {
        if (inside) {
            own[lane] = round_sig(head[lane] * params.q_scale, 11);
        }
        return;
    }
    const unsigned page = block_table[row_slot(batch, row) * params.pages_a_slot + position / PAGE];
    const unsigned region = page * params.n_kv_heads + (blockIdx.x - params.n_heads) % params.n_kv_heads;
    if (is_value) {
        store_value(params, head, values, region, position, lane);
    } else {
        store_key(params, head, keys, region, position, lane);
    }
}
