// The tree of adjacent pairs over the 256 lanes of a workgroup, once a workgroup.
var<workgroup> tree_lanes: array<f32, 256>;

fn tree256(lane: u32, value: f32) -> f32 {
    tree_lanes[lane] = value;
    workgroupBarrier();
    for (var step = 1u; step < 256u; step *= 2u) {
        if (lane & (2u * step - 1u)) == 0u {
            tree_lanes[lane] = tree_lanes[lane] + tree_lanes[lane + step];
        }
        workgroupBarrier();
    }
    return tree_lanes[0];
}
