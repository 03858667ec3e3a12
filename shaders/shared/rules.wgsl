// What a sequence does to its logits; written where it changes.
struct Rules {
    n_biases: u32,
    // Tokens before the drawn one that penalties look at.
    window: u32,
    repeat: f32,
    inverse_repeat: f32,
    frequency: f32,
    presence: f32,
    // 1: the best candidates are those of the draw, noise included; 0: of the values.
    noise: u32,
    // Most ids kept, 0 without a limit.
    top_k: u32,
    // 65536 times the mass kept, 0 for all.
    top_p: u32,
    // 1: values below the largest plus `min_p_offset` go.
    min_p: u32,
    min_p_offset: f32,
    // 65536 times the mass kept by typical-p, 0 for all.
    typical_p: u32,
    // Token id (each once) and the bits of its bias; those of -infinity ban it.
    biases: array<vec2<u32>, 1024>,
}
