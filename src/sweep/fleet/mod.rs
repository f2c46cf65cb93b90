//! Purchase planning: how many clusters of which option to buy, from when, for which runs.
//!
//! A run stays on one cluster; a fleet may mix kinds. One integer program over columns: a column is one cluster of an option, from
//! the start of a period, with a list of runs that fit before its window closes. Its coefficients are the records' own days and
//! dollars; the answer is added up again from the records ([`check`]) before it is believed.

pub mod check;
pub mod column;
pub mod program;

use serde::{Deserialize, Serialize};

use super::SweepError;
use super::file::{Sweep, Task};
use super::record::Record;
use meshwright_engine::units::{Seconds, Usd, Watts};

pub use column::Column;
pub use program::buy;

/// Objective of a purchase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetGoal {
    /// Least dollars for all runs.
    #[default]
    Cost,
    /// Most tokens of a single workload.
    Tokens,
}

/// Availability of one kind of GPU.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Value of the axis `gpu` or `cluster`.
    pub gpu: String,
    /// Purchase terms that it applies to; all if `None`.
    pub terms: Option<String>,
    /// Start of availability; now if `None`.
    pub from: Option<Seconds>,
    /// End of availability; unlimited if `None`.
    pub until: Option<Seconds>,
    /// Largest number of GPUs at any time.
    pub most: Option<u32>,
}

/// Time range with its own limits; it starts at the end of the one before.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// End, counted from the start of the plan.
    pub until: Seconds,
    /// Most power at the wall.
    pub power: Option<Watts>,
    /// Largest number of racks.
    pub racks: Option<f64>,
    /// Most dollars spent within it. A cluster's cost is spread evenly from its start to its end or that of its commitment.
    pub budget: Option<Usd>,
}

/// Table `[buy]` of a sweep file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PurchaseRequest {
    /// Objective to optimise.
    #[serde(default)]
    pub goal: FleetGoal,
    /// Deadline for all runs.
    pub finish_by: Option<Seconds>,
    /// Most dollars in total.
    pub budget: Option<Usd>,
    /// Most power at the wall.
    pub power: Option<Watts>,
    /// Largest number of racks.
    pub racks: Option<f64>,
    /// GPUs in one rack, if a scale-up domain does not fill it; by default four servers of eight.
    pub gpus_per_rack: Option<u32>,
    /// Availability of GPUs; without offers, everything is available now.
    #[serde(default)]
    pub offer: Vec<Offer>,
    /// Time ranges with their own limits.
    #[serde(default)]
    pub period: Vec<Period>,
    /// Time limit of the solver.
    pub time_limit: Option<Seconds>,
}

impl PurchaseRequest {
    /// Budgets of periods: start and end in days, dollars.
    pub(super) fn period_budgets(&self) -> Vec<(f64, f64, f64)> {
        let starts = std::iter::once(0.0).chain(self.period.iter().map(|period| period.until.as_days()));
        self.period
            .iter()
            .zip(starts)
            .filter_map(|(period, from)| Some((from, period.until.as_days(), period.budget?.get())))
            .collect()
    }

    /// Checks that the limits are consistent.
    ///
    /// # Errors
    ///
    /// Names the invalid field.
    pub fn check(&self, tasks: &[Task]) -> Result<(), SweepError> {
        let bad = |key: &str, why: String| Err(SweepError::value(format!("buy.{key}"), why));
        if self.goal == FleetGoal::Tokens {
            if tasks.len() != 1 {
                return bad("goal", format!("most tokens are of one workload, and there are {}", tasks.len()));
            }
            if self.finish_by.is_none() {
                return bad("goal", "most tokens need `finish_by`: without a deadline there is no maximum".into());
            }
            if self.budget.is_none()
                && self.power.is_none()
                && self.racks.is_none()
                && self.offer.iter().all(|o| o.most.is_none())
            {
                return bad("goal", "most tokens need a limit: budget, power, racks, or `most` of every offer".into());
            }
        } else if let Some(task) = tasks.iter().find(|task| task.runs.fract() != 0.0) {
            return bad("goal", format!("`{}` runs {} times: a purchase needs whole runs", task.name, task.runs));
        }
        if self.finish_by.is_some_and(|end| end.get() <= 0.0) {
            return bad("finish_by", "must be above 0".into());
        }
        if self.gpus_per_rack == Some(0) {
            return bad("gpus_per_rack", "must be above 0".into());
        }
        let mut last = 0.0;
        for period in &self.period {
            if period.until.get() <= last {
                return bad("period", format!("a period until {} ends before it starts", period.until));
            }
            last = period.until.get();
        }
        for offer in &self.offer {
            if let (Some(from), Some(until)) = (offer.from, offer.until)
                && until <= from
            {
                return bad(
                    "offer",
                    format!("{} can be had from {from} until {until}, which is an empty period", offer.gpu),
                );
            }
        }
        Ok(())
    }
}

/// Optimality status of a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetProof {
    /// No fleet is better.
    Optimal,
    /// Optimality gap: no fleet is better by more than this share.
    Within(f64),
}

/// Clusters of one option in a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
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
    /// Runs of each workload on each cluster.
    pub runs: Vec<(String, u32)>,
    /// Tokens trained on all of them.
    pub tokens: f64,
    /// Dollars of all of them.
    pub cost_usd: f64,
}

/// Recommended purchase with its totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// Clusters to buy, by option.
    pub lines: Vec<Line>,
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
    /// Number of usable options, before and after dominance.
    pub options: (usize, usize),
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

/// Default number of GPUs in a rack: four servers of eight, or the scale-up domain if it is larger. Source:
/// [dgx-superpod-h100].
const RACK: u32 = 32;

/// Racks of a record's cluster.
fn racks(sweep: &Sweep, wanted: &PurchaseRequest, record: &Record) -> f64 {
    let choice = sweep.option(record.option).unwrap_or_default();
    let domain = super::machine::cluster(&choice, &sweep.sets).map_or(1, |cluster| cluster.scale_up.gpus);
    let rack = if domain > RACK { domain } else { wanted.gpus_per_rack.unwrap_or(RACK) };
    f64::from(record.gpus.div_ceil(rack))
}
