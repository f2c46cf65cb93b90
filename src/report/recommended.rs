//! JSON form of the recommendation of `plan`.

use serde::Serialize;

use super::prediction::Priced;
use meshwright_engine::problem::Problem;
use meshwright_planner::advice::{Advice, GivenUp, PooledAdvice, Reason};

/// JSON form of the recommendation.
#[derive(Serialize)]
pub(super) struct Recommended {
    /// Rank of the plan to launch among `plans`, from 1.
    rank: usize,
    /// Limit that no plan keeps: `risk` or `proof`.
    given_up: Option<&'static str>,
    /// Probability that each of `plans` is the fastest of them.
    p_best: Vec<f64>,
    /// Medians of the step times of `plans` given the measured runs of the question; empty where there are none.
    step_given_runs_s: Vec<f64>,
    /// Lower ends of their 90 % intervals.
    step_given_runs_p05_s: Vec<f64>,
    /// Upper ends of their 90 % intervals.
    step_given_runs_p95_s: Vec<f64>,
    /// The fastest plan by the model, where another is recommended.
    fastest: Option<Priced>,
    /// Reasons against it, one word each: `risk`, `unproven`, `published`, `plainer`.
    fastest_declined_for: Vec<&'static str>,
}

impl Recommended {
    /// JSON form of the recommendation of an answer that has plans.
    pub(super) fn new(problem: &Problem, advice: &Advice) -> Self {
        Self {
            rank: advice.recommended + 1,
            given_up: advice.given_up.map(limit_word),
            p_best: advice.chances.clone(),
            step_given_runs_s: advice.given_runs.iter().map(|given| given.median.get()).collect(),
            step_given_runs_p05_s: advice.given_runs.iter().map(|given| given.interval.low.get()).collect(),
            step_given_runs_p95_s: advice.given_runs.iter().map(|given| given.interval.high.get()).collect(),
            fastest: advice.fastest.as_ref().map(|declined| Priced::new(problem, &declined.evaluation)),
            fastest_declined_for: reason_words(advice.fastest.iter().flat_map(|declined| &declined.reasons)),
        }
    }
}

const fn limit_word(limit: GivenUp) -> &'static str {
    match limit {
        GivenUp::Risk => "risk",
        GivenUp::Proof => "proof",
    }
}

fn reason_words<'r>(reasons: impl Iterator<Item = &'r Reason>) -> Vec<&'static str> {
    let word = |reason: &Reason| match reason {
        Reason::Risk(_) => "risk",
        Reason::Unproven(_) => "unproven",
        Reason::Published => "published",
        Reason::Plainer(_) => "plainer",
    };
    reasons.map(word).collect()
}

/// JSON form of the recommendation over pools.
#[derive(Serialize)]
pub(super) struct RecommendedMixture {
    /// Rank of the plan to launch among `plans`, from 1.
    rank: usize,
    /// Limit that no plan keeps: `risk` or `proof`.
    given_up: Option<&'static str>,
    /// The fastest plan by the model, where another is recommended.
    fastest: Option<String>,
    /// Its step time.
    fastest_step_time_s: Option<f64>,
    /// Reasons against it, one word each: `risk`, `unproven`, `published`, `plainer`.
    fastest_declined_for: Vec<&'static str>,
}

impl RecommendedMixture {
    /// JSON form of the recommendation; none where no plan uses all pools.
    pub(super) fn new(advice: &PooledAdvice) -> Option<Self> {
        advice.mixture()?;
        let fastest = advice.fastest.as_ref();
        Some(Self {
            rank: advice.recommended + 1,
            given_up: advice.given_up.map(limit_word),
            fastest: fastest.map(|declined| declined.mixture.plan.to_string()),
            fastest_step_time_s: fastest.map(|declined| declined.mixture.step.total().get()),
            fastest_declined_for: reason_words(fastest.iter().flat_map(|declined| &declined.reasons)),
        })
    }
}
