//! Choice of the plan to launch among those that errors cannot tell apart, and why a faster one is not it.

use super::domain::leaves_domain;
use super::plainness::unusual_settings;
use super::published::PublishedPlan;
use crate::confidence::Confidence;
use crate::search::TIE;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Comparison of plans within run-to-run noise, in the order of its weight; the lesser is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Preference {
    /// Probability of running out of memory in whole percent, where a limit of prudence was given up; else 0.
    pub risk: u32,
    /// Whether its degrees are none of the published run.
    pub is_new: bool,
    /// Whether its tensor parallelism leaves the scale-up domain.
    pub leaves_domain: bool,
    /// Number of settings that differ from a launcher's default.
    pub unusual: usize,
}

impl Preference {
    /// That of a plan on two kinds of GPU: the worse of each, but that a run on either has shown its degrees.
    pub fn on_both(self, other: Self) -> Self {
        Self {
            risk: self.risk.max(other.risk),
            is_new: self.is_new && other.is_new,
            leaves_domain: self.leaves_domain || other.leaves_domain,
            unusual: self.unusual.max(other.unusual),
        }
    }

    pub fn new(problem: &Problem, evaluation: &Evaluation, gave_up: bool, published: Option<&PublishedPlan>) -> Self {
        let plan = &evaluation.plan;
        let is_run = published.is_some_and(|run| run.shows_that_it_fits(problem) && run.evaluation.plan == *plan);
        let risk =
            if gave_up && !is_run { in_percent(Confidence::new(problem, evaluation).oom_probability) } else { 0 };
        Self {
            risk,
            is_new: published.is_none_or(|published| !published.has_degrees_of(plan)),
            leaves_domain: leaves_domain(problem, plan),
            unusual: unusual_settings(problem, plan).len(),
        }
    }
}

/// Index of the plan to launch: of those that take at most `most`, one with the degrees of the published run, then one whose
/// tensor parallelism stays inside the scale-up domain, then the plainest, and the fastest of the equally plain; where a limit
/// was given up, of the least risky of them all those within run-to-run noise of the fastest.
pub(super) fn choose(ranked: &[(Preference, Seconds)], most: Seconds, gave_up: bool) -> usize {
    let near = || (0..ranked.len()).filter(|&at| at == 0 || ranked[at].1 <= most);
    let risk = |at: usize| ranked[at].0.risk;
    let least = near().map(risk).min().unwrap_or(0);
    let first = near().find(|&at| risk(at) == least).map_or(most, |at| ranked[at].1);
    let is_near = |at: usize| !gave_up || ranked[at].1 <= first * (1.0 + TIE);
    let safest = near().filter(|&at| risk(at) == least && is_near(at));
    safest.min_by_key(|&at| (ranked[at].0, at)).unwrap_or(0)
}

/// A probability in whole percent, as answers print it.
pub(super) fn in_percent(probability: f64) -> u32 {
    (probability * 100.0).round() as u32
}

/// Advantage for which the recommended plan is preferred to the fastest listed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreferredFor {
    /// It has a smaller probability of running out of memory, where no plan has the accepted one.
    Risk,
    /// It has the degrees of a published run.
    Published,
    /// Its tensor parallelism stays inside the scale-up domain.
    Domain,
    /// Fewer of its settings differ from a launcher's defaults.
    Plainness(Unlike),
}

/// Settings other than a launcher's defaults that one plan needs and another does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlike {
    /// Settings of the one alone, in words.
    pub needs: Vec<&'static str>,
    /// Settings of the other alone, in words.
    pub instead_of: Vec<&'static str>,
}

impl Unlike {
    /// Settings that `plan` needs beside or instead of those of `other`.
    pub fn between(problem: &Problem, plan: &Plan, other: &Plan) -> Self {
        let (needs, others) = (unusual_settings(problem, plan), unusual_settings(problem, other));
        let without = |all: &[&'static str], known: &[&str]| {
            all.iter().copied().filter(|setting| !known.contains(setting)).collect()
        };
        Self { needs: without(&needs, &others), instead_of: without(&others, &needs) }
    }
}
