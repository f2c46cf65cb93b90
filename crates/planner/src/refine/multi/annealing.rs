//! Simulated annealing over cuts: leaves local optima that single moves of a layer cannot.

use super::memory::{FittingMixes, fastest, loads};
use crate::refine::cuts::legal;
use crate::refine::paths::{length, stage_times};
use crate::refine::program::StageProgram;
use crate::refine::split::StageLoad;
use crate::split_mix::SplitMix;
use meshwright_engine::schedule::paths::Path;

/// Most simulated operations, and most steps, of one annealing of the usual length: the same on every machine.
const MOST_SIMULATED: usize = 24_000_000;
const MOST_STEPS: usize = 12_000;
/// First temperature, as a share of the pipeline's time, and last temperature, as a share of the first.
const WARM: f64 = 0.01;
const COLD: f64 = 1e-3;

/// Seed of the random moves, so that the same plan gives the same cuts.
const SEED: u64 = 1;
/// Step of the uniform random numbers, by which they are moved from [0, 1) to (0, 1].
const UNIFORM_STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// Simulated annealing over cuts from `start`, `longer` times the usual length, divided by the number of `programs`: the
/// fastest cuts met, by their simulated pipeline. `None` where the schedule has no list of operations or the start does not
/// fit.
pub fn anneal(
    program: &StageProgram,
    paths: &[Path],
    start: Vec<usize>,
    mixes: &mut FittingMixes,
    longer: usize,
    programs: usize,
) -> Option<Vec<usize>> {
    if program.chunks < 3 {
        return None;
    }
    let simulator = program.simulator()?;
    let simulated =
        |loads: &[StageLoad]| simulator.makespan(&stage_times(program.stager.pairs().pairing(), loads)).get();
    let floor = |loads: &[StageLoad]| paths.iter().map(|path| length(path, loads)).fold(0.0, f64::max);
    let mut here = start;
    let mut time = simulated(&loads(program, &here, mixes)?);
    let (mut best, mut least) = (here.clone(), time);
    let mut numbers = SplitMix::new(SEED);
    let mut left = longer * MOST_SIMULATED / programs;
    let steps = longer * MOST_STEPS / programs;
    let operations = simulator.operations();
    for step in 0..steps {
        let cuts = with_moved_layer(program, &here, &mut numbers);
        let temperature = WARM * libm::pow(COLD, step as f64 / steps as f64);
        let limit = time * (1.0 - temperature * libm::log(numbers.uniform() + UNIFORM_STEP));
        if !legal(program, &cuts) || floor(&fastest(program, &cuts)) >= limit {
            continue;
        }
        let Some(loads) = loads(program, &cuts, mixes) else { continue };
        if floor(&loads) >= limit {
            continue;
        }
        if left < operations {
            break;
        }
        left -= operations;
        let own = simulated(&loads);
        if own < limit {
            (here, time) = (cuts, own);
            if time < least {
                (best, least) = (here.clone(), time);
            }
        }
    }
    Some(best)
}

/// Cuts with one layer moved between two random stages, neighbours more often than others.
fn with_moved_layer(program: &StageProgram, cuts: &[usize], numbers: &mut SplitMix) -> Vec<usize> {
    let last = program.chunks - 1;
    let (first, second) = (numbers.below(last + 1), numbers.below(last + 1));
    let (low, mut high) = (first.min(second), first.max(second));
    if low == high || numbers.below(3) == 0 {
        high = (low + 1).min(last);
    }
    let up = numbers.below(2) == 0;
    let mut cuts = cuts.to_vec();
    for cut in &mut cuts[low + 1..=high] {
        *cut = if up { *cut + 1 } else { cut.saturating_sub(1) };
    }
    cuts
}
