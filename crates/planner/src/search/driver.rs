//! Branch and bound over the shapes of a space.

use std::ops::ControlFlow;

use rayon::prelude::*;

use super::cache::CostCache;
use super::certificate::{Certificate, SearchProof};
use super::explore::Explorer;
use super::incumbents::{Incumbents, SearchTarget};
use super::options::{Goal, Objective, SearchOptions};
use super::ranking::{NearMiss, Ranking};
use super::state::SearchState;
use super::stop::Stop;
use super::tables::{Shapes, Tables};
use crate::space::{Space, check, check_with_idle};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Price, layer_bound};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{Bytes, Seconds};

/// Number of shapes searched at once. It is fixed so that the answer does not depend on the number of threads, and small at
/// first, so that good incumbents are found early.
fn batch_size(done: usize) -> usize {
    if done < 32 { 8 } else { 64 }
}

/// Finds the fastest plans; calls `progress(done, all)` as shapes are completed.
///
/// The answer is deterministic: it does not depend on the number of threads.
pub fn search(problem: &Problem, options: &SearchOptions, progress: &(dyn Fn(u64, u64) + Sync)) -> Ranking {
    search_for(problem, options, Goal::Fastest, &|done, all| {
        progress(done, all);
        ControlFlow::Continue(())
    })
}

