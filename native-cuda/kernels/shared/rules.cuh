// What a sequence does to its logits; written where it changes.
#pragma once

struct Rules {
    unsigned n_biases;
    // Tokens before the drawn one that penalties look at.
    unsigned window;
    float repeat;
    float inverse_repeat;
    float frequency;
    float presence;
    // 1: the best candidates are those of the draw, noise included; 0: of the values.
    unsigned noise;
    // Most ids kept, 0 without a limit.
    unsigned top_k;
    // 65536 times the mass kept, 0 for all.
    unsigned top_p;
    // 1: values below the largest plus `min_p_offset` go.
    unsigned min_p;
    float min_p_offset;
    // 65536 times the mass kept by typical-p, 0 for all.
    unsigned typical_p;
    // Token id (each once) and the bits of its bias; those of -infinity ban it.
    uint2 biases[1024];
};
