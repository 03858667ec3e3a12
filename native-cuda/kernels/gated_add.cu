// out[r] += sigmoid(gate[r]) * y[r]; products below 2^-100 are zero. Grid: [ceil(width / LANES), rows, 1].
#include "shared/exact.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned width;
};

constexpr unsigned LANES = 64;

// y [rows, width]
// gate [rows]
// out [rows, width]
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const float* __restrict__ y,
    const float* __restrict__ gate,
    float* __restrict__ out) {
    const unsigned row = blockIdx.y;
    const unsigned c = blockIdx.x * LANES + threadIdx.x;
    if (row_done(batch, row) || c >= params.width) {
        return;
    }
    const unsigned at = row * params.width + c;
    out[at] = out[at] + flush_small(product(exact_sigmoid(gate[row]), y[at]));
}