/// Finds the best plans by any goal. `control(done, all)` is asked by every thread before each layout and schedule; when it
/// breaks, the search returns the incumbents so far, with a certificate that bounds the optimality gap.
pub fn search_for(
    problem: &Problem,
    options: &SearchOptions,
    goal: Goal,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Ranking {
    let costs = Costs::new(problem);
    let ranking = search_with(&costs, options, goal, control);
    if !ranking.evaluations.is_empty() || ranking.certificate.proof != SearchProof::Optimal {
        return ranking;
    }
    Ranking { nearest: nearest(&costs, options, control), ..ranking }
}

/// Plan of least memory, which exceeds the budget, with the reason why.
pub(super) fn nearest(
    costs: &Costs,
    options: &SearchOptions,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Option<NearMiss> {
    let one = SearchOptions { top: 1, restrictions: options.restrictions.clone() };
    let space = Space::new(costs, &one.restrictions);
    let wanted =
        SearchTarget { goal: Goal::Best(Objective::Memory), top: 1, budget: f64::INFINITY, ceiling: f64::INFINITY };
    let (found, _) = run(costs, &space, Incumbents::new(wanted), &CostCache::default(), control);
    let plan = found.best.into_plans().into_iter().next()?;
    let reason = crate::space::too_large(costs, &plan)?.to_string();
    Some(NearMiss { plan, reason })
}

/// Searches with a cost model that is already prepared.
pub fn search_with(
    costs: &Costs,
    options: &SearchOptions,
    goal: Goal,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Ranking {
    let wanted = SearchTarget::new(costs, options, goal);
    search_from(costs, options, wanted, &[], &CostCache::default(), control)
}

/// Searches of one problem under several limits. They share the costs of layers, pipelines and shardings, which depend on no
/// limit; no answer depends on the others.
#[derive(Debug)]
pub struct LimitedSearches<'c> {
    costs: &'c Costs<'c>,
    parts: CostCache,
    seeds: Vec<Plan>,
}

impl<'c> LimitedSearches<'c> {
    /// Starts with a cost model that is prepared.
    pub fn new(costs: &'c Costs<'c>) -> Self {
        Self { costs, parts: CostCache::default(), seeds: Vec::new() }
    }

    /// Adds candidate incumbents, such as the answers to a similar problem. They change no answer, only the number of plans
    /// that each bound excludes.
    #[must_use]
    pub fn starting_from(mut self, plans: &[Plan]) -> Self {
        self.seeds.extend_from_slice(plans);
        self
    }

    /// Finds the fastest plans that need at most `memory` on each device and take at most `ceiling`.
    pub fn fastest(
        &self,
        options: &SearchOptions,
        memory: Bytes,
        ceiling: Seconds,
        control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
    ) -> Ranking {
        let (goal, top) = (Goal::Fastest, options.top);
        let wanted = SearchTarget { goal, top, budget: memory.get(), ceiling: ceiling.get() };
        search_from(self.costs, options, wanted, &self.seeds, &self.parts, control)
    }
}

/// Searches from candidate incumbents (`seeds`) and with layer costs that may already be computed (`parts`). Neither
/// changes the answer: a seed counts only if it lies in the space and runs. Plans with an objective above `ceiling` are
/// excluded.
pub(super) fn search_from(
    costs: &Costs,
    options: &SearchOptions,
    wanted: SearchTarget,
    seeds: &[Plan],
    parts: &CostCache,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Ranking {
    let space = Space::new(costs, &options.restrictions);
    let mut known = Incumbents::new(wanted);
    for plan in seeds {
        let runs = if space.allows_idle() { check_with_idle(costs, plan) } else { check(costs, plan) };
        if runs.is_empty() && space.allows(plan) {
            let evaluation = costs.evaluate_simulated(plan);
            known.offer(plan.clone(), Price { time: evaluation.step.total(), memory: evaluation.footprint.device() });
        }
    }
    let (found, proof) = run(costs, &space, known, parts, control);
    let SearchState { best, counts, paths: _ } = found;
    let size = space.size();
    let evaluations = best.into_plans().iter().map(|plan| costs.evaluate_simulated(plan)).collect();
    let certificate = Certificate::new(size, &counts, proof);
    Ranking {
        evaluations,
        considered: size,
        evaluated: certificate.evaluated,
        cut_by_bound: certificate.cut_by_bound(),
        rejections: counts.rejections(),
        nearest: None,
        certificate,
    }
}

pub(super) fn run(
    costs: &Costs,
    space: &Space,
    known: Incumbents,
    parts: &CostCache,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> (SearchState, SearchProof) {
    let shapes = Shapes::new(costs, space, parts);
    let fewest = if space.allows_idle() { 1 } else { costs.problem.cluster().gpus };
    let mut bounded: Vec<(Seconds, usize)> = (0..shapes.len())
        .into_par_iter()
        .map(|index| {
            let (plan, mixing, feeding) = shapes.at(index);
            (layer_bound(costs, &plan, mixing, feeding, fewest), index)
        })
        .collect();
    bounded.par_sort_by(|a, b| a.0.get().total_cmp(&b.0.get()).then(a.1.cmp(&b.1)));
    let tables = Tables::new(costs, space, parts);
    let mut found = SearchState::new(known);
    let mut done = 0;
    while done < bounded.len() {
        let batch = &bounded[done..(done + batch_size(done)).min(bounded.len())];
        if found.best.is_hopeless_for_all(batch[0].0) {
            return (found, SearchProof::Optimal);
        }
        let all = bounded.len() as u64;
        let stop = Stop::new(done as u64, all, control);
        let explored: Vec<SearchState> = batch
            .par_iter()
            .map(|&(_, index)| {
                let (plan, mixing, feeding) = shapes.at(index);
                Explorer { costs, space, tables: &tables, known: &found, stop: &stop }.explore(&plan, mixing, feeding)
            })
            .collect();
        found = explored.into_iter().fold(found, SearchState::merge);
        let left = if stop.is_set() { Some(batch[0].0) } else { None };
        done += batch.len();
        let is_over = || control(done as u64, all).is_break();
        let left = left.or_else(|| bounded.get(done).map(|next| next.0).filter(|_| is_over()));
        if let Some(bound) = left {
            let proof = if found.best.is_hopeless_for_all(bound) {
                SearchProof::Optimal
            } else {
                SearchProof::Stopped { bound }
            };
            return (found, proof);
        }
    }
    (found, SearchProof::Optimal)
}
