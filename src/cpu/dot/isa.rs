//! The operations a kernel is written in.

/// Sixteen words of ones, then of zeros.
static KEEP: [u32; 32] = {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 16 {
        words[i] = u32::MAX;
        i += 1;
    }
    words
};

/// An instruction set. `W` blocks make a group: `F` holds W f32 and `I` W i32, or 4·W bytes. Seen as bytes an `I` has one
/// 16-byte lane for each of `W / 4` blocks.
///
/// # Safety
/// All methods need a processor that has the instruction set, and pointers to as many readable bytes as their text says.
/// They are inlined into a caller that enables its features.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Isa: Copy {
    /// Integers and bytes.
    type I: Copy;
    /// Floats.
    type F: Copy;
    /// Blocks a group.
    const W: usize;
    /// What `dot_signed` adds to every weight.
    const SIGNED_BIAS: i32;

    unsafe fn zero() -> Self::I;
    /// `W` u32 or the 16 bytes of `W / 4` blocks.
    unsafe fn load(from: *const u8) -> Self::I;
    /// `W` u16, widened.
    unsafe fn load_u16(from: *const u8) -> Self::I;
    /// The first and the second 16 bytes of `W / 4` blocks of 32 bytes.
    unsafe fn load_halves(from: *const u8) -> (Self::I, Self::I);
    /// In all of lane i the u32 numbered `STRIDE * i + OFFSET`; reads `W / 4 * STRIDE` of them.
    unsafe fn spread<const STRIDE: usize, const OFFSET: usize>(from: *const u8) -> Self::I;
    /// `W` u32 at byte offsets `offsets[0..W]` from `base`.
    unsafe fn gather(base: *const u8, offsets: *const u32) -> Self::I;

    /// The low four bits of each byte.
    unsafe fn low_nibbles(v: Self::I) -> Self::I;
    /// The high four bits of each byte.
    unsafe fn high_nibbles(v: Self::I) -> Self::I;
    /// In u32 j of each lane: `v >> (BASE + STEP * j)`, the low `STEP` bits of each byte, moved up by 4. `BASE + 3 STEP`
    /// is below 8; `STEP` is 1 or 2.
    unsafe fn high_bits<const STEP: u32, const BASE: u32>(v: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;

    /// Adds products of bytes, `w` in 0..=63 and `x` in -127..=127, to the i32 of the same lane.
    unsafe fn dot_unsigned(acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// Adds products of signed bytes `w + SIGNED_BIAS` and `x` to the i32 of the same lane.
    unsafe fn dot_signed(acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// The sum of each lane's four i32, in the order of blocks (lanes of `v[0]` first).
    unsafe fn block_sums(v: [Self::I; 4]) -> Self::I;

    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn add(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn mul(a: Self::I, b: Self::I) -> Self::I;
    /// Bytes 0 and 1 of each i32, sign-extended.
    unsafe fn i8_pair(v: Self::I) -> (Self::I, Self::I);
    /// Bytes 0 and 1 of each u32, as floats.
    unsafe fn u8_pair(v: Self::I) -> (Self::F, Self::F);
    unsafe fn to_f32(v: Self::I) -> Self::F;
    /// The finite f16 in the low half of each u32.
    unsafe fn low_f16(v: Self::I) -> Self::F;
    /// The finite f16 in the high half of each u32.
    unsafe fn high_f16(v: Self::I) -> Self::F;

    unsafe fn zero_f32() -> Self::F;
    unsafe fn load_f32(from: *const f32) -> Self::F;
    unsafe fn store_f32(to: *mut f32, v: Self::F);
    /// The first `count` (1 to W) lanes, and +0 in the others.
    #[inline(always)]
    unsafe fn keep(v: Self::F, count: usize) -> Self::F {
        // SAFETY: 16 words from any start up to 16 lie in the table.
        unsafe { Self::and_f32(v, Self::load(KEEP.as_ptr().add(16 - count).cast())) }
    }
    /// The bits of both.
    unsafe fn and_f32(a: Self::F, b: Self::I) -> Self::F;
    unsafe fn add_f32(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub_f32(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul_f32(a: Self::F, b: Self::F) -> Self::F;
    /// Adjacent pairs, five times, of 32 values.
    unsafe fn tree(lanes: *const f32) -> f32;

    /// Four neighbouring f32 of `W` blocks that lie `stride` bytes apart; value c of all blocks is `[c]`.
    unsafe fn columns_f32(from: *const u8, stride: usize) -> [Self::F; 4];
    /// The same of finite f16.
    unsafe fn columns_f16(from: *const u8, stride: usize) -> [Self::F; 4];
    /// The same of bf16.
    unsafe fn columns_bf16(from: *const u8, stride: usize) -> [Self::F; 4];
}
