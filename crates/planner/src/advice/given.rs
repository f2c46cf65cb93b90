//! Recommendation given the user's own measured runs: plans are ranked by the median of their step times.

use super::Advice;
use super::measured::{MeasuredRun, StepGivenRuns, conditioned};
use super::preference::{Preference, choose};
use crate::discrepancy::{Outlook, Tried};
use crate::search::TIE;
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

impl Advice {
    /// The advice given measured runs: the best `top` of its plans by their median step time, the plainest within run-to-run noise
    /// of the first recommended, each with its probability of being the fastest of those named.
    #[must_use]
    pub fn given_runs(mut self, problem: &Problem, runs: &[MeasuredRun], top: usize) -> Self {
        let plans = &self.ranking.evaluations;
        if runs.is_empty() || plans.is_empty() {
            return self;
        }
        let belief = conditioned(problem, plans, runs);
        let mut order: Vec<usize> = (0..plans.len()).collect();
        let medians: Vec<f64> = order.iter().map(|&at| belief.median(at)).collect();
        sort_by_numbers(&mut order, |&at| [medians[at]]);
        let median = |at: usize| Seconds::new(libm::exp(medians[at]));
        let gave_up = self.given_up.is_some();
        let preference = |at: usize| Preference::new(problem, &plans[at], gave_up, self.published.as_ref());
        let ranked: Vec<(Preference, Seconds)> = order.iter().map(|&at| (preference(at), median(at))).collect();
        let chosen = choose(&ranked, ranked[0].1 * (1.0 + TIE), gave_up);
        let mut named: Vec<usize> = order.iter().copied().take(top).collect();
        if chosen >= top {
            *named.last_mut().expect("`top` is at least one") = order[chosen];
        }
        self.recommended = chosen.min(top - 1);
        let of_named = belief.marginal(&named);
        let outlook = Outlook::new(&of_named, &vec![Tried::Untried; named.len()], &vec![1.0; named.len()], TIE);
        self.chances = outlook.prospects.iter().map(|prospect| prospect.best).collect();
        self.given_runs = named
            .iter()
            .map(|&at| {
                let interval = belief.interval(at).map(|log| Seconds::new(libm::exp(log)));
                StepGivenRuns { median: median(at), interval }
            })
            .collect();
        self.ranking.evaluations = named.iter().map(|&at| plans[at].clone()).collect();
        let recommended = &self.ranking.evaluations[self.recommended].plan;
        self.fastest = self.fastest.filter(|declined| declined.evaluation.plan != *recommended);
        self
    }
}
