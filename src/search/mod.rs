//! Prices every legal plan and ranks what fits.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::cost::{Costs, Evaluation};
use crate::plan::{Layout, Plan};
use crate::problem::Problem;
use crate::space::{self, Rejection, Restrictions, Space};
use crate::units::Seconds;

/// What to search for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many plans to return, each of another layout.
    pub top: usize,
    /// What plans must and must not have.
    pub restrictions: Restrictions,
}

/// Plans rejected by one rule.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RuleCount {
    /// Name of the rule.
    pub rule: &'static str,
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub example: String,
}

/// The plan that came nearest to fitting.
#[derive(Clone, Debug, PartialEq)]
pub struct NearMiss {
    /// The plan.
    pub plan: Plan,
    /// By what it failed.
    pub reason: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The fastest plan of each layout, fastest first.
    pub evaluations: Vec<Evaluation>,
    /// Plans of the space.
    pub considered: u64,
    /// Of those, legal and small enough, so priced.
    pub priced: u64,
    /// Of those, never looked at: a lower bound on their step time is over the last plan returned.
    pub cut_by_bound: u64,
    /// The others, by rule.
    pub rejections: Vec<RuleCount>,
    /// The plan that failed on memory by least.
    pub nearest: Option<NearMiss>,
}

/// What one shape gave.
#[derive(Default)]
struct Found {
    best: BTreeMap<Layout, Evaluation>,
    considered: u64,
    priced: u64,
    rejected: BTreeMap<&'static str, (u64, String)>,
    nearest: Option<(f64, Plan, String)>,
}

impl Found {
    fn reject(&mut self, rejection: &Rejection, plans: u64) {
        self.considered += plans;
        self.rejected.entry(rejection.rule()).or_insert_with(|| (0, rejection.to_string())).0 += plans;
    }

    fn keep(&mut self, evaluation: Evaluation) {
        match self.best.get(&evaluation.plan.layout) {
            Some(known) if !better(&evaluation, known) => {}
            Some(_) | None => {
                self.best.insert(evaluation.plan.layout, evaluation);
            }
        }
    }

    fn miss(&mut self, excess: f64, plan: Plan, reason: impl FnOnce() -> String) {
        if self.nearest.as_ref().is_none_or(|(least, ..)| excess < *least) {
            self.nearest = Some((excess, plan, reason()));
        }
    }

