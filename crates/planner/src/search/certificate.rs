//! Where every plan of the space went.

use std::collections::BTreeMap;

use crate::space::Rejection;
use meshwright_engine::units::Seconds;

/// Plans rejected by one rule.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RuleCount {
    /// Name of the rule.
    pub rule: &'static str,
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub example: String,
}

/// Plans left out by one bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Cut {
    /// What bounded them.
    pub by: &'static str,
    /// How many.
    pub count: u64,
}

/// What is known of the plans that are no answer.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// None of them is better, in the model.
    Optimal,
    /// The search was stopped: none takes less than this.
    Stopped {
        /// Lower bound on the step time of all plans that were not looked at.
        bound: Seconds,
    },
}

/// Where every plan of the space went: the counts sum to its size.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Certificate {
    /// Plans of the space, counted as a product before the search.
    pub size: u64,
    /// Priced.
    pub priced: u64,
    /// Pipelines played, operation by operation.
    pub played: u64,
    /// Against the rules, or too large.
    pub rejected: u64,
    /// No better in time nor in memory than a plan that was looked at, on any pipeline.
    pub dominated: u64,
    /// Cut by a bound, by which.
    pub cut: Vec<Cut>,
    /// What is proved.
    pub proof: Proof,
}

impl Certificate {
    pub(super) fn new(size: u64, counts: &Counts, proof: Proof) -> Self {
        let Counts { priced, played, dominated, flow, sharding, rejected } = counts;
        let rejected = rejected.values().map(|(count, _)| count).sum();
        let seen = priced + rejected + dominated + flow + sharding;
        let left = if proof == Proof::Optimal { "layer bound" } else { "not looked at" };
        let cut = [(left, size.saturating_sub(seen)), ("flow bound", *flow), ("sharding bound", *sharding)];
        Self {
            size,
            priced: *priced,
            played: *played,
            rejected,
            dominated: *dominated,
            cut: cut.into_iter().map(|(by, count)| Cut { by, count }).collect(),
            proof,
        }
    }

    /// All that bounds cut, with what they dominate.
    pub fn cut_by_bound(&self) -> u64 {
        self.dominated + self.cut.iter().map(|cut| cut.count).sum::<u64>()
    }

    /// How much faster than `best` a plan could be that was not looked at, as a share of `best`; 0 with a proof.
    pub fn gap(&self, best: Seconds) -> f64 {
        match self.proof {
            Proof::Optimal => 0.0,
            Proof::Stopped { bound } => (1.0 - bound / best).max(0.0),
        }
    }
}

/// Counts of what was looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub priced: u64,
    pub played: u64,
    pub dominated: u64,
    pub flow: u64,
    pub sharding: u64,
    rejected: BTreeMap<&'static str, (u64, String)>,
}

impl Counts {
    pub fn reject(&mut self, rejection: &Rejection, plans: u64) {
        if plans > 0 {
            self.rejected.entry(rejection.rule()).or_insert_with(|| (0, rejection.to_string())).0 += plans;
        }
    }

    pub fn rejections(&self) -> Vec<RuleCount> {
        let rule = |(&rule, (count, example)): (&&'static str, &(u64, String))| RuleCount {
            rule,
            count: *count,
            example: example.clone(),
        };
        self.rejected.iter().map(rule).collect()
    }

    pub fn add(&mut self, other: Self) {
        let Self { priced, played, dominated, flow, sharding, rejected } = other;
        self.priced += priced;
        self.played += played;
        self.dominated += dominated;
        self.flow += flow;
        self.sharding += sharding;
        for (rule, (count, example)) in rejected {
            self.rejected.entry(rule).or_insert((0, example)).0 += count;
        }
    }
}
