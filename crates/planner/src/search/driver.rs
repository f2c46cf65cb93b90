//! Branch and bound over the shapes of a space.

use std::ops::ControlFlow;
use std::sync::Arc;

use rayon::prelude::*;

use super::cache::CostCache;
use super::certificate::{Certificate, SearchProof};
use super::explorer::Explorer;
use super::frontier::{Frontier, Ready};
use super::incumbents::{Incumbents, SearchTarget, SpacePosition, TieLimits};
use super::options::{Control, Goal, Objective, SearchOptions};
use super::pareto::ParetoFront;
use super::pipelines::Pipelines;
use super::ranking::{NearMiss, Ranking};
use super::state::SearchState;
use super::stop::Stop;
use super::tables::{Shapes, Tables};
use crate::space::{Space, check, check_with_idle, least_states};
use meshwright_engine::cost::incremental::Price;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::replays::Replays;
use meshwright_engine::units::{Bytes, Seconds};

/// Number of shapes searched at once. It is fixed so that the answer does not depend on the number of threads, and small at
/// first, so that good incumbents are found early: a batch does not see what it finds itself.
fn batch_size(done: usize) -> usize {
    if done < 128 { 8 } else { 32 }
}

/// Number of shapes whose best plans are the first incumbents of a search without candidates. Without incumbents, no
/// bound excludes a plan; with that of one shape, few plans of the shape are left.
const LEADERS: usize = 16;

/// Finds the fastest plans; calls `progress(done, all)` as shapes are completed.
///
/// The answer is deterministic: it does not depend on the number of threads.
pub fn search(problem: &Problem, options: &SearchOptions, progress: &(dyn Fn(u64, u64) + Sync)) -> Ranking {
    search_for(problem, options, Goal::Fastest, &|done, all| {
        progress(done, all);
        ControlFlow::Continue(())
    })
}

/// Finds the best plans by any goal. Every thread calls `control(done, all)` before each layout and schedule; when it
/// breaks, the search returns the incumbents so far, with a certificate that bounds the optimality gap.
pub fn search_for(problem: &Problem, options: &SearchOptions, goal: Goal, control: &Control) -> Ranking {
    let costs = Costs::new(problem);
    let ranking = search_with(&costs, options, goal, control);
    LimitedSearches::new(&costs).or_nearest(ranking, options, control)
}

/// Plan of least memory, which exceeds the budget, with the reason why.
pub(super) fn nearest(
    costs: &Costs,
    options: &SearchOptions,
    parts: &CostCache,
    control: &Control,
) -> Option<NearMiss> {
    let one = SearchOptions { top: 1, restrictions: options.restrictions.clone() };
    let space = Space::new(costs, &one.restrictions);
    let wanted = SearchTarget {
        hbm_budget: Bytes::new(f64::INFINITY),
        ..SearchTarget::new(costs, &one, Goal::Best(Objective::Memory))
    };
    let (found, _) = run(costs, &space, Incumbents::new(wanted), parts, control);
    let plan = found.best.into_plans().into_iter().next()?;
    let reason = crate::space::too_large(costs, &plan)?.to_string();
    Some(NearMiss { plan, reason })
}

/// Searches with a cost model that is already prepared.
pub fn search_with(costs: &Costs, options: &SearchOptions, goal: Goal, control: &Control) -> Ranking {
    let wanted = SearchTarget::new(costs, options, goal);
    search_from(costs, options, wanted, &[], &CostCache::default(), control)
}

/// Limits of one search for the fastest plans.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Memory of a device that a plan may fill.
    pub hbm_budget: Bytes,
    /// Longest step time.
    pub ceiling: Seconds,
    /// Plans beyond the `top` that are wanted where they are nearly as good.
    pub ties: TieLimits,
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
    /// Cost model of the searches.
    pub(crate) const fn costs(&self) -> &'c Costs<'c> {
        self.costs
    }

    /// Starts with a cost model that is prepared.
    pub fn new(costs: &'c Costs<'c>) -> Self {
        Self { costs, parts: CostCache::default(), seeds: Vec::new() }
    }

    /// Shares `replays`, the simulators and paths of schedules, with the searches of other problems.
    #[must_use]
    pub fn replaying(self, replays: &Arc<Replays>) -> Self {
        Self { parts: CostCache::replaying(Arc::clone(replays)), ..self }
    }

    /// Adds candidate incumbents, such as the answers to a similar problem. They change no answer, only the number of plans
    /// that each bound excludes.
    #[must_use]
    pub fn starting_from(mut self, plans: &[Plan]) -> Self {
        self.seeds.extend_from_slice(plans);
        self
    }

    /// Finds the fastest plans within limits.
    pub fn fastest(&self, options: &SearchOptions, limits: SearchLimits, control: &Control) -> Ranking {
        let SearchLimits { hbm_budget, ceiling, ties } = limits;
        let wanted = SearchTarget {
            ties,
            hbm_budget,
            ceiling: ceiling.get(),
            ..SearchTarget::new(self.costs, options, Goal::Fastest)
        };
        search_from(self.costs, options, wanted, &self.seeds, &self.parts, control)
    }

    /// Whether any plan of a space can fit into `hbm_budget`, by a lower bound: the model states shared out over all GPUs, and the
    /// context of each.
    pub fn may_fit(&self, options: &SearchOptions, hbm_budget: Bytes) -> bool {
        let on_host = Space::new(self.costs, &options.restrictions).most_optimizer_on_host();
        least_states(self.costs.problem, on_host) + self.costs.least_context() <= hbm_budget
    }

    /// The ranking; if it is known that no plan runs, with the one that comes nearest.
    pub fn or_nearest(&self, ranking: Ranking, options: &SearchOptions, control: &Control) -> Ranking {
        if !ranking.evaluations.is_empty() || ranking.certificate.proof != SearchProof::Optimal {
            return ranking;
        }
        Ranking { nearest: nearest(self.costs, options, &self.parts, control), ..ranking }
    }
}