    /// Step time of the last plan asked for; infinite while there are fewer.
    fn last_of(&self, top: usize) -> f64 {
        let mut times: Vec<f64> = self.best.values().map(|e| e.step.total().get()).collect();
        times.sort_by(f64::total_cmp);
        times.get(top.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }

    fn into_ranking(self, top: usize, cut_by_bound: u64) -> Ranking {
        let Self { best, considered, priced, rejected, nearest } = self;
        let mut evaluations: Vec<Evaluation> = best.into_values().collect();
        evaluations.sort_by(|a, b| {
            let by = |x: f64, y: f64| x.total_cmp(&y);
            by(a.step.total().get(), b.step.total().get())
                .then(by(a.footprint.device().get(), b.footprint.device().get()))
                .then(a.plan.layout.cmp(&b.plan.layout))
        });
        evaluations.truncate(top);
        Ranking {
            evaluations,
            considered: considered + cut_by_bound,
            priced,
            cut_by_bound,
            rejections: rejected
                .into_iter()
                .map(|(rule, (count, example))| RuleCount { rule, count, example })
                .collect(),
            nearest: nearest.map(|(_, plan, reason)| NearMiss { plan, reason }),
        }
    }

    fn merge(mut self, other: Self) -> Self {
        for evaluation in other.best.into_values() {
            self.keep(evaluation);
        }
        self.considered += other.considered;
        self.priced += other.priced;
        for (rule, (count, example)) in other.rejected {
            self.rejected.entry(rule).or_insert((0, example)).0 += count;
        }
        if let Some((excess, plan, reason)) = other.nearest {
            self.miss(excess, plan, || reason);
        }
        self
    }
}

/// Whether a plan is to be preferred: faster, then smaller; among equals the first found stays.
fn better(a: &Evaluation, b: &Evaluation) -> bool {
    let key = |e: &Evaluation| (e.step.total().get(), e.footprint.device().get());
    let ((time_a, memory_a), (time_b, memory_b)) = (key(a), key(b));
    time_a.total_cmp(&time_b).then(memory_a.total_cmp(&memory_b)).is_lt()
}

/// Shapes explored at once. Fixed, so that the answer does not depend on the number of threads.
const BATCH: usize = 64;

/// Finds the fastest plans; `progress(done, all)` is told of shapes as they end.
///
/// Shapes are explored in the order of a lower bound on their step time, and no more once the bound is over the last plan
/// asked for: what is cut cannot be among the answers. The same inputs give the same answer on any number of threads.
pub fn search(problem: &Problem, options: &Options, progress: &(dyn Fn(u64, u64) + Sync)) -> Ranking {
    let costs = Costs::new(problem);
    let space = Space::new(&costs, &options.restrictions);
    let shapes = space.shapes();
    let mut bounded: Vec<(Seconds, &Plan)> =
        shapes.par_iter().map(|shape| (costs.lower_bound(shape, &costs.shape(shape)), shape)).collect();
    bounded.sort_by(|(a, _), (b, _)| a.get().total_cmp(&b.get())); // stable: ties stay in the order of the space
    let mut found = Found::default();
    let mut done = 0;
    for batch in bounded.chunks(BATCH) {
        if batch[0].0.get() > found.last_of(options.top) {
            break;
        }
        let explored: Vec<Found> = batch.par_iter().map(|(_, shape)| explore(&costs, &space, shape)).collect();
        found = explored.into_iter().fold(found, Found::merge);
        done += batch.len();
        progress(done as u64, bounded.len() as u64);
    }
    let cut: u64 = bounded[done..].par_iter().map(|(_, shape)| space.size(shape)).sum();
    found.into_ranking(options.top, cut)
}

/// All plans of one shape; its layers are priced once, and only if a plan of it fits.
///
/// Rules are asked as soon as what they look at is fixed, and then count for all plans below.
fn explore(costs: &Costs, space: &Space, shape: &Plan) -> Found {
    let mut found = Found::default();
    let mut priced = None;
    for layout in space.layouts(shape) {
        let plan = Plan { layout, ..*shape };
        let (schedules, zero_stages) = (space.schedules(layout.pp), space.zero_stages(layout.pp));
        let orders = space::orders(layout.pp, layout.dp);
        let below = (zero_stages.len() * orders.len()) as u64;
        let mut reasons = Vec::new();
        space::legal::batch(costs.problem, &plan, &mut reasons);
        space::legal::experts(costs.problem, &plan, &mut reasons);
        if let Some(reason) = reasons.first() {
            found.reject(reason, below * schedules.len() as u64);
            continue;
        }
        for schedule in schedules {
            let plan = Plan { schedule, ..plan };
            space::legal::pipeline(costs.problem, &plan, &mut reasons);
            if let Some(reason) = reasons.first() {
                found.reject(reason, below);
                reasons.clear();
                continue;
            }
            for &zero in &zero_stages {
                let plan = Plan { zero, ..plan };
                if let Some(reason) = space::too_large(costs, &plan) {
                    found.reject(&reason, orders.len() as u64);
                    if let Rejection::OutOfMemory { needed, available, .. } = reason {
                        found.miss(needed / available, plan, || reason.to_string());
                    }
                    continue;
                }
                for &order in &orders {
                    let plan = Plan { order, ..plan };
                    if !space.allows(&plan) {
                        found.reject(&Rejection::Restricted(plan.to_string()), 1);
                        continue;
                    }
                    found.considered += 1;
                    found.priced += 1;
                    let shape_cost = priced.get_or_insert_with(|| costs.shape(&plan));
                    found.keep(costs.evaluate_shaped(&plan, shape_cost));
                }
            }
        }
    }
    found
}
