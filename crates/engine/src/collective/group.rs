//! Process groups of a collective.

/// Process group of `ranks` ranks that are `stride` apart in the rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Number of ranks.
    pub ranks: u32,
    /// Distance between neighbours in the rank order.
    pub stride: u32,
}

impl Group {
    /// Ranks of this group inside one unit of `gpus` consecutive ranks.
    pub const fn inside(&self, gpus: u32) -> u32 {
        let fit = gpus / if self.stride == 0 { 1 } else { self.stride };
        if fit < 1 {
            1
        } else if fit > self.ranks {
            self.ranks
        } else {
            fit
        }
    }
}