fn price_of(evaluation: &Evaluation) -> Price {
    Price { time: evaluation.step.total(), memory: evaluation.footprint.peak() }
}

/// Removes plans that another dominates by its final price. The search sums a price in another order, so that plans which take
/// equally long may differ in rounding there.
fn leave_out_dominated(evaluations: &mut Vec<Evaluation>) {
    let gpus = |evaluation: &Evaluation| evaluation.plan.layout.world_size();
    let mut front = ParetoFront::default();
    for evaluation in &*evaluations {
        front.add((), price_of(evaluation), gpus(evaluation), |(), ()| false);
    }
    evaluations.retain(|evaluation| !front.dominates(price_of(evaluation), gpus(evaluation)));
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
    control: &Control,
) -> Ranking {
    let space = Space::new(costs, &options.restrictions);
    let mut known = Incumbents::new(wanted);
    for plan in seeds {
        let runs = if space.allows_idle() { check_with_idle(costs, plan) } else { check(costs, plan) };
        if runs.is_empty() && space.allows(plan) {
            let price = price_of(&costs.evaluate_simulated(plan));
            if price.memory <= wanted.hbm_budget {
                known.offer(plan.clone(), price, SpacePosition::LAST);
            }
        }
    }
    let (found, proof) = run(costs, &space, known, parts, control);
    let SearchState { best, counts, paths: _ } = found;
    let size = space.size();
    let mut evaluations = best.into_plans().par_iter().map(|plan| costs.evaluate_simulated(plan)).collect();
    let mut proof = proof;
    if let Goal::Pareto { tolerance } = wanted.goal {
        leave_out_dominated(&mut evaluations);
        if proof == SearchProof::Optimal && tolerance > 0.0 && !evaluations.is_empty() {
            proof = SearchProof::Covered { tolerance };
        }
    }
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

/// State of a search when all shapes are explored or excluded, or when `control` has stopped it, with its proof.
pub(super) fn run(
    costs: &Costs,
    space: &Space,
    known: Incumbents,
    parts: &CostCache,
    control: &Control,
) -> (SearchState, SearchProof) {
    let shapes = Shapes::new(costs, space, parts);
    let tables = Tables::new(costs, space, parts);
    let pipelines = Pipelines::new(costs, space, &tables, known.wanted.hbm_budget);
    let mut frontier = Frontier::new(&pipelines, &shapes, known.wanted.goal);
    let mut found = SearchState::new(known);
    let mut done = 0;
    let all = shapes.len() as u64;
    let explore = |batch: &[Ready], known: &SearchState, stop: &Stop| -> Vec<SearchState> {
        let explored = batch.par_iter().map(|next| {
            let explorer = Explorer { costs, space, tables: &tables, pipelines, rank: next.rank, known, stop };
            explorer.explore(&shapes.at(next.index), next)
        });
        explored.collect()
    };
    frontier.bound_pipelines(&pipelines, &shapes, &mut found);
    let wanted = found.best.wanted;
    if wanted.most() > 1 && wanted.goal == Goal::Fastest && !found.best.has_cutoff() {
        let one = SearchState::new(Incumbents::new(wanted.of_one()));
        let leaders = explore(&frontier.leaders(LEADERS), &one, &Stop::new(0, all, control));
        found = leaders.into_iter().fold(found, SearchState::led_by);
    }
    loop {
        frontier.bound_pipelines(&pipelines, &shapes, &mut found);
        let batch = frontier.next(batch_size(done), &found.best);
        if batch.is_empty() && frontier.has_more(&found.best) {
            continue;
        }
        if batch.is_empty() {
            found.counts.flow += frontier.plans_left();
            return (found, SearchProof::Optimal);
        }
        let stop = Stop::new(done as u64, all, control);
        let explored = explore(&batch, &found, &stop);
        found = explored.into_iter().fold(found, SearchState::merge);
        done += batch.len();
        let (stopped, others) = (stop.is_set(), frontier.bound());
        let bounds = batch.iter().filter(|_| stopped).map(|shape| shape.bound).chain(others);
        let least = |a: Price, b: Price| Price { time: a.time.min(b.time), memory: a.memory.min(b.memory) };
        let left = bounds.reduce(least).filter(|_| stopped || control(done as u64, all).is_break());
        if let Some(bound) = left {
            let proof = if found.best.is_hopeless_for_all(bound) {
                SearchProof::Optimal
            } else {
                SearchProof::Stopped { bound: bound.time }
            };
            return (found, proof);
        }
    }
}
