//! Optimality certificate: counts of all plans of the space by their outcome.

use crate::space::Rejection;
use meshwright_engine::units::Seconds;

/// Count of the plans that one legality rule rejects.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RuleCount {
    /// Name of the rule.
    pub rule: &'static str,
    /// Number of plans.
    pub count: u64,
    /// Message of the first rejection.
    pub example: String,
}

/// Count of the plans that one lower bound excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BoundCount {
    /// Name of the bound: `layer bound`, `flow bound`, `sharding bound` or `not looked at`.
    pub by: &'static str,
    /// Number of plans.
    pub count: u64,
}

/// Optimality status of a search.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchProof {
    /// The search is complete: within the model, no plan is better.
    Optimal,
    /// The search was stopped early; every plan that was not examined takes at least `bound`.
    Stopped {
        /// Lower bound on the step time of all plans that were not examined.
        bound: Seconds,
    },
    /// The search is complete: no plan is faster than the first of the front, and for each plan that is left out, one of the front
    /// is worse by no more than `tolerance` in each of step time, memory and GPUs.
    Covered {
        /// Tolerance of the front, a share.
        tolerance: f64,
    },
}

impl SearchProof {
    /// Whether every plan of the space was examined or excluded by a bound.
    pub const fn is_complete(self) -> bool {
        !matches!(self, Self::Stopped { .. })
    }
}

/// Counts of all plans of the space by their outcome; they sum to `size`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Certificate {
    /// Number of plans of the space, computed from the dimensions before the search.
    pub size: u64,
    /// Number of plans evaluated.
    pub evaluated: u64,
    /// Number of pipelines simulated operation by operation.
    pub simulated: u64,
    /// Number of plans that break a rule or exceed the memory.
    pub rejected: u64,
    /// Number of plans no better in time or memory than another sharding, on every pipeline.
    pub dominated: u64,
    /// Counts of plans excluded by lower bounds.
    pub cut: Vec<BoundCount>,
    /// Optimality status.
    pub proof: SearchProof,
}

impl Certificate {
    pub(super) fn new(size: u64, counts: &Counts, proof: SearchProof) -> Self {
        let Counts { evaluated, simulated, dominated, flow, sharding, rejected } = counts;
        let rejected = rejected.iter().map(|rule| rule.count).sum();
        let seen = evaluated + rejected + dominated + flow + sharding;
        let left = if proof.is_complete() { "layer bound" } else { "not looked at" };
        let cut = [(left, size.saturating_sub(seen)), ("flow bound", *flow), ("sharding bound", *sharding)];
        Self {
            size,
            evaluated: *evaluated,
            simulated: *simulated,
            rejected,
            dominated: *dominated,
            cut: cut.into_iter().map(|(by, count)| BoundCount { by, count }).collect(),
            proof,
        }
    }

    /// Number of plans excluded by lower bounds or dominated.
    pub fn cut_by_bound(&self) -> u64 {
        self.dominated + self.cut.iter().map(|cut| cut.count).sum::<u64>()
    }

    /// Optimality gap: the most by which an unexamined plan could be faster than `best`, as a share of `best`; 0 when
    /// optimal.
    pub fn gap(&self, best: Seconds) -> f64 {
        match self.proof {
            SearchProof::Optimal | SearchProof::Covered { .. } => 0.0,
            SearchProof::Stopped { bound } => (1.0 - bound / best).max(0.0),
        }
    }
}

/// Counts of one search, added up over shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Plans evaluated.
    pub evaluated: u64,
    /// Pipelines simulated operation by operation.
    pub simulated: u64,
    /// Plans left out of a menu as dominated.
    pub dominated: u64,
    /// Plans excluded by a bound of their shape, layout or pipeline.
    pub flow: u64,
    /// Plans excluded by a bound of their sharding.
    pub sharding: u64,
    /// Plans rejected by each rule, with an example.
    rejected: Vec<RuleCount>,
}

impl Counts {
    /// Number of plans that a rule rejects. They are few.
    fn of_rule(&mut self, rule: &'static str, example: impl FnOnce() -> String) -> &mut u64 {
        let at = self.rejected.iter().position(|known| known.rule == rule).unwrap_or_else(|| {
            self.rejected.push(RuleCount { rule, count: 0, example: example() });
            self.rejected.len() - 1
        });
        &mut self.rejected[at].count
    }

    /// Counts plans as rejected; the first rejection of a rule is its example.
    pub fn reject(&mut self, rejection: &Rejection, plans: u64) {
        if plans > 0 {
            *self.of_rule(rejection.rule(), || rejection.to_string()) += plans;
        }
    }

    /// Whether a rule has rejected plans.
    pub fn has_rejected(&self, rule: &str) -> bool {
        self.rejected.iter().any(|known| known.rule == rule)
    }

    /// Counts plans as rejected by a rule whose example is known elsewhere.
    pub fn reject_without_example(&mut self, rule: &'static str, plans: u64) {
        if plans > 0 {
            *self.of_rule(rule, String::new) += plans;
        }
    }

    /// Counts plans as rejected by a rule that has rejected others. Returns false if it has not.
    pub fn reject_more(&mut self, rule: &str, plans: u64) -> bool {
        let known = self.rejected.iter_mut().find(|known| known.rule == rule);
        known.map(|known| known.count += plans).is_some()
    }

    /// Counts of rejected plans, by the names of the rules.
    pub fn rejections(&self) -> Vec<RuleCount> {
        let mut all = self.rejected.clone();
        all.sort_by_key(|rejected| rejected.rule);
        all
    }

    /// Adds the counts of another part of the search.
    pub fn add(&mut self, other: Self) {
        let Self { evaluated, simulated, dominated, flow, sharding, rejected } = other;
        self.evaluated += evaluated;
        self.simulated += simulated;
        self.dominated += dominated;
        self.flow += flow;
        self.sharding += sharding;
        for RuleCount { rule, count, example } in rejected {
            *self.of_rule(rule, || example) += count;
        }
    }
}
