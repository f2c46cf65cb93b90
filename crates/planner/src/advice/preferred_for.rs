//! Why the fastest listed plan is not the recommended one.

use super::Advice;
use super::preference::{Preference, PreferredFor, Unlike};
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;

impl PreferredFor {
    /// Advantage of one plan over another; the last argument is the settings that the other needs.
    pub(super) fn between(own: &Preference, other: &Preference, unlike: impl FnOnce() -> Unlike) -> Self {
        if own.risk < other.risk {
            Self::Risk
        } else if own.is_new != other.is_new {
            Self::Published
        } else if own.leaves_domain != other.leaves_domain {
            Self::Domain
        } else {
            Self::Plainness(unlike())
        }
    }
}

impl Advice {
    /// Advantage for which the recommended plan is preferred to the fastest listed one; none where it is that one.
    pub fn preferred_for(&self, problem: &Problem) -> Option<PreferredFor> {
        let recommended = self.plan()?;
        let fastest = self.ranking.evaluations.first().filter(|_| self.recommended > 0)?;
        let preference = |evaluation: &Evaluation| {
            Preference::new(problem, evaluation, self.given_up.is_some(), self.published.as_ref())
        };
        let unlike = || Unlike::between(problem, &fastest.plan, &recommended.plan);
        Some(PreferredFor::between(&preference(recommended), &preference(fastest), unlike))
    }
}
