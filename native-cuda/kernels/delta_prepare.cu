// What the gated delta rule reads: a block makes one head of queries, keys or values of a row (convolution, SiLU, unit length of queries and
// keys), the last one the row's betas and decays. Grid: [2 n_key_heads + n_value_heads + 1, rows, 1].
#include "shared/exact.cuh"
#include "shared/position.cuh"
#include "shared/running.cuh"
#include "shared/tree256.cuh"

struct Params {
    unsigned zero;
    unsigned n_key_heads;
    unsigned n_value_heads;
    unsigned size;
    unsigned kernel;
    // 0: all betas, then all alphas. 1: each key head's betas, then its alphas.
    unsigned grouped;
    float eps;
    // 1 / the root of size.
    float query_scale;
};

constexpr unsigned LANES = 256;
// 2^-24
constexpr unsigned SMALLEST = 0x33800000;

__device__ float flush(float x) {
    return (__float_as_uint(x) & 0x7fffffff) < SMALLEST ? 0.0f : x;
}

__device__ unsigned n_channels(const Params& params) {
    return (2 * params.n_key_heads + params.n_value_heads) * params.size;
}

__device__ unsigned mixed_width(const Params& params) {
    return n_channels(params) + params.n_value_heads * (params.size + 2);
}

// What rows and their inputs before the batch are.
struct Inputs {
    const Batch* batch;
    const float* mixed;
    const float* ring;
};

// A channel's input `back` positions before that of `row`; there are none before position 0.
__device__ float input(const Params& params, const Inputs& from, unsigned row, unsigned channel, unsigned back) {
    const unsigned position = row_position(from.batch, row);
    if (back <= (from.batch->chunk == 1 ? row : 0)) {
        return from.mixed[(row - back) * mixed_width(params) + channel];
    }
    if (back <= position) {
        const unsigned kept = params.kernel - 1;
        return from.ring[(row_slot(from.batch, row) * kept + (position - back) % kept) * n_channels(params) + channel];
    }
    return 0.0f;
}

__device__ float convolve(const Params& params, const Inputs& from, const float* conv, unsigned row, unsigned channel) {
    float sum = 0.0f;
    for (unsigned i = 0; i < params.kernel; i++) {
        sum = sum + product(conv[channel * params.kernel + i], input(params, from, row, channel, params.kernel - 1 - i));
    }
    return sum;
}

// Writes beta and decay of a value head, n_value_heads apart.
__device__ void prepare_gate(
    const Params& params, const float* mixed_row, unsigned head, const float* dt_bias, const float* rate, float* gates) {
    const unsigned a_key = params.n_value_heads / params.n_key_heads;
    const float* raw = mixed_row + n_channels(params) + params.n_value_heads * params.size;
    const unsigned beta_at = params.grouped == 1 ? head + head / a_key * a_key : head;
    const unsigned alpha_at = beta_at + (params.grouped == 1 ? a_key : params.n_value_heads);
    gates[head] = exact_sigmoid(raw[beta_at]);
    const float time_step = exact_softplus(raw[alpha_at] + dt_bias[head]);
    gates[params.n_value_heads + head] = flush(exact_exp(product(rate[head], time_step)));
}

// mixed [rows, n_channels + n_value_heads size + 2 n_value_heads]
// conv [n_channels, kernel]
// dt_bias, rate [n_value_heads]
// ring [slots, kernel - 1, n_channels]: position p is row p mod (kernel - 1)
// prepared [rows, n_channels + 2 n_value_heads]
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const float* __restrict__ mixed,
    const float* __restrict__ conv,
    const float* __restrict__ dt_bias,
    const float* __restrict__ rate,
    const float* __restrict__ ring,
    float* __restrict__ prepared) {
    const unsigned lane = threadIdx.x;
    const unsigned head = blockIdx.x;
    const unsigned row = blockIdx.y;
    if (row_done(batch, row)) {
        return;
    }
    float* out = prepared + row * (n_channels(params) + 2 * params.n_value_heads);
    if (head == 2 * params.n_key_heads + params.n_value_heads) {
        for (unsigned i = lane; i < params.n_value_heads; i += LANES) {
            prepare_gate(params, mixed + row * mixed_width(params), i, dt_bias, rate, out + n_channels(params));
        }
        return;
    }
    const bool inside = lane < params.size;
    const unsigned channel = head * params.size + lane;
    float x = inside ? exact_silu(convolve(params, {batch, mixed, ring}, conv, row, channel)) : 0.0f;
    if (head < 2 * params.n_key_heads) {
        const float r = exact_rsqrt(tree256(lane, product(x, x)) + params.eps);
        x = flush(product(x, r) * (head < params.n_key_heads ? params.query_scale : 1.0f));
    }
    if (inside) {
        out[channel] = x;
    }
}
