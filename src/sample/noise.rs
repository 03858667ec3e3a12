//! The random words of a draw.

use super::DRAW_STREAM;
use crate::numerics::philox::philox4x32;

/// The word of each token id at one position; cheapest where ids ascend.
pub(super) fn words(seed: u64, position: u32) -> impl FnMut(u32) -> u32 {
    let key = [seed as u32, (seed >> 32) as u32];
    let mut last = None;
    move |id| {
        let words = match last {
            Some((block, words)) if block == id / 4 => words,
            _ => philox4x32([id / 4, position, DRAW_STREAM, 0], key),
        };
        last = Some((id / 4, words));
        words[(id % 4) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::philox::random_word;

    #[test]
    fn words_are_those_of_their_ids_in_any_order() {
        let mut word = words(u64::MAX - 3, 77);
        for id in [0, 1, 5, 4, 3, 1 << 20, 7, 7, u32::MAX] {
            assert_eq!(word(id), random_word(u64::MAX - 3, 77, DRAW_STREAM, id));
        }
    }
}
