//! Enumeration of all splits, if there are few.

use super::edges::Edges;
use super::multi::memory::{FittingMixes, fastest, loads};
use super::paths::{dependency_paths, length};
use super::program::StageProgram;
use super::split::{Incumbent, Solution, StageLoad, StagedSplit};

/// Largest number of splits that are enumerated.
pub const MOST_ENUMERATED: f64 = 4000.0;

/// Number of splits: cuts that leave no stage empty but those with an end of the model.
pub fn splits(program: &StageProgram) -> f64 {
    let n = program.len();
    let mut ways = vec![0.0; n + 1];
    ways[0] = 1.0;
    for chunk in 0..program.chunks {
        let mut next = vec![0.0; n + 1];
        for (a, &so_far) in ways.iter().enumerate() {
            for b in (a..=n).filter(|&b| program.may_hold(chunk, a, b)) {
                next[b] += so_far;
            }
        }
        ways = next;
    }
    ways[n]
}

/// Evaluates every split that may be faster than the step time `cutoff` and raises the bound of a solution: to the least exact step
/// where recomputation was not chosen stage by stage or each rank holds one stage, and to the longest dependency path elsewhere.
pub fn enumerate(
    program: &StageProgram,
    mut step: impl FnMut(&StagedSplit) -> f64,
    cutoff: f64,
    answer: &mut Solution,
) {
    let family = dependency_paths(program);
    let edges = Edges::of_any_split(program);
    let line = edges.line(program, program.sends);
    let longest = |loads: &[StageLoad]| family.iter().map(|path| length(path, loads)).fold(0.0, f64::max);
    let floor = |loads: &[StageLoad]| line.step(longest(loads));
    let mut mixes = FittingMixes::new();
    let mut proved = f64::INFINITY;
    let single = program.chunks == program.ranks;
    let mut cuts = vec![0; program.chunks + 1];
    cuts[program.chunks] = program.len();
    every_cut(program, 1, &mut cuts, &mut |cuts| {
        let time = answer.step_time(cutoff);
        let at_least = floor(&fastest(program, cuts));
        if at_least >= time {
            return;
        }
        let Some(loads) = loads(program, cuts, &mut mixes) else { return };
        let exact = single || loads.iter().all(|load| load.point.is_none());
        let split = StagedSplit { cuts: cuts.to_vec(), loads };
        let own = step(&split);
        answer.evaluated += 1;
        proved = proved.min(if exact { own } else { at_least });
        if own < time {
            answer.best = Some(Incumbent { step: own, split });
        }
    });
    answer.bound = answer.bound.max(proved.min(answer.step_time(cutoff)));
}

/// Visits all legal cuts of a program's items, from stage `chunk` on. Prefixes that leave too few items for the stages
/// behind them are skipped: with as many stages as items there are few cuts, and very many prefixes.
pub fn every_cut(program: &StageProgram, chunk: usize, cuts: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
    let from = cuts[chunk - 1];
    if chunk == program.chunks {
        if program.may_hold(chunk - 1, from, cuts[chunk]) {
            visit(cuts);
        }
        return;
    }
    // All stages behind this one hold an item, but the last.
    let behind = program.chunks - 1 - chunk;
    for to in from..=program.len().saturating_sub(behind) {
        if program.may_hold(chunk - 1, from, to) {
            cuts[chunk] = to;
            every_cut(program, chunk + 1, cuts, visit);
        }
    }
}
