//! Search done again after a device was measured: the plan to launch before and after, and what the measurement changed.

use std::ops::ControlFlow;

use crate::report::again::{Again, ChangedTerm};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::problem::Problem;
use meshwright_frameworks::launchable;
use meshwright_planner::advice::{Prudence, advise};
use meshwright_planner::search::SearchOptions;

/// Plan to launch of a problem.
fn choice(problem: &Problem) -> Option<Evaluation> {
    let options = SearchOptions { top: 1, restrictions: launchable(problem) };
    let advice = advise(problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
    advice.plan().cloned()
}

/// Searches again with the calibrated figures; `None` where no plan runs.
pub fn again(problem: &Problem, calibrated: &Problem) -> Option<Again> {
    let (before, after) = (choice(problem)?, choice(calibrated)?);
    let recalibrated = Costs::new(calibrated).evaluate_simulated(&before.plan);
    let both = before.step.terms().into_iter().zip(recalibrated.step.terms());
    let terms = both.map(|((name, before_s), (_, after_s))| ChangedTerm { name: name.to_string(), before_s, after_s });
    Some(Again {
        before: before.plan.to_string(),
        before_s: before.step.total(),
        recalibrated_s: recalibrated.step.total(),
        terms: terms.filter(|term| term.before_s.get() > 0.0 || term.after_s.get() > 0.0).collect(),
        after: after.plan.to_string(),
        after_s: after.step.total(),
    })
}
