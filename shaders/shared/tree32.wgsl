// The tree of adjacent pairs over the 32 segments of an output in `sums`, [outputs, 32] of workgroup memory that the kernel declares. An
// output's segments are permuted, so that lanes that read the same one of neighbouring outputs find it in different banks.

// Where a segment of output `i` lies.
fn sum_at(i: u32, segment: u32) -> u32 {
    return (i * 32u + i % 32u) ^ segment;
}

fn tree4(i: u32, s: u32) -> f32 {
    return (sums[sum_at(i, s)] + sums[sum_at(i, s + 1u)]) + (sums[sum_at(i, s + 2u)] + sums[sum_at(i, s + 3u)]);
}

fn tree32(i: u32) -> f32 {
    let a = (tree4(i, 0u) + tree4(i, 4u)) + (tree4(i, 8u) + tree4(i, 12u));
    let b = (tree4(i, 16u) + tree4(i, 20u)) + (tree4(i, 24u) + tree4(i, 28u));
    return a + b;
}
