// Picks the experts of each row's largest logits, the lowest id first among equals; their weights are the softmax over the picked. A row a
// block. An expert's rank is how many go before it. Grid: [1, rows, 1].
#include "shared/exact.cuh"
#include "shared/order.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    // Experts, at most MAX_EXPERTS; those picked, at most LANES.
    unsigned n_experts;
    unsigned n_used;
};

constexpr unsigned LANES = 64;
constexpr unsigned MAX_EXPERTS = 512;
constexpr unsigned INFINITE = 0x7f800000;
// The key of a logit that is not finite, and the weights of its row.
constexpr unsigned NO_KEY = 0xffffffff;
constexpr unsigned NOT_FINITE = 0x7fc00000;

// logits [rows, n_experts]: bits
// out [rows, n_used]: id, bits of the weight
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const unsigned* __restrict__ logits, uint2* __restrict__ out) {
    __shared__ unsigned keys[MAX_EXPERTS];
    __shared__ unsigned picked[LANES];
    __shared__ float shares[LANES];
    __shared__ bool is_finite;

    const unsigned lane = threadIdx.x;
    const unsigned row = blockIdx.y;
    if (row_done(batch, row)) {
        return;
    }
    for (unsigned i = lane; i < params.n_experts; i += LANES) {
        const unsigned logit = logits[row * params.n_experts + i];
        keys[i] = (logit & 0x7fffffff) >= INFINITE ? NO_KEY : order_key(number_of(logit));
    }
    __syncthreads();

    for (unsigned i = lane; i < params.n_experts; i += LANES) {
        const unsigned key = keys[i];
        unsigned rank = 0;
        bool finite = true;
        for (unsigned j = 0; j < params.n_experts; j++) {
            const unsigned other = keys[j];
            rank += other > key || (other == key && j < i);
            finite = finite && other != NO_KEY;
        }
        rank = finite ? rank : i;
        if (rank < params.n_used) {
            picked[rank] = i;
        }
        if (i == 0) {
            is_finite = finite;
        }
    }
    __syncthreads();

    if (lane < params.n_used) {
        shares[lane] = exact_exp(value_of(keys[picked[lane]]) - value_of(keys[picked[0]]));
    }
    __syncthreads();

    if (lane < params.n_used) {
        float sum = 0.0f;
        for (unsigned p = 0; p < params.n_used; p++) {
            sum = sum + shares[p];
        }
        const float weight = flush_small(shares[lane] * exact_recip(sum));
        out[row * params.n_used + lane] = {picked[lane], is_finite ? __float_as_uint(weight) : NOT_FINITE};
    }
}
