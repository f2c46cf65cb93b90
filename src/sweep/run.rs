//! Parallel run of a sweep: solves its machines on every core and passes on each record.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::file::Sweep;
use super::record::Record;
use super::solve;
use super::{SweepError, store::Done};

/// Shard of a sweep: machines `index − 1`, `index − 1 + of`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the shard, from 1.
    pub index: u64,
    /// Number of shards.
    pub of: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 1, of: 1 }
    }
}

impl std::str::FromStr for Shard {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("`{text}` is not `i/n` with 1 ≤ i ≤ n, such as 3/8");
        let (index, of) = text.split_once('/').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let (index, of) = (number(index)?, number(of)?);
        if index >= 1 && index <= of { Ok(Self { index, of }) } else { Err(bad()) }
    }
}

impl Shard {
    /// Machines of the shard.
    pub fn machines(self, sweep: &Sweep) -> impl Iterator<Item = u64> + use<> {
        let all = sweep.machines();
        (self.index - 1..all).step_by(usize::try_from(self.of).unwrap_or(usize::MAX))
    }

    /// Number of options in the shard.
    pub fn options(self, sweep: &Sweep) -> u64 {
        if self.of == 1 {
            return sweep.options();
        }
        self.machines(sweep).map(|machine| sweep.machine(machine).1.len() as u64).sum()
    }
}

/// Solves the options that are not done. `sink` gets every record once, in any order; `progress(done)` counts options.
///
/// # Errors
///
/// The first error of `sink`, after which no machine is started.
pub fn run(
    sweep: &Sweep,
    shard: Shard,
    done: &Done,
    sink: &(dyn Fn(&Record) -> Result<(), SweepError> + Sync),
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), SweepError> {
    let count = AtomicU64::new(0);
    let machines: Vec<u64> = shard.machines(sweep).collect();
    machines.into_par_iter().with_max_len(1).try_for_each(|machine| {
        let (first, choices) = sweep.machine(machine);
        let open = |at: &usize| !done.has(first + *at as u64);
        if (0..choices.len()).any(|at| open(&at)) {
            let solved = solve::machine(sweep, &choices[0].machine());
            for at in (0..choices.len()).filter(open) {
                sink(&solve::record(sweep, first + at as u64, &choices[at], &solved))?;
            }
        }
        let options = choices.len() as u64;
        progress(count.fetch_add(options, Ordering::Relaxed) + options);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_and_checked() {
        assert_eq!("3/8".parse(), Ok(Shard { index: 3, of: 8 }));
        for slip in ["0/8", "9/8", "3", "a/b", "1/0"] {
            assert!(slip.parse::<Shard>().is_err(), "{slip}");
        }
    }
}
