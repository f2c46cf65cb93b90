//! The user's own measured runs, and the law of step times given them.
//!
//! The discrepancy between measured and predicted step times of one model on one kind of GPU is a normal law that is shared
//! between plans ([`crate::discrepancy`]); runs condition it.

use crate::confidence::Interval;
use crate::discrepancy::{Belief, BeliefPoint, Traits, built_in};
use meshwright_engine::cost::Evaluation;
use meshwright_engine::distinct::distinct;
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Measured run of the model on the kind of GPU that is planned for.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// Its problem: perhaps on another number of GPUs, with another batch.
    pub problem: Problem,
    /// Its plan with the predicted price.
    pub evaluation: Evaluation,
    /// Measured step time.
    pub step: Seconds,
}

/// Step time of a plan given measured runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepGivenRuns {
    /// Median.
    pub median: Seconds,
    /// Interval around it.
    pub interval: Interval<Seconds>,
}

/// Text of the plan with two replicas, by which it is one plan on any number of GPUs: settings without effect are not in it.
fn of_two_replicas(plan: &Plan) -> String {
    Plan { layout: Layout { dp: 2, ..plan.layout }, shard_group: None, ..plan.clone() }.to_string()
}

/// Joint law of the logarithmic step times of plans, and behind them of the runs, given those.
pub(super) fn conditioned(problem: &Problem, plans: &[Evaluation], runs: &[MeasuredRun]) -> Belief {
    let all = || plans.iter().map(|plan| (problem, plan)).chain(runs.iter().map(|run| (&run.problem, &run.evaluation)));
    let (_, plan_of) = distinct(all().map(|(_, evaluation)| of_two_replicas(&evaluation.plan)));
    let points: Vec<BeliefPoint> = all()
        .zip(plan_of)
        .map(|((problem, evaluation), plan)| {
            let predicted = libm::log(evaluation.step.total().get());
            BeliefPoint { traits: Traits::new(problem, evaluation), predicted, plan }
        })
        .collect();
    let mut belief = Belief::prior(built_in(), &problem.stack().name, &points);
    for (at, run) in runs.iter().enumerate() {
        belief.observe(plans.len() + at, libm::log(run.step.get()), 0.0);
    }
    belief
}
