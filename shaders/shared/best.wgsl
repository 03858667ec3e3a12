// The largest of a workgroup's candidates (order key, token id); ties go to the lowest id. Once a workgroup of 256 lanes.
var<workgroup> best_lanes: array<vec2<u32>, 256>;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let b_wins = b.x > a.x || (b.x == a.x && b.y < a.y);
    return select(a, b, b_wins);
}

fn best256(lane: u32, candidate: vec2<u32>) -> vec2<u32> {
    best_lanes[lane] = candidate;
    workgroupBarrier();
    for (var n = 128u; n > 0u; n /= 2u) {
        if lane < n {
            best_lanes[lane] = better(best_lanes[lane], best_lanes[lane + n]);
        }
        workgroupBarrier();
    }
    return best_lanes[0];
}
