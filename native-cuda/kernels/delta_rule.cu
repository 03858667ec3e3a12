// The gated delta rule, row after row: M = g M, delta = beta (v - M k), M = M + delta k, out = M q. A block has COLUMNS columns of one value
// head's state; eight lanes share a column, lane j of them its values i = j mod 8. All blocks together keep the rows' inputs in the ring.
// Grid: [n_value_heads SIZE / COLUMNS, 1, sequences].
// Macros: SIZE, the values of a head.
#include "shared/exact.cuh"
#include "shared/position.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned n_key_heads;
    unsigned n_value_heads;
    unsigned kernel;
    // 0: value head j reads key head j mod n_key_heads. 1: j / (n_value_heads / n_key_heads).
    unsigned grouped;
};

constexpr unsigned LANES = 256;
constexpr unsigned PARTS = 8;
constexpr unsigned COLUMNS = LANES / PARTS;
constexpr unsigned VALUES = SIZE / PARTS;

__device__ unsigned n_channels(const Params& params) {
    return (2 * params.n_key_heads + params.n_value_heads) * SIZE;
}

__device__ unsigned key_head(const Params& params, unsigned head) {
    return params.grouped == 1 ? head / (params.n_value_heads / params.n_key_heads) : head % params.n_key_heads;
}

// Keeps the inputs of the last rows.
__device__ void fill_ring(const Params& params, const Batch* batch, const float* mixed, float* ring, unsigned first_row, unsigned n_rows) {
    const unsigned kept = params.kernel - 1;
    const unsigned mixed_width = n_channels(params) + params.n_value_heads * (SIZE + 2);
    for (unsigned channel = blockIdx.x * LANES + threadIdx.x; channel < n_channels(params); channel += gridDim.x * LANES) {
        for (unsigned r = n_rows - min(n_rows, kept); r < n_rows; r++) {
            const unsigned row = first_row + r;
            const unsigned at = (row_slot(batch, row) * kept + row_position(batch, row) % kept) * n_channels(params) + channel;
            ring[at] = mixed[row * mixed_width + channel];
        }
    }
}

// The sum of the eight lanes of a column by adjacent pairs.
__device__ float sum_parts(float sum) {
    for (unsigned step = 1; step < PARTS; step *= 2) {
        sum = sum + __shfl_xor_sync(0xffffffff, sum, step);
    }
    return sum;
}

// mixed [rows, n_channels + n_value_heads SIZE + 2 n_value_heads]
// prepared [rows, n_channels + 2 n_value_heads]
// states [slots, n_value_heads, SIZE, SIZE], a column contiguous
// ring [slots, kernel - 1, n_channels]: position p is row p mod (kernel - 1)
// out [rows, n_value_heads SIZE]
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const float* __restrict__ mixed,
    const float* __restrict__ prepared,
    float* __restrict__ states,
    float* __restrict__ ring,
    float* __restrict__ out) {
    // By turns: a row's are written while other lanes may still read those of the row before.
    __shared__ float queries[2][SIZE];
    __shared__ float keys[2][SIZE];

    // A sequence has one row, or all of them.
    const unsigned lane = threadIdx.x;
    const unsigned first_row = blockIdx.z;
    const unsigned n_rows = batch->chunk == 1 ? batch->n_rows : 1;
    if (row_done(batch, first_row)) {
        return;
    }
    fill_ring(params, batch, mixed, ring, first_row, n_rows);

    const unsigned head = blockIdx.x / (SIZE / COLUMNS);
    const unsigned column = blockIdx.x % (SIZE / COLUMNS) * COLUMNS + lane / PARTS;
    const unsigned part = lane % PARTS;
    float* state = states + ((row_slot(batch, first_row) * params.n_value_heads + head) * SIZE + column) * SIZE + part;
    const bool is_first = row_position(batch, first_row) == 0;
    float values[VALUES];
#pragma unroll
    for (unsigned i = 0; i < VALUES; i++) {
        values[i] = is_first ? 0.0f : state[PARTS * i];
    }
    const unsigned query_at = key_head(params, head) * SIZE;
    const unsigned key_at = (params.n_key_heads + key_head(params, head)) * SIZE;
    const unsigned value_at = (2 * params.n_key_heads + head) * SIZE + column;
    for (unsigned r = 0; r < n_rows; r++) {
        const unsigned row = first_row + r;
        const float* inputs = prepared + row * (n_channels(params) + 2 * params.n_value_heads);
        float* query = queries[r % 2];
        float* key = keys[r % 2];
        if (lane < SIZE) {
            query[lane] = inputs[query_at + lane];
            key[lane] = inputs[key_at + lane];
        }
        const float value = inputs[value_at];
        const float beta = inputs[n_channels(params) + head];
        const float decay = inputs[n_channels(params) + params.n_value_heads + head];
        __syncthreads();

        float sum = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < VALUES; i++) {
            values[i] = product(values[i], decay);
            sum = sum + product(values[i], key[PARTS * i + part]);
        }
        const float delta = flush_small(product(value - sum_parts(sum), beta));
        sum = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < VALUES; i++) {
            values[i] = flush_small(values[i] + product(key[PARTS * i + part], delta));
            sum = sum + product(values[i], query[PARTS * i + part]);
        }
        sum = sum_parts(sum);
        if (part == 0) {
            out[(row * params.n_value_heads + head) * SIZE + column] = sum;
        }
    }
#pragma unroll
    for (unsigned i = 0; i < VALUES; i++) {
        state[PARTS * i] = values[i];
    }
}
