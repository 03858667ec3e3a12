// Randomness: the twin of src/numerics/philox.rs. Needs exact.wgsl.

// a * b as (low, high) words, by pieces of 16 bits.
fn multiply_wide(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let p00 = a0 * b0;
    let p01 = a0 * b1;
    let p10 = a1 * b0;
    let middle = (p00 >> 16u) + (p01 & 0xffffu) + (p10 & 0xffffu);
    let high = a1 * b1 + (p01 >> 16u) + (p10 >> 16u) + (middle >> 16u);
    return vec2<u32>(a * b, high);
}

// Ten rounds of Philox4x32.
fn philox4x32(start: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var counter = start;
    var key = seed;
    for (var round_index = 0u; round_index < 10u; round_index++) {
        let p0 = multiply_wide(counter.x, 0xd2511f53u);
        let p1 = multiply_wide(counter.z, 0xcd9e8d57u);
        counter = vec4<u32>(p1.y ^ counter.y ^ key.x, p1.x, p0.y ^ counter.w ^ key.y, p0.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter;
}

// A word as a number strictly inside (0, 1): the middle of one of 2^23 equal cells, exact.
fn uniform_of(word: u32) -> f32 {
    return (f32(word >> 9u) + 0.5) * 1.1920929e-7;
}

// Gumbel noise of a random word.
fn gumbel_of(word: u32) -> f32 {
    return -exact_ln(-exact_ln(uniform_of(word)));
}

// Gumbel noise of token `id`, drawn for `position` of `stream`; `seed` is (low, high).
fn gumbel(seed: vec2<u32>, position: u32, stream: u32, id: u32) -> f32 {
    let words = philox4x32(vec4<u32>(id / 4u, position, stream, 0u), seed);
    return gumbel_of(words[id % 4u]);
}
