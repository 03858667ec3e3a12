// The tree of adjacent pairs over the 32 values from `at` on in `sums`, workgroup memory that the kernel declares.
fn tree4(at: u32) -> f32 {
    return (sums[at] + sums[at + 1u]) + (sums[at + 2u] + sums[at + 3u]);
}

fn tree32(at: u32) -> f32 {
    let a = (tree4(at) + tree4(at + 4u)) + (tree4(at + 8u) + tree4(at + 12u));
    let b = (tree4(at + 16u) + tree4(at + 20u)) + (tree4(at + 24u) + tree4(at + 28u));
    return a + b;
}
