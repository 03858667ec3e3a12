// out[r] += the sum of weight[r, p] * y[r, p] in the order of p. Grid: [ceil(width / LANES), rows, 1].
#include "shared/exact.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned width;
    // Experts picked a row.
    unsigned n_used;
};

constexpr unsigned LANES = 64;

// y [rows, n_used, width]
// route [rows, n_used]: id, bits of the weight
// out [rows, width]
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const float* __restrict__ y,
    const uint2* __restrict__ route,
    float* __restrict__ out) {
    const unsigned row = blockIdx.y;
    const unsigned c = blockIdx.x * LANES + threadIdx.x;
    if (row_done(batch, row) || c >= params.width) {
        return;
    }
    float sum = 0.0f;
    for (unsigned p = 0; p < params.n_used; p++) {
        const unsigned pick = row * params.n_used + p;
        sum = sum + flush_small(product(__uint_as_float(route[pick].y), y[pick * params.width + c]));
    }
    const unsigned at = row * params.width + c;
    out[at] = out[at] + sum;
}
