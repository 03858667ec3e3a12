// Picks the experts of each row's largest logits, the lowest id first among equals; their weights are the softmax over the picked. A row a
// workgroup. An expert's rank is how many go before it. Grid: [1, rows, 1].
struct Params {
    zero: u32,
    // Experts, at most MAX_EXPERTS; those picked, at most LANES.
    n_experts: u32,
    n_used: u32,
}

const LANES: u32 = 64u;
const MAX_EXPERTS: u32 = 512u;
const INFINITE: u32 = 0x7f800000u;
// The key of a logit that is not finite, and the weights of its row.
const NO_KEY: u32 = 0xffffffffu;
const NOT_FINITE: u32 = 0x7fc00000u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, n_experts]: bits
@group(0) @binding(2) var<storage, read> logits: array<u32>;
// [rows, n_used]: id, bits of the weight
@group(0) @binding(10) var<storage, read_write> out: array<vec2<u32>>;

var<workgroup> keys: array<u32, MAX_EXPERTS>;
var<workgroup> picked: array<u32, LANES>;
var<workgroup> shares: array<f32, LANES>;
var<workgroup> is_finite: u32;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let start = group.y * params.n_experts;
    for (var i = lane; i < params.n_experts; i += LANES) {
        let logit = logits[start + i];
        keys[i] = select(order_key(number_of(logit)), NO_KEY, (logit & 0x7fffffffu) >= INFINITE);
    }
    workgroupBarrier();

    for (var i = lane; i < params.n_experts; i += LANES) {
        let key = keys[i];
        var rank = 0u;
        var finite = true;
        for (var j = 0u; j < params.n_experts; j += 1u) {
            let other = keys[j];
            rank += select(0u, 1u, other > key || (other == key && j < i));
            finite = finite && other != NO_KEY;
        }
        rank = select(i, rank, finite);
        if rank < params.n_used {
            picked[rank] = i;
        }
        if i == 0u {
            is_finite = select(0u, 1u, finite);
        }
    }
    workgroupBarrier();

    if lane < params.n_used {
        shares[lane] = exact_exp(value_of(keys[picked[lane]]) - value_of(keys[picked[0]]));
    }
    workgroupBarrier();

    if lane < params.n_used {
        var sum = 0.0;
        for (var p = 0u; p < params.n_used; p += 1u) {
            sum = sum + shares[p];
        }
        let weight = flush_small(shares[lane] * exact_recip(sum));
        out[group.y * params.n_used + lane] = vec2<u32>(picked[lane], select(NOT_FINITE, bitcast<u32>(weight), is_finite == 1u));
    }
}
