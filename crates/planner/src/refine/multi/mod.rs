//! Several stages a rank: local search for a split, Lagrangian branch and bound for the proof.

mod annealing;
mod ascent;
pub mod bound;
mod branch;
mod columns;
mod coverage;
mod dual;
mod local_search;
pub mod memory;
mod multipliers;
mod packed;
mod rechoice;
mod recomputation;
mod shapes;

use std::mem;

use super::cuts::nearest_split;
use super::cuts::starts;
use super::edges::Edges;
use super::options::{Effort, Options, Technique};
use super::program::StageProgram;
use super::split::{Solution, StagedSplit};
use bound::BoundTarget;
use branch::Budget;
use local_search::LocalSearch;

/// Gap between bound and incumbent, as a share, beyond which the split, not only the bound, may be far from the optimum.
const LOOSE_GAP: f64 = 0.02;
/// Factor by which annealing runs longer at a loose gap.
const LONGER: usize = 9;

/// Split and lower bound of a program whose ranks hold several stages.
///
/// Local search descends from a few starts and anneals from the best; branch and bound proves a lower bound and passes
/// on the splits it meets; where the gap stays loose, annealing runs longer. `step` is the step time of a split.
pub fn solve(
    program: &StageProgram,
    options: &Options,
    Effort { cutoff, programs, .. }: Effort,
    step: &mut dyn FnMut(&StagedSplit) -> f64,
) -> Solution {
    let mut search = LocalSearch::new(program, options, step);
    for start in starts(program) {
        search.descend(start);
    }
    if search.best.is_none() {
        search.descend(nearest_split(program).cuts);
    }
    let line = Edges::of_any_split(program).line(program, program.sends);
    if options.rough {
        let bound = line.base + line.slope * program.stager.micro_batches() * bound::busiest(program);
        return Solution { cut_short: true, ..search.into_solution(bound) };
    }
    search.anneal(1, programs);
    let mut bound = 0.0;
    if options.uses(Technique::BranchAndBound) {
        let mut budget = Budget { left: bound::MOST_WORK / programs };
        let target = BoundTarget { incumbent: search.incumbent().min(cutoff), line, tolerance: options.tolerance };
        let paths = mem::take(&mut search.paths);
        search.paths.clone_from(&paths);
        bound = bound::lower_bound(program, paths, &target, &mut budget, &mut |cuts| search.offer(cuts).min(cutoff));
        search.cut_short |= budget.left == 0;
    }
    if bound < search.incumbent().min(cutoff) * (1.0 - LOOSE_GAP) {
        search.anneal(LONGER, programs);
    }
    search.choose_recomputation();
    search.into_solution(bound)
}
