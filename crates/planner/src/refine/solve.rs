//! Solution of one program, and of one offload.

use super::edges::Edges;
use super::options::{Effort, Options, Technique};
use super::program::StageProgram;
use super::split::{Solution, StagedSplit};
use super::{enumeration, multi, paths, single};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::Stager;
use meshwright_engine::plan::{Offload, Plan, Recompute};

/// Candidate offloads, and those that another candidate dominates: activations whose transfer is hidden behind compute cost
/// nothing, so the largest such share dominates the smaller ones if the host can hold it.
pub(super) fn offloads(stager: &Stager, plan: &Plan, options: &Options) -> (Vec<Offload>, Vec<Offload>) {
    let mut all =
        if options.offloads.is_empty() { vec![Offload::NONE, plan.offload] } else { options.offloads.clone() };
    let kinds = 0..stager.costs().problem.model().kinds.len();
    let time = |kind: usize, share: f64| stager.layer(kind, Recompute::None, share).time;
    let is_free = |share: f64| kinds.clone().all(|kind| time(kind, share) == time(kind, 0.0));
    let free: Vec<f64> = all.iter().map(|o| o.activations).filter(|&share| is_free(share)).collect();
    let most = free.iter().copied().fold(0.0, f64::max);
    sort_by_numbers(&mut all, |offload| [offload.optimizer, offload.activations]);
    all.dedup();
    all.into_iter().partition(|o| !free.contains(&o.activations) || o.activations >= most)
}

/// Whether every stage of a split whose step is faster than `cutoff` fits its rank under its fastest options, where ranks hold one
/// stage each: then no split is faster for memory that it saves, and an offload is no faster than none.
pub(super) fn has_room_for_all(program: &StageProgram, cutoff: f64) -> bool {
    let line = Edges::of_any_split(program).line(program, program.sends);
    // A rank of a faster split is busy for no longer.
    let ceiling = line.pipeline(cutoff) / program.stager.micro_batches() * (1.0 + 1e-9);
    let fits = |stage: usize, a: usize, b: usize| {
        let load = program.fastest(stage, a, b);
        let kept = load.kept * program.most_in_flight[stage] + load.working_set;
        load.busy > ceiling || program.states(a, b) + kept <= program.room[program.rank_of(stage)]
    };
    let n = program.len();
    program.chunks == program.ranks
        && ceiling.is_finite()
        && (0..program.chunks).all(|stage| (0..=n).all(|a| (a..=n).all(|b| fits(stage, a, b))))
}

/// Solution of one program under an incumbent of another, given by its step time; the budget of a plan is divided by `programs`.
pub(super) fn solve_under(
    program: &StageProgram,
    options: &Options,
    incumbent: Option<f64>,
    programs: usize,
) -> Solution {
    let stager = program.stager;
    let cutoff = incumbent.unwrap_or(f64::INFINITY);
    if cutoff.is_finite() {
        let least = stager.micro_batches() * multi::bound::busiest(program) + program.sends;
        if Edges::of_any_split(program).lift(program, least) >= cutoff {
            return Solution { best: None, bound: cutoff, evaluated: 0, cut_short: false };
        }
    }
    let step = |split: &StagedSplit| stager.evaluate(&program.staged(split)).evaluation.step.total().get();
    solve(program, options, Effort { cutoff, programs, most_enumerated: enumeration::MOST_ENUMERATED }, step)
}

/// Solution of one program, where `step` is the step time of a split.
pub(super) fn solve(
    program: &StageProgram,
    options: &Options,
    effort: Effort,
    mut step: impl FnMut(&StagedSplit) -> f64,
) -> Solution {
    let single = program.chunks == program.ranks && (program.stager.is_simulated() || program.ranks == 1);
    let mut answer = if single && options.uses(Technique::ShortestPaths) {
        single::solve(program, paths::dependency_paths(program), options, effort.cutoff, &mut step)
    } else {
        multi::solve(program, options, effort, &mut step)
    };
    if options.enumerate
        && options.uses(Technique::Enumeration)
        && enumeration::splits(program) <= effort.most_enumerated
    {
        enumeration::enumerate(program, &mut step, effort.cutoff, &mut answer);
    }
    if let Some(incumbent) = &answer.best {
        answer.bound = answer.bound.min(incumbent.step);
    }
    answer
}
