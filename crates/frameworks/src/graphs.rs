//! CUDA graphs that a stack's recipes have and a question leaves open: kept where plans gain by them.

use std::cmp::Ordering;

use crate::megatron::graphs::{EXCLUDED, are_captured};
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

/// Whether a plan runs with CUDA graphs: graphs of modules hold its layers, and their pools (`stack.memory.graph_pools`) fit beside
/// it within the accepted probability of running out of memory. Such a plan is no slower with graphs than without.
pub fn have_room(problem: &Problem, plan: &Plan, risk: f64) -> bool {
    let limited = problem.clone().under_ceiling(ceiling(problem, risk));
    (problem.stack().graphed_experts || are_captured(plan)) && check(&Costs::new(&limited), plan).is_empty()
}

/// Best plan of an answer, with the limit that had to be given up for it.
pub type BestPlan<'a> = (Option<GivenUp>, &'a Evaluation);

/// Whether the best plan `with` the CUDA graphs of a problem is to be launched, rather than the best `without` them. A plan is kept
/// as [`have_room`] has it, so that whoever prices the plan alone prices it as the answer does.
pub fn gain(problem: &Problem, with: Option<BestPlan>, without: Option<BestPlan>, risk: f64) -> bool {
    let runs = |best: &BestPlan| have_room(problem, &best.1.plan, risk);
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
