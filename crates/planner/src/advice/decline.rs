//! Reasons why the fastest plan by the model is not recommended.

use super::ladder::Prudence;
use super::preference::{Unlike, in_percent};
use super::published::PublishedPlan;
use crate::confidence::Confidence;
use crate::space::Unproven;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Share of its step time by which the model's fastest plan must be faster to be named.
const LEAST_FASTER: f64 = 0.001;

/// Reason why the fastest plan by the model is not recommended.
#[derive(Clone, Debug)]
pub enum Reason {
    /// Its probability of running out of memory is this large.
    Risk(f64),
    /// It uses mechanisms that no published run has shown.
    Unproven(Vec<&'static Unproven>),
    /// A plan with the degrees of a published run is within run-to-run noise.
    Published,
    /// A plainer plan is within run-to-run noise; with the settings that the faster one needs beside or instead of its own.
    Plainer(Unlike),
}

/// The fastest plan by the model, where another is recommended.
#[derive(Clone, Debug)]
pub struct Declined {
    /// The plan with its price.
    pub evaluation: Evaluation,
    /// Reasons, at least one.
    pub reasons: Vec<Reason>,
}

/// Risk and mechanisms that speak against launching a plan.
pub(super) struct Doubts {
    /// Probability of running out of memory.
    pub risk: f64,
    /// Mechanisms that no published run has shown.
    pub unproven: Vec<&'static Unproven>,
}

impl Doubts {
    pub fn on(problem: &Problem, evaluation: &Evaluation) -> Self {
        Self {
            risk: Confidence::new(problem, evaluation).oom_probability,
            unproven: Unproven::in_plan(problem, &evaluation.plan),
        }
    }
}

/// Whether the model's fastest plan is faster than the recommended one by enough to be named.
pub(super) fn is_named(fastest: Seconds, recommended: Seconds) -> bool {
    recommended / fastest >= 1.0 + LEAST_FASTER
}

/// Reasons against a faster plan, at least one; `otherwise` is that of plans with the same doubts.
pub(super) fn reasons(
    fastest: Doubts,
    recommended: &Doubts,
    prudence: Prudence,
    otherwise: impl FnOnce() -> Reason,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if fastest.risk > prudence.risk && in_percent(fastest.risk) > in_percent(recommended.risk) {
        reasons.push(Reason::Risk(fastest.risk));
    }
    if !prudence.exotic && !fastest.unproven.is_empty() && recommended.unproven.is_empty() {
        reasons.push(Reason::Unproven(fastest.unproven));
    }
    if reasons.is_empty() {
        reasons.push(otherwise());
    }
    reasons
}

/// The model's fastest plan with the reasons against it; none if the recommended one is as fast.
pub(super) fn decline(
    problem: &Problem,
    published: Option<&PublishedPlan>,
    fastest: &Evaluation,
    recommended: &Evaluation,
    prudence: Prudence,
) -> Option<Declined> {
    if !is_named(fastest.step.total(), recommended.step.total()) {
        return None;
    }
    let otherwise = || {
        let shown = published.is_some_and(|published| published.has_degrees_of(&recommended.plan));
        let plainer = || Reason::Plainer(Unlike::between(problem, &fastest.plan, &recommended.plan));
        if shown { Reason::Published } else { plainer() }
    };
    let [of_fastest, of_recommended] = [fastest, recommended].map(|plan| Doubts::on(problem, plan));
    let reasons = reasons(of_fastest, &of_recommended, prudence, otherwise);
    Some(Declined { evaluation: fastest.clone(), reasons })
}
