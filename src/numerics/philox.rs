//! Randomness: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), a function of a counter and a
//! key, so that any token of any step can be drawn alone.

use super::exact_ln;

/// Ten rounds of Philox4x32.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(counter[0]) * 0xd251_1f53;
        let p1 = u64::from(counter[2]) * 0xcd9e_8d57;
        counter =
            [(p1 >> 32) as u32 ^ counter[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ counter[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// A word as a number strictly inside (0, 1): the middle of one of 2^23 equal cells, exact.
#[inline]
pub fn uniform(word: u32) -> f32 {
    ((word >> 9) as f32 + 0.5) * f32::from_bits(0x3400_0000)
}

/// The word of token `id` at `position` of `stream`.
pub fn random_word(seed: u64, position: u32, stream: u32, id: u32) -> u32 {
    let key = [seed as u32, (seed >> 32) as u32];
    philox4x32([id / 4, position, stream, 0], key)[(id % 4) as usize]
}

/// Gumbel noise of token `id`, drawn for `position` of `stream`: -ln(-ln u), between -2.9 and 16.7.
pub fn gumbel(seed: u64, position: u32, stream: u32, id: u32) -> f32 {
    gumbel_of(random_word(seed, position, stream, id))
}

/// Gumbel noise of a random word.
#[inline]
pub fn gumbel_of(word: u32) -> f32 {
    -exact_ln(-exact_ln(uniform(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // the published vectors of the Random123 library
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want);
        }
    }

    #[test]
    fn uniform_never_reaches_its_ends() {
        assert_eq!(uniform(0), f32::powi(2.0, -24));
        assert_eq!(uniform(u32::MAX), 1.0 - f32::powi(2.0, -24));
        for word in [0, 1, 511, 512, u32::MAX - 512, u32::MAX] {
            let g = gumbel_of(word);
            assert!((-2.9..16.7).contains(&g), "{word}: {g}");
        }
    }

    #[test]
    fn gumbel_has_its_mean_and_spread() {
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|id| f64::from(gumbel(7, 3, 1, id))).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!((mean - 0.577_215_66).abs() < 0.02, "{mean}");
        assert!((variance - 1.644_934).abs() < 0.05, "{variance}");
    }
}
