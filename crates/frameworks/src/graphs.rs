//! CUDA graphs that a stack's recipes have and a question leaves open: kept where plans gain by them.

use std::cmp::Ordering;

use crate::megatron::graphs::{EXCLUDED, excluding};
use crate::table::launchable;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::advice::{GivenUp, Prudence, prudent};
use meshwright_planner::confidence::ceiling;
use meshwright_planner::search::{Control, Ranking, SearchOptions};
use meshwright_planner::space::{Restrictions, check};

/// The problem without CUDA graphs, where its stack replays layers from them.
pub fn without_graphs(problem: &Problem) -> Option<Problem> {
    problem.stack().cuda_graphs.then(|| problem.changed(|_, _, stack| stack.cuda_graphs = false).ok()).flatten()
}

/// Leaves out the plans of a problem whose layers no graph holds: they are those of the problem without graphs.
pub fn keep_captured(restrictions: &mut Restrictions, problem: &Problem) {
    if problem.stack().graphed_experts {
        return;
    }
    let first_layers = (1..=problem.model().layers()).map(|layers| format!("recompute=first-{layers}"));
    for item in EXCLUDED.map(str::to_owned).into_iter().chain(first_layers) {
        restrictions.forbid(&item).expect("a value of a plan");
    }
    // Shares that the user fixes are legal alone or not at all.
    let _ = restrictions.fix("offload-activations=0");
}

/// Why a plan runs without CUDA graphs.
#[derive(Clone, Debug, PartialEq)]
pub enum Ungraphed {
    /// A setting of the plan, as text, that graphs of modules exclude.
    Excluded(String),
    /// The pools of graphs (`stack.memory.graph_pools`) do not fit beside the plan within the accepted risk.
    NoRoom,
    /// The plan is illegal for other reasons than memory, with graphs or without.
    Illegal,
}

/// Why a plan runs without CUDA graphs on a problem that has them, at an accepted probability of running out of memory; nothing
/// where they hold its layers and their pools fit beside it. Such a plan is no slower with graphs than without.
pub fn ungraphed(problem: &Problem, plan: &Plan, risk: f64) -> Option<Ungraphed> {
    if let Some(setting) = excluding(plan).filter(|_| !problem.stack().graphed_experts) {
        return Some(Ungraphed::Excluded(setting));
    }
    let limited = problem.clone().under_ceiling(ceiling(problem, risk));
    let rejections = check(&Costs::new(&limited), plan);
    let is_illegal = rejections.iter().any(|why| !why.is_of_memory());
    (!rejections.is_empty()).then_some(if is_illegal { Ungraphed::Illegal } else { Ungraphed::NoRoom })
}

/// Best plan of an answer, with the limit that had to be given up for it.
pub type BestPlan<'a> = (Option<GivenUp>, &'a Evaluation);

/// Whether the best plan `with` the CUDA graphs of a problem is to be launched, rather than the best `without` them. A plan is kept
/// as [`ungraphed`] has it, so that whoever prices the plan alone prices it as the answer does.
pub fn gain(problem: &Problem, with: Option<BestPlan>, without: Option<BestPlan>, risk: f64) -> bool {
    let runs = |best: &BestPlan| ungraphed(problem, &best.1.plan, risk).is_none();
    let Some((given_up, graphed)) = with.filter(runs) else { return false };
    without.is_none_or(|best| {
        let (other_given_up, other) = best;
        let [step, other] = [graphed, other].map(|evaluation| evaluation.step.total().get());
        runs(&best) || given_up.cmp(&other_given_up).then(step.total_cmp(&other)) == Ordering::Less
    })
}

/// The fastest launchable plan of a problem, with the problem: where its CUDA graphs are open, with or without them.
pub fn fastest_launchable(
    problem: Problem,
    are_open: bool,
    prudence: Prudence,
    control: &Control,
) -> (Problem, Ranking) {
    let answer = |problem: &Problem, is_captured: bool| {
        let mut restrictions = launchable(problem);
        if is_captured {
            keep_captured(&mut restrictions, problem);
        }
        prudent(problem, &SearchOptions { top: 1, restrictions }, prudence, control)
    };
    let Some(plain) = without_graphs(&problem).filter(|_| are_open) else {
        let (ranking, _) = answer(&problem, false);
        return (problem, ranking);
    };
    let [with, without] = [answer(&problem, true), answer(&plain, false)];
    if gain(&problem, best_of(&with), best_of(&without), prudence.risk) {
        (problem, with.0)
    } else {
        (plain, without.0)
    }
}

fn best_of((ranking, given_up): &(Ranking, Option<GivenUp>)) -> Option<BestPlan<'_>> {
    ranking.evaluations.first().map(|best| (*given_up, best))
}
