//! Shards of a sweep.

use super::file::Sweep;

/// Shard of a sweep: machines `index − 1`, `index − 1 + count`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the shard, from 1.
    pub index: u64,
    /// Number of shards.
    pub count: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 1, count: 1 }
    }
}

impl std::str::FromStr for Shard {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("`{text}` is not `i/n` with 1 ≤ i ≤ n, such as 3/8");
        let (index, count) = text.split_once('/').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let (index, count) = (number(index)?, number(count)?);
        if index >= 1 && index <= count { Ok(Self { index, count }) } else { Err(bad()) }
    }
}

impl Shard {
    /// Machines of the shard.
    pub fn machines(self, sweep: &Sweep) -> impl Iterator<Item = u64> + use<> {
        let all = sweep.machines();
        (self.index - 1..all).step_by(usize::try_from(self.count).unwrap_or(usize::MAX))
    }

    /// Number of options in the shard.
    pub fn options(self, sweep: &Sweep) -> u64 {
        if self.count == 1 {
            return sweep.options();
        }
        self.machines(sweep).map(|machine| sweep.machine(machine).1.len() as u64).sum()
    }
}
