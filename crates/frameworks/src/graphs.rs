//! CUDA graphs that a stack's recipes have: kept where the fastest plan gains by them.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::table::launchable;
use meshwright_engine::plan::Recompute;
use meshwright_engine::problem::Problem;
use meshwright_planner::advice::{Prudence, prudent_fastest};
use meshwright_planner::search::SearchOptions;

/// A problem whose stack replays layers from CUDA graphs, or the same without them where their fastest launchable plan is no faster: the
/// pools of graphs take memory (`stack.memory.graph_pools`), for which plans recompute, shard or run nothing at all. Limits of prudence
/// that no plan keeps weigh more than the step time, and graphs of modules replay nothing where whole layers are recomputed.
#[must_use]
pub fn keep_gainful_graphs(problem: Problem) -> Problem {
    let Ok(without) = problem.changed(|_, _, stack| stack.cuda_graphs = false) else { return problem };
    let fastest = |problem: &Problem| {
        let options = SearchOptions { top: 1, restrictions: launchable(problem) };
        prudent_fastest(problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()))
    };
    let gains = match (fastest(&problem), fastest(&without)) {
        (Some((limit, graphed)), Some((other_limit, other))) => {
            let replays = problem.stack().graphed_experts || graphed.plan.recompute != Recompute::Full;
            let [step, other] = [graphed, other].map(|evaluation| evaluation.step.total().get());
            replays && limit.cmp(&other_limit).then(step.total_cmp(&other)) == Ordering::Less
        }
        (None, Some(_)) => false,
        (_, None) => true,
    };
    if gains { problem } else { without }
}
