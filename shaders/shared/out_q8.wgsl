// Output of an operation as int8 blocks of 32 values. All LANES lanes of a workgroup call `emit` in uniform control flow with the values
// of columns first..first+4; `first` is 4 * lane plus a multiple of 32, so 8 neighbouring lanes hold a block. Columns from width on hold 0.
//
// out_q [rows, places, 8] u32 of four int8 each, out_s [rows, places]: bits of d, sum. places = segments * segment_len, interleaved;
// padding places are never written and stay 0.
@group(0) @binding(10) var<storage, read_write> out_q: array<u32>;
@group(0) @binding(11) var<storage, read_write> out_s: array<vec2<u32>>;

// 2^-100, infinity and 1/127 rounded.
const SMALLEST: u32 = 0x0d800000u;
const INFINITY: u32 = 0x7f800000u;
const ONE_127TH: u32 = 0x3c010204u;

var<workgroup> lane_amax: array<u32, LANES>;
var<workgroup> lane_sum: array<i32, LANES>;

fn emit(row: u32, lane: u32, first: u32, values: vec4<f32>) {
    let magnitudes = bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu);
    lane_amax[lane] = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    workgroupBarrier();

    let lead = lane & ~7u;
    var amax = 0u;
    for (var i = 0u; i < 8u; i += 1u) {
        amax = max(amax, lane_amax[lead + i]);
    }
    var q = vec4<i32>(0);
    var d = 0u;
    if amax >= INFINITY {
        d = 0x7fc00000u;
    } else if amax >= SMALLEST {
        d = bitcast<u32>(bitcast<f32>(amax) * bitcast<f32>(ONE_127TH));
        let r = guard(127.0 * exact_recip(bitcast<f32>(amax)));
        q = clamp(vec4<i32>(round(values * r)), vec4<i32>(-127), vec4<i32>(127));
    }
    lane_sum[lane] = q.x + q.y + q.z + q.w;
    workgroupBarrier();

    if first < params.width {
        let block = first / 32u;
        let place = (block % params.segment_len) * params.segments + block / params.segment_len;
        let at = row * params.segments * params.segment_len + place;
        let bytes = bitcast<vec4<u32>>(q) & vec4<u32>(0xffu);
        out_q[at * 8u + (lane & 7u)] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
        if lane == lead {
            var sum = 0;
            for (var i = 0u; i < 8u; i += 1u) {
                sum += lane_sum[lead + i];
            }
            out_s[at] = vec2<u32>(d, bitcast<u32>(sum));
        }
    }
}
