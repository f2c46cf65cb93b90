//! Memory of one pipeline rank.

use crate::units::Bytes;

/// Bytes of memory that a pipeline rank takes, with the number of the rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankBytes {
    /// Number of the rank.
    pub rank: u32,
    /// Bytes on it.
    pub bytes: Bytes,
}

impl RankBytes {
    /// The one of two ranks with more bytes; this one where both have as many.
    #[must_use]
    pub fn fuller(self, other: Self) -> Self {
        if other.bytes > self.bytes { other } else { self }
    }
}
