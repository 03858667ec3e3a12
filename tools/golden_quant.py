#!/usr/bin/env python3
"""Writes tests/data/quant/<TYPE>.bin: file blocks and what the `gguf` package dequantises them to.

Layout, little endian: u32 bytes of blocks, u32 values, the blocks, the values as f32.
Usage: golden_quant.py [OUT_DIR]
"""

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Byte offsets of the f16 scales in a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
# Subnormals, zeros, the largest values, both signs, ordinary sizes.
HALVES = np.array(
    [0x0001, 0x8001, 0x03FF, 0x0000, 0x8000, 0x7BFF, 0xFBFF, 0x0400, 0x2E66, 0xAE66, 0x1C9A, 0x3C00, 0xBC00],
    dtype=np.uint16,
)


def blocks_of(name, rng):
    block_len, block_bytes = GGML_QUANT_SIZES[T[name]]
    if block_len == 1:
        bits = rng.integers(0, 256, (1, 32 * 8 * block_bytes), dtype=np.uint8)
        view = bits.view(np.uint32 if block_bytes == 4 else np.uint16)
        exponent = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80}[name]
        view[(view & exponent) == exponent] = 1  # finite values only; 1 is the smallest subnormal
        return bits
    n = 8 if block_len == 256 else 16
    blocks = rng.integers(0, 256, (n, block_bytes), dtype=np.uint8)
    for k, at in enumerate(SCALES[name]):
        for i in range(n):
            blocks[i, at : at + 2] = HALVES[(i * (k + 1) + 5 * k) % len(HALVES) :][:1].view(np.uint8)
    return blocks.reshape(1, -1)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "tests/data/quant"
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    for name in ["F32", "F16", "BF16", *SCALES]:
        blocks = blocks_of(name, rng)
        values = dequantize(blocks, T[name]).astype("<f4")
        head = np.array([blocks.size, values.size], dtype="<u4").tobytes()
        (out / f"{name}.bin").write_bytes(head + blocks.tobytes() + values.tobytes())


main()
