// The planes of a part of a matrix (docs/numerics.md, "Planes"). Needs Params with a member `Planes planes`.
#pragma once

#include "shared/intrinsics.cuh"

struct Matrix {
    const Params& params;
    // [rows, quants_stride]
    const uint4* quants;
    // high [rows, high_stride], scales [rows, scales_stride], supers [rows, supers_stride], one after another
    const unsigned* planes;
};

__device__ inline uint4 quants_of(const Matrix& m, unsigned row, unsigned i) {
    return __ldg(&m.quants[row * m.params.planes.quants_stride + i]);
}

__device__ inline unsigned high_of(const Matrix& m, unsigned row, unsigned i) {
    return __ldg(&m.planes[m.params.planes.high_offset + row * m.params.planes.high_stride + i]);
}

__device__ inline const unsigned* scales_of(const Matrix& m, unsigned row) {
    return &m.planes[m.params.planes.scales_offset + row * m.params.planes.scales_stride];
}

__device__ inline const unsigned* supers_of(const Matrix& m, unsigned row) {
    return &m.planes[m.params.planes.supers_offset + row * m.params.planes.supers_stride];
}

// The `i`th 16 bits of a row of a plane.
__device__ inline unsigned load16(const unsigned* row, unsigned i) {
    return __ldg(&reinterpret_cast<const unsigned short*>(row)[i]);
}
