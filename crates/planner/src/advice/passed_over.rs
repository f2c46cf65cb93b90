//! The faster row above the recommended one, and why it is not recommended.

use super::Advice;
use super::preference::{PassedOver, Preference, PreferredFor, Unlike, in_percent};
use crate::confidence::Confidence;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;

impl Advice {
    /// The first listed plan with a shorter step, no more memory and no larger risk than the recommended one, or else the first with
    /// a shorter step; none where no listed plan is faster.
    pub fn passed_over(&self, problem: &Problem) -> Option<PassedOver> {
        let recommended = self.plan()?;
        let figures = |evaluation: &Evaluation| {
            let risk = in_percent(Confidence::new(problem, evaluation).oom_probability);
            (evaluation.footprint.peak(), risk)
        };
        let (peak, risk) = figures(recommended);
        let faster = &self.ranking.evaluations[..self.recommended];
        let is_better = |evaluation: &Evaluation| figures(evaluation).0 <= peak && figures(evaluation).1 <= risk;
        let at = faster.iter().position(is_better).or_else(|| (!faster.is_empty()).then_some(0))?;
        let preference = |evaluation: &Evaluation| {
            Preference::new(problem, evaluation, self.given_up.is_some(), self.published.as_ref())
        };
        let (own, other) = (preference(recommended), preference(&faster[at]));
        let preferred_for = if own.risk < other.risk {
            PreferredFor::Risk
        } else if own.is_new != other.is_new {
            PreferredFor::Published
        } else if own.leaves_domain != other.leaves_domain {
            PreferredFor::Domain
        } else {
            PreferredFor::Plainness(Unlike::between(problem, &faster[at].plan, &recommended.plan))
        };
        Some(PassedOver { at, preferred_for })
    }
}
