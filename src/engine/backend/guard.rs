//! Where the guard tripped, in a word that kernels write.

use crate::error::Error;

/// Where the guard found a hidden state it does not let pass: the earliest position, the first layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// The layer that wrote it; `None` for the embedding.
    pub layer: Option<usize>,
    /// Position of its token.
    pub position: usize,
    /// Whether it is infinite or NaN; else its magnitude reached the limit.
    pub not_finite: bool,
}

/// The guard's word before it trips.
pub(crate) const UNTRIPPED: u32 = u32::MAX;
/// Layers the guard's word can name.
pub(crate) const MAX_GUARDED_LAYERS: usize = 1022;

impl From<Trip> for Error {
    fn from(Trip { layer, position, not_finite }: Trip) -> Self {
        Error::NotFinite { layer, position, not_finite }
    }
}

impl Trip {
    /// The word of a trip: the least of several is the earliest.
    pub(crate) fn word(self) -> u32 {
        let source = self.layer.map_or(0, |layer| layer as u32 + 1);
        ((self.position as u32).min(0xf_ffff) << 12) | (source << 2) | if self.not_finite { 1 } else { 2 }
    }

    /// Reads the guard's word.
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        (word != UNTRIPPED).then(|| Trip {
            layer: ((word >> 2) & 0x3ff).checked_sub(1).map(|layer| layer as usize),
            position: (word >> 12) as usize,
            not_finite: word & 3 == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_ordered_by_position_then_layer() {
        let trip = |layer, position, not_finite| Trip { layer, position, not_finite };
        let ordered = [trip(None, 0, true), trip(Some(0), 0, false), trip(Some(9), 0, true), trip(None, 1, false)];
        assert!(ordered.windows(2).all(|w| w[0].word() < w[1].word()));
        for trip in ordered {
            assert_eq!(Trip::from_word(trip.word()), Some(trip));
        }
        assert_eq!(Trip::from_word(UNTRIPPED), None);
        let last = trip(Some(MAX_GUARDED_LAYERS), 0xf_ffff, false);
        assert_ne!(last.word(), UNTRIPPED);
        assert_eq!(Trip::from_word(last.word()), Some(last));
    }
}
