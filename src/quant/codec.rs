//! The table of block formats: sizes in the planes and the functions that move one block of 32 weights.

use super::{QuantType, float, k4_k5, k6, q4, q5, q8};

/// One block's room in the planes, for writing. Slices have the sizes the codec says.
pub(crate) struct BlockMut<'a> {
    pub(crate) quants: &'a mut [u8],
    pub(crate) high: &'a mut [u8],
    pub(crate) scales: &'a mut [u8],
}

/// One block as it lies in the planes, with the entry of `supers` it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct BlockRef<'a> {
    pub(crate) quants: &'a [u8],
    pub(crate) high: &'a [u8],
    pub(crate) scales: &'a [u8],
    pub(crate) supers: &'a [u8],
}

/// A quantised block, decoded: weight i is `dw * sub[i / 16] * q[i] (+ dm)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantBlock {
    /// Integers with the type's offset taken off.
    pub(crate) q: [i8; 32],
    /// Integer scales of the two halves; 1 but for Q6_K.
    pub(crate) sub: [i32; 2],
    /// Scale of the block.
    pub(crate) dw: f32,
    /// Offset of every weight, in types that have one.
    pub(crate) dm: Option<f32>,
}

impl QuantBlock {
    /// A block with one scale.
    pub(crate) fn new(q: [i8; 32], dw: f32, dm: Option<f32>) -> Self {
        Self { q, sub: [1, 1], dw, dm }
    }

    /// The 32 weights.
    pub(crate) fn dequantise(&self, out: &mut [f32]) {
        for (i, (out, &q)) in out.iter_mut().zip(&self.q).enumerate() {
            let value = self.dw * self.sub[i / 16] as f32 * f32::from(q);
            *out = self.dm.map_or(value, |dm| value + dm);
        }
    }
}

/// How a block in planes becomes numbers.
pub(crate) enum Decode {
    /// The block's bytes to 32 values.
    Floats(fn(&[u8], &mut [f32])),
    /// The block to integers and scales.
    Integers(fn(BlockRef<'_>) -> QuantBlock),
}

/// A block format.
pub(crate) struct Codec {
    /// Bytes a block of 32 in each plane.
    pub(crate) quants: usize,
    pub(crate) high: usize,
    pub(crate) scales: usize,
    /// Bytes a file block of 256 in `supers`.
    pub(crate) supers: usize,
    /// Writes block `sub` of the file bytes of one file block (of 32 values for float types).
    pub(crate) unpack: fn(&[u8], usize, BlockMut<'_>),
    /// Writes the entry of `supers`; does nothing for types without.
    pub(crate) unpack_super: fn(&[u8], &mut [u8]),
    /// Reads a block back.
    pub(crate) decode: Decode,
}

const fn simple(
    quants: usize,
    high: usize,
    scales: usize,
    unpack: fn(&[u8], usize, BlockMut<'_>),
    decode: Decode,
) -> Codec {
    Codec { quants, high, scales, supers: 0, unpack, unpack_super: |_, _| {}, decode }
}

static F32: Codec = simple(128, 0, 0, float::unpack, Decode::Floats(float::f32_values));
static F16: Codec = simple(64, 0, 0, float::unpack, Decode::Floats(float::f16_values));
static BF16: Codec = simple(64, 0, 0, float::unpack, Decode::Floats(float::bf16_values));
static Q4_0: Codec = simple(16, 0, 2, q4::unpack_0, Decode::Integers(q4::decode_0));
static Q4_1: Codec = simple(16, 0, 4, q4::unpack_1, Decode::Integers(q4::decode_1));
static Q5_0: Codec = simple(16, 4, 2, q5::unpack_0, Decode::Integers(q5::decode_0));
static Q5_1: Codec = simple(16, 4, 4, q5::unpack_1, Decode::Integers(q5::decode_1));
static Q8_0: Codec = simple(32, 0, 2, q8::unpack, Decode::Integers(q8::decode));
static Q4_K: Codec = Codec {
    supers: 4,
    unpack_super: k4_k5::unpack_super,
    ..simple(16, 0, 2, k4_k5::unpack_4, Decode::Integers(k4_k5::decode_4))
};
static Q5_K: Codec = Codec {
    supers: 4,
    unpack_super: k4_k5::unpack_super,
    ..simple(16, 4, 2, k4_k5::unpack_5, Decode::Integers(k4_k5::decode_5))
};
static Q6_K: Codec =
    Codec { supers: 2, unpack_super: k6::unpack_super, ..simple(16, 8, 2, k6::unpack, Decode::Integers(k6::decode)) };

/// The format of a type.
pub(crate) fn codec(kind: QuantType) -> &'static Codec {
    match kind {
        QuantType::F32 => &F32,
        QuantType::F16 => &F16,
        QuantType::BF16 => &BF16,
        QuantType::Q4_0 => &Q4_0,
        QuantType::Q4_1 => &Q4_1,
        QuantType::Q5_0 => &Q5_0,
        QuantType::Q5_1 => &Q5_1,
        QuantType::Q8_0 => &Q8_0,
        QuantType::Q4_K => &Q4_K,
        QuantType::Q5_K => &Q5_K,
        QuantType::Q6_K => &Q6_K,
    }
}
