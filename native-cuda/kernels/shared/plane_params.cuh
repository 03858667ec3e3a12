// Where the planes of a part of a matrix lie: `params::Planes` of the root crate. Offsets and strides are words, quants_stride 16 bytes.
#pragma once

struct Planes {
    unsigned quants_stride;
    unsigned high_offset;
    unsigned high_stride;
    unsigned scales_offset;
    unsigned scales_stride;
    unsigned supers_offset;
    unsigned supers_stride;
};
