//! The best plans of the whole space, with a proof.
//!
//! ```text
//! shapes in the order of their layer bound  →  pipelines, cut by their flow bound  →  shardings, cut by their bound
//! what is left is played on its real stages; what is played ranks
//! ```
//!
//! Every bound is no longer than the played time (`tests/staged.rs`), and a shape, a pipeline or a sharding is only left
//! out when its bound is over what it would have to beat. So the answer is that of pricing every plan, and the [`Certificate`]
//! says how many plans each reason left out; they sum to the size of the space, which is known before.

mod certificate;
mod explore;
mod incumbents;
mod neighbours;
mod tables;
mod whatif;

use std::ops::ControlFlow;

use rayon::prelude::*;

use crate::cost::incremental::{Price, layer_bound};
use crate::cost::{Costs, Evaluation};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::space::{Restrictions, Space, check, check_with_idle};
use crate::units::Seconds;

pub use certificate::{Certificate, Cut, Proof, RuleCount};
pub use incumbents::Objective;
pub use neighbours::{Change, TIE, nearest_feasible, plainer, sensitivity};

use explore::{Explorer, Found};
pub use whatif::WhatIfs;

use incumbents::{Incumbents, Wanted};
use tables::{Parts, Shapes, Tables};

/// What to search for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many plans to return, each of another layout.
    pub top: usize,
    /// What plans must and must not have.
    pub restrictions: Restrictions,
}

/// By what plans are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// The best by one measure, each of another layout.
    #[default]
    Fastest,
    /// The best by another measure.
    Best(Objective),
    /// Every plan that no other beats in step time, memory and GPUs at once.
    Pareto,
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
    /// The best plan of each layout, best first; times are those of the played schedule.
    pub evaluations: Vec<Evaluation>,
    /// Plans of the space.
    pub considered: u64,
    /// Of those, priced.
    pub priced: u64,
    /// Of those, never priced: a lower bound says that they are no answer.
    pub cut_by_bound: u64,
    /// Plans that cannot run, by rule.
    pub rejections: Vec<RuleCount>,
    /// The plan that failed on memory by least, where none fits.
    pub nearest: Option<NearMiss>,
    /// Where every plan of the space went, and what is proved.
    pub certificate: Certificate,
}

/// Shapes explored at once. Fixed, so that the answer does not depend on the number of threads: few at first, which find good
/// plans to beat, then more.
fn batch_size(done: usize) -> usize {
    if done < 32 { 8 } else { 64 }
}

/// Finds the fastest plans; `progress(done, all)` is told of shapes as they end.
///
/// The same inputs give the same answer on any number of threads.
pub fn search(problem: &Problem, options: &Options, progress: &(dyn Fn(u64, u64) + Sync)) -> Ranking {
    search_for(problem, options, Goal::Fastest, &|done, all| {
        progress(done, all);
        ControlFlow::Continue(())
    })
}

/// Finds the best plans by any goal; when `control(done, all)` breaks, what was found so far is the answer, and its
/// certificate says how far from the best it can be.
pub fn search_for(
    problem: &Problem,
    options: &Options,
    goal: Goal,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Ranking {
    let costs = Costs::new(problem);
    let ranking = search_with(&costs, options, goal, control);
    if !ranking.evaluations.is_empty() || ranking.certificate.proof != Proof::Optimal {
        return ranking;
    }
    Ranking { nearest: nearest(&costs, options, control), ..ranking }
}

/// The plan that needs the least memory, and that is too much.
fn nearest(
    costs: &Costs,
    options: &Options,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Option<NearMiss> {
    let one = Options { top: 1, restrictions: options.restrictions.clone() };
    let space = Space::new(costs, &one.restrictions);
    let wanted = Wanted { goal: Goal::Best(Objective::Memory), top: 1, budget: f64::INFINITY, ceiling: f64::INFINITY };
    let (found, _) = run(costs, &space, Incumbents::new(wanted), &Parts::default(), control);
    let plan = found.best.into_plans().into_iter().next()?;
    let reason = crate::space::too_large(costs, &plan)?.to_string();
    Some(NearMiss { plan, reason })
}

/// Searches a problem that is prepared already.
pub fn search_with(
    costs: &Costs,
    options: &Options,
    goal: Goal,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Ranking {
    search_from(costs, options, (goal, f64::INFINITY), &[], &Parts::default(), control)
}

/// The same from plans that may be good, and with parts that may be priced already. Neither changes what is found: a plan to
/// start from counts only where it lies in the space and runs. Plans whose measure is over `ceiling` are no answer.
fn search_from(
    costs: &Costs,
    options: &Options,
    (goal, ceiling): (Goal, f64),
    seeds: &[Plan],
    parts: &Parts,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Ranking {
    let space = Space::new(costs, &options.restrictions);
    let budget = costs.problem.hbm_budget().get();
    let mut known = Incumbents::new(Wanted { goal, top: options.top, budget, ceiling });
    for plan in seeds {
        let runs = if space.allows_idle() { check_with_idle(costs, plan) } else { check(costs, plan) };
        if runs.is_empty() && space.allows(plan) {
            let evaluation = costs.evaluate_played(plan);
            known.offer(*plan, Price { time: evaluation.step.total(), memory: evaluation.footprint.device() });
        }
    }
    let (found, proof) = run(costs, &space, known, parts, control);
    let Found { best, counts } = found;
    let size = space.size();
    let evaluations = best.into_plans().iter().map(|plan| costs.evaluate_played(plan)).collect();
    let certificate = Certificate::new(size, &counts, proof);
    Ranking {
        evaluations,
        considered: size,
        priced: certificate.priced,
        cut_by_bound: certificate.cut_by_bound(),
        rejections: counts.rejections(),
        nearest: None,
        certificate,
    }
}

fn run(
    costs: &Costs,
    space: &Space,
    known: Incumbents,
    parts: &Parts,
    control: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> (Found, Proof) {
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
    let mut found = Found::new(known);
    let mut done = 0;
    while done < bounded.len() {
        let batch = &bounded[done..(done + batch_size(done)).min(bounded.len())];
        if found.best.is_hopeless_for_all(batch[0].0) {
            return (found, Proof::Optimal);
        }
        let explored: Vec<Found> = batch
            .par_iter()
            .map(|&(_, index)| {
                let (plan, mixing, feeding) = shapes.at(index);
                Explorer { costs, space, tables: &tables, known: &found.best }.explore(&plan, mixing, feeding)
            })
            .collect();
        found = explored.into_iter().fold(found, Found::merge);
        done += batch.len();
        if control(done as u64, bounded.len() as u64).is_break() && done < bounded.len() {
            let bound = bounded[done].0;
            let proof = if found.best.is_hopeless_for_all(bound) { Proof::Optimal } else { Proof::Stopped { bound } };
            return (found, proof);
        }
    }
    (found, Proof::Optimal)
}
