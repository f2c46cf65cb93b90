//! Result of a search.

use super::certificate::{Certificate, Counts, RuleCount, SearchProof};
use crate::space::Rejection;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::Plan;

/// Infeasible plan with the smallest excess of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NearMiss {
    /// The plan that does not fit.
    pub plan: Plan,
    /// Message of the rejection, with the memory needed and available.
    pub reason: String,
}

/// Result of a search: the best plans, the counts and the certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The best plan of each layout, best first, with simulated step times.
    pub evaluations: Vec<Evaluation>,
    /// Number of plans of the space.
    pub considered: u64,
    /// Number of plans evaluated.
    pub evaluated: u64,
    /// Number of plans excluded by a lower bound without evaluation.
    pub cut_by_bound: u64,
    /// Number of plans that cannot run, by rule.
    pub rejections: Vec<RuleCount>,
    /// Plan that exceeds the memory by least, if no plan fits.
    pub nearest: Option<NearMiss>,
    /// Counts of all plans of the space, with the optimality status.
    pub certificate: Certificate,
}

impl Ranking {
    /// Answer of a space of `size` plans that all break one rule, known without a search.
    pub(crate) fn all_rejected(size: u64, rejection: &Rejection) -> Self {
        let mut counts = Counts::default();
        counts.reject(rejection, size);
        let certificate = Certificate::new(size, &counts, SearchProof::Optimal);
        Self {
            evaluations: Vec::new(),
            considered: size,
            evaluated: 0,
            cut_by_bound: 0,
            rejections: counts.rejections(),
            nearest: None,
            certificate,
        }
    }
}
