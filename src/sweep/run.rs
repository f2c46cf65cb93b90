//! Parallel run of a sweep: solves its machines on every core and passes on each record.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use meshwright_planner::search::Control;

use super::error::SweepError;
use super::file::Sweep;
use super::record::Record;
use super::shard::Shard;
use super::solve;
use super::store::Done;

/// Solves the options that are not done. `sink` gets every record once, in any order; `progress(done)` counts options.
///
/// # Errors
///
/// The first error of `sink`, or that `control` broke; no machine is started after it, and none that was not solved is passed on.
pub fn run(
    sweep: &Sweep,
    shard: Shard,
    done: &Done,
    sink: &(dyn Fn(&Record) -> Result<(), SweepError> + Sync),
    progress: &(dyn Fn(u64) + Sync),
    control: &Control,
) -> Result<(), SweepError> {
    let count = AtomicU64::new(0);
    let machines: Vec<u64> = shard.machines(sweep).collect();
    let machine_count = machines.len() as u64;
    machines.into_par_iter().with_max_len(1).try_for_each(|machine| {
        let (first, choices) = sweep.machine(machine);
        let open = |at: &usize| !done.has(first + *at as u64);
        if (0..choices.len()).any(|at| open(&at)) {
            let solved = solve::machine_within(sweep, &choices[0].machine(), control);
            if control(count.load(Ordering::Relaxed), machine_count).is_break() {
                return Err(SweepError::Stopped);
            }
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
        assert_eq!("3/8".parse(), Ok(Shard { index: 3, count: 8 }));
        for slip in ["0/8", "9/8", "3", "a/b", "1/0"] {
            assert!(slip.parse::<Shard>().is_err(), "{slip}");
        }
    }
}
