//! Recommended purchase, or the reason why there is none.

use serde::Serialize;

/// Optimality status of a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetProof {
    /// No fleet is better.
    Optimal,
    /// Optimality gap: no fleet is better by more than this share.
    Within(f64),
}

/// Number of runs of a workload; in JSON `[workload, runs]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "(String, u32)")]
pub struct WorkloadRuns {
    /// Name of the workload.
    pub workload: String,
    /// Number of its runs.
    pub runs: u32,
}

impl From<WorkloadRuns> for (String, u32) {
    fn from(WorkloadRuns { workload, runs }: WorkloadRuns) -> Self {
        (workload, runs)
    }
}

/// Number of options of a sweep that can do the work; in JSON `[usable, undominated]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "(usize, usize)")]
pub struct OptionCounts {
    /// Options that can do the work.
    pub usable: usize,
    /// Options that no other dominates.
    pub undominated: usize,
}

impl From<OptionCounts> for (usize, usize) {
    fn from(OptionCounts { usable, undominated }: OptionCounts) -> Self {
        (usable, undominated)
    }
}

/// Clusters of one option in a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetLine {
    /// Number of the option.
    pub option: u64,
    /// Label of the option.
    pub label: String,
    /// Number of clusters.
    pub clusters: u32,
    /// GPUs of one cluster.
    pub gpus: u32,
    /// Start, in days.
    pub from_day: f64,
    /// End of the last run, in days.
    pub to_day: f64,
    /// Runs on each cluster, by workload.
    pub runs: Vec<WorkloadRuns>,
    /// Tokens trained on all of them.
    pub tokens: f64,
    /// Dollars of all of them.
    pub cost_usd: f64,
}

/// Recommended purchase with its totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// Clusters to buy, by option.
    pub lines: Vec<FleetLine>,
    /// Dollars in total.
    pub cost_usd: f64,
    /// Tokens in total.
    pub tokens: f64,
    /// Day on which the last run ends.
    pub days: f64,
    /// Peak power in megawatts.
    pub peak_mw: f64,
    /// Peak number of racks.
    pub racks: f64,
    /// Optimality status.
    pub proof: FleetProof,
    /// Bound of the objective from the relaxed program, in the objective's unit.
    pub bound: f64,
    /// Number of options that the program chooses from.
    pub options: OptionCounts,
    /// Number of columns of the program.
    pub columns: usize,
}

/// Reason why there is no fleet.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoFleet {
    /// No choice meets all constraints; lists the conflicting ones.
    #[error("nothing meets all of [buy]: {}", .0.join("; "))]
    Infeasible(Vec<String>),
    /// The solver failed, or its solution failed the check.
    #[error("{0}")]
    Solver(String),
}
