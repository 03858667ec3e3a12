// One lane's products of a row of weights with TILE rows of x: segment after segment, combined by the tree of adjacent pairs, in which a sum
// waits for its right neighbour.
fn plus(a: array<f32, TILE>, b: array<f32, TILE>) -> array<f32, TILE> {
    var sum: array<f32, TILE>;
    for (var r = 0u; r < TILE; r += 1u) {
        sum[r] = a[r] + b[r];
    }
    return sum;
}

// Sum of the 32 segments, those past the last being zeros.
fn tree(row: u32, first_x: u32) -> array<f32, TILE> {
    // Sums of 1, 2, 4, 8 and 16 segments.
    var of1: array<f32, TILE>;
    var of2: array<f32, TILE>;
    var of4: array<f32, TILE>;
    var of8: array<f32, TILE>;
    var of16: array<f32, TILE>;
    var sum: array<f32, TILE>;
    for (var segment = 0u; segment < 32u; segment += 1u) {
        for (var r = 0u; r < TILE; r += 1u) {
            sum[r] = 0.0;
        }
        if segment < params.segments {
            fold(row, segment, first_x, &sum);
        }
        if (segment & 1u) == 0u {
            of1 = sum;
            continue;
        }
        sum = plus(of1, sum);
        if (segment & 2u) == 0u {
            of2 = sum;
            continue;
        }
        sum = plus(of2, sum);
        if (segment & 4u) == 0u {
            of4 = sum;
            continue;
        }
        sum = plus(of4, sum);
        if (segment & 8u) == 0u {
            of8 = sum;
            continue;
        }
        sum = plus(of8, sum);
        if (segment & 16u) == 0u {
            of16 = sum;
            continue;
        }
        sum = plus(of16, sum);
    }
    return sum;
}
