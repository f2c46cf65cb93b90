//! Recommendation given the user's own measured runs.
//!
//! The discrepancy between measured and predicted step times of one model on one kind of GPU is a normal law that is shared
//! between plans ([`crate::discrepancy`]); runs condition it. Plans are ranked by the median of what is left.

use super::{Advice, RIVALS, choose};
use crate::discrepancy::{Belief, BeliefPoint, NINETY, Outlook, Traits, Tried, built_in};
use crate::search::TIE;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Plans that are conditioned before the best of them are named: runs may bring forward what the model ranks low.
pub const CONDITIONED: usize = 2 * RIVALS.most;

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
    /// Interval that holds it with 90 %.
    pub interval: (Seconds, Seconds),
}

/// Text of the plan with two replicas, by which it is one plan on any number of GPUs: settings without effect are not in it.
fn of_two_replicas(plan: &Plan) -> String {
    Plan { layout: Layout { dp: 2, ..plan.layout }, shard_group: None, ..plan.clone() }.to_string()
}

/// Joint law of the logarithmic step times of plans, and behind them of the runs, given those.
fn conditioned(problem: &Problem, plans: &[Evaluation], runs: &[MeasuredRun]) -> Belief {
    let all = plans.iter().map(|plan| (problem, plan)).chain(runs.iter().map(|run| (&run.problem, &run.evaluation)));
    let mut known: Vec<String> = Vec::new();
    let points: Vec<BeliefPoint> = all
        .map(|(problem, evaluation)| {
            let own = of_two_replicas(&evaluation.plan);
            let plan = known.iter().position(|other| *other == own).unwrap_or_else(|| {
                known.push(own);
                known.len() - 1
            });
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

impl Advice {
    /// The advice given measured runs: the best `top` of its plans by their median step time, the plainest within run-to-run noise
    /// of the first recommended, each with its probability of being the fastest of those named.
    #[must_use]
    pub fn given(mut self, problem: &Problem, runs: &[MeasuredRun], top: usize) -> Self {
        let plans = &self.ranking.evaluations;
        if runs.is_empty() || plans.is_empty() {
            return self;
        }
        let belief = conditioned(problem, plans, runs);
        let mut order: Vec<usize> = (0..plans.len()).collect();
        order.sort_by(|&a, &b| belief.mean[a].total_cmp(&belief.mean[b]));
        let median = |at: usize| Seconds::new(libm::exp(belief.mean[at]));
        let ranked: Vec<(&Evaluation, Seconds)> = order.iter().map(|&at| (&plans[at], median(at))).collect();
        let chosen = choose(problem, &ranked, ranked[0].1 * (1.0 + TIE), self.given_up);
        let mut named: Vec<usize> = order.iter().copied().take(top).collect();
        if chosen >= top {
            *named.last_mut().expect("`top` is at least one") = order[chosen];
        }
        self.recommended = chosen.min(top - 1);
        let of_named = belief.of(&named);
        let outlook = Outlook::new(&of_named, &vec![Tried::Untried; named.len()], &vec![1.0; named.len()], TIE);
        self.chances = outlook.prospects.iter().map(|prospect| prospect.best).collect();
        self.given_runs = named
            .iter()
            .map(|&at| {
                let width = libm::exp(NINETY * belief.deviation(at));
                StepGivenRuns { median: median(at), interval: (median(at) / width, median(at) * width) }
            })
            .collect();
        self.ranking.evaluations = named.iter().map(|&at| plans[at].clone()).collect();
        let recommended = &self.ranking.evaluations[self.recommended].plan;
        self.fastest = self.fastest.filter(|declined| declined.evaluation.plan != *recommended);
        self
    }
}
