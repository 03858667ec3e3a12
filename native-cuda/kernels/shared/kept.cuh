// Which ids stay in the draw.
#pragma once

#include "shared/order.cuh"

struct Kept {
    // Keys above this one stay, and at it the ids below `end`.
    unsigned key;
    unsigned end;
    // The largest key.
    unsigned top;
    // Of these stay the ids whose surprise is less than `distance` from the expected one, and at this distance those below `distance_end`.
    unsigned expected;
    unsigned distance;
    unsigned distance_end;
};

// Steps of a nat.
constexpr float STEPS = 2048.0f;
// All keys further below the largest, in nats, count as equally surprising; none of them has a mass.
constexpr float FURTHEST = 31.0f;

// How far a key lies below the largest value, in steps: below 2^16.
__device__ inline unsigned surprise(unsigned key, float top) {
    return __float2uint_rz(fminf(top - value_of(key), FURTHEST) * STEPS);
}

__device__ inline unsigned distance_of(unsigned key, float top, unsigned expected) {
    const unsigned here = surprise(key, top);
    return max(here, expected) - min(here, expected);
}

// Whether an id whose key is not 0 stays.
__device__ inline bool stays(const Kept& kept, unsigned key, unsigned id) {
    const unsigned distance = distance_of(key, value_of(kept.top), kept.expected);
    const bool typical = distance < kept.distance || (distance == kept.distance && id < kept.distance_end);
    return typical && (key > kept.key || (key == kept.key && id < kept.end));
}
