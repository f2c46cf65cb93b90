//! Set of the options of a sweep that are done.

/// Set of the numbers of options whose records are on disk, as a bit map.
#[derive(Clone, Debug, Default)]
pub struct Done(Vec<u64>);

impl Done {
    /// Whether an option is on disk.
    pub fn has(&self, option: u64) -> bool {
        self.0.get((option / 64) as usize).is_some_and(|bits| bits >> (option % 64) & 1 == 1)
    }

    /// Marks an option as done.
    pub fn add(&mut self, option: u64) {
        let at = (option / 64) as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (option % 64);
    }

    /// Marks the options of another set as done.
    pub fn include(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }

    /// Number of options that are done.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }
}
