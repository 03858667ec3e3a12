// Four values of a row at a time; rows whose width is a multiple of four begin at multiples of 16 bytes.
#pragma once

// Columns first..first+4, 0 from the width on; `first` is a multiple of 4.
__device__ inline float4 load4(const float* row, unsigned first, unsigned width) {
    if (width % 4 == 0) {
        return first < width ? *reinterpret_cast<const float4*>(&row[first]) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float values[4];
    for (unsigned j = 0; j < 4; j++) {
        values[j] = first + j < width ? row[first + j] : 0.0f;
    }
    return make_float4(values[0], values[1], values[2], values[3]);
}

// The other way; columns from the width on are left out.
__device__ inline void store4(float* row, unsigned first, unsigned width, float4 values) {
    if (width % 4 == 0) {
        if (first < width) {
            *reinterpret_cast<float4*>(&row[first]) = values;
        }
        return;
    }
    const float each[4] = {values.x, values.y, values.z, values.w};
    for (unsigned j = 0; j < 4; j++) {
        if (first + j < width) {
            row[first + j] = each[j];
        }
    }
}
