// Which ids stay in the draw. Needs order.wgsl.
struct Kept {
    // Keys above this one stay, and at it the ids below `end`.
    key: u32,
    end: u32,
    // The largest key.
    top: u32,
    // Of these stay the ids whose surprise is less than `distance` from the expected one, and at this distance those below `distance_end`.
    expected: u32,
    distance: u32,
    distance_end: u32,
}

// Steps of a nat.
const STEPS: f32 = 2048.0;
// All keys further below the largest, in nats, count as equally surprising; none of them has a mass.
const FURTHEST: f32 = 31.0;

// How far a key lies below the largest value, in steps: below 2^16.
fn surprise(key: u32, top: f32) -> u32 {
    return u32(min(top - value_of(key), FURTHEST) * STEPS);
}

fn distance_of(key: u32, top: f32, expected: u32) -> u32 {
    let here = surprise(key, top);
    return max(here, expected) - min(here, expected);
}

// Whether an id whose key is not 0 stays.
fn stays(kept: Kept, key: u32, id: u32) -> bool {
    let distance = distance_of(key, value_of(kept.top), kept.expected);
    let typical = distance < kept.distance || (distance == kept.distance && id < kept.distance_end);
    return typical && (key > kept.key || (key == kept.key && id < kept.end));
}
