//! Search done again after a device was measured: the plan to launch before and after, and what the measurement changed.

use std::ops::ControlFlow;

use crate::report::recalibrated::{ChangedTerm, Recalibrated};
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

/// Plan to launch with the catalogue's figures and with the calibrated ones, and the terms of the first that change;
/// `None` where no plan runs.
pub fn recalibrated(problem: &Problem, calibrated: &Problem) -> Option<Recalibrated> {
    let (before, after) = (choice(problem)?, choice(calibrated)?);
    let calibrated_step = Costs::new(calibrated).evaluate_simulated(&before.plan);
    let both = before.step.terms().into_iter().zip(calibrated_step.step.terms());
    let terms = both.map(|((name, before_s), (_, after_s))| ChangedTerm { name: name.to_string(), before_s, after_s });
    Some(Recalibrated {
        before: before.plan.to_string(),
        before_s: before.step.total(),
        recalibrated_s: calibrated_step.step.total(),
        terms: terms.filter(|term| term.before_s.get() > 0.0 || term.after_s.get() > 0.0).collect(),
        after: after.plan.to_string(),
        after_s: after.step.total(),
    })
}
