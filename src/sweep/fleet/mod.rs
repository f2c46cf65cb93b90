//! What to buy: how many clusters of which option, from when, for which runs.
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

/// What is to be as small, or as large, as can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Fewest dollars for all runs.
    #[default]
    Cost,
    /// Most tokens of the one workload.
    Tokens,
}

/// When GPUs of one kind can be had.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Value of the axis `gpu` or `cluster`.
    pub gpu: String,
    /// Terms it holds for; all where none are named.
    pub terms: Option<String>,
    /// From when; now where it is left out.
    pub from: Option<Seconds>,
    /// Until when.
    pub until: Option<Seconds>,
    /// Most GPUs at any time.
    pub most: Option<u32>,
}

/// A stretch of time with limits of its own; it starts where the last one ended.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// Its end, from the start of all.
    pub until: Seconds,
    /// Most power at the wall.
    pub power: Option<Watts>,
    /// Most racks.
    pub racks: Option<f64>,
    /// Most dollars spent within it. A cluster is paid for evenly from its start to its end or that of its commitment.
    pub budget: Option<Usd>,
}

/// The table `[buy]` of a sweep file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The goal.
    #[serde(default)]
    pub goal: Goal,
    /// When all must be done.
    pub finish_by: Option<Seconds>,
    /// Most dollars.
    pub budget: Option<Usd>,
    /// Most power at the wall.
    pub power: Option<Watts>,
    /// Most racks.
    pub racks: Option<f64>,
    /// GPUs in one rack where a scale-up domain does not fill it; four servers of eight where it is left out.
    pub gpus_per_rack: Option<u32>,
    /// Availability; without any, everything can be had now.
    #[serde(default)]
    pub offer: Vec<Offer>,
    /// Stretches of time with limits of their own.
    #[serde(default)]
    pub period: Vec<Period>,
    /// Time the solver may take.
    pub time_limit: Option<Seconds>,
}

impl Wanted {
    /// Budgets of periods: start and end in days, dollars.
    pub(super) fn period_budgets(&self) -> Vec<(f64, f64, f64)> {
        let starts = std::iter::once(0.0).chain(self.period.iter().map(|period| period.until.as_days()));
        self.period
            .iter()
            .zip(starts)
            .filter_map(|(period, from)| Some((from, period.until.as_days(), period.budget?.get())))
            .collect()
    }

    /// Checks what the program would trip over.
    ///
    /// # Errors
    /// Names the field.
    pub fn check(&self, tasks: &[Task]) -> Result<(), SweepError> {
        let bad = |key: &str, why: String| Err(SweepError::value(format!("buy.{key}"), why));
        if self.goal == Goal::Tokens {
            if tasks.len() != 1 {
                return bad("goal", format!("most tokens are of one workload, and there are {}", tasks.len()));
            }
            if self.finish_by.is_none() {
                return bad("goal", "most tokens need `finish_by`: without an end there is no most".into());
            }
            if self.budget.is_none()
                && self.power.is_none()
                && self.racks.is_none()
                && self.offer.iter().all(|o| o.most.is_none())
            {
                return bad("goal", "most tokens need a limit: budget, power, racks, or `most` of every offer".into());
            }
        } else if let Some(task) = tasks.iter().find(|task| task.runs.fract() != 0.0) {
            return bad("goal", format!("`{}` runs {} times: what is bought runs whole", task.name, task.runs));
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
                return bad("offer", format!("{} can be had from {from} until {until}, which is no time", offer.gpu));
            }
        }
        Ok(())
    }
}

/// How far the answer is from the best there could be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// None is better.
    Optimal,
    /// Best found; none is better by more than this share.
    Within(f64),
}

/// Some clusters of one option.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The option.
    pub option: u64,
    /// What makes it differ.
    pub label: String,
    /// How many clusters.
    pub clusters: u32,
    /// GPUs of one.
    pub gpus: u32,
    /// Start, in days.
    pub from_day: f64,
    /// End of the last run, in days.
    pub to_day: f64,
    /// Runs of each workload on each cluster.
    pub runs: Vec<(String, u32)>,
    /// Tokens on all of them.
    pub tokens: f64,
    /// Dollars for all of them.
    pub cost_usd: f64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// What is bought.
    pub lines: Vec<Line>,
    /// Dollars.
    pub cost_usd: f64,
    /// Tokens.
    pub tokens: f64,
    /// When the last run ends, in days.
    pub days: f64,
    /// Most power at any time.
    pub peak_mw: f64,
    /// Most racks at any time.
    pub racks: f64,
    /// How good it is.
    pub proof: Proof,
    /// The best that the relaxed program leaves open, in the goal's own unit.
    pub bound: f64,
    /// Options that could work, before and after dominance.
    pub options: (usize, usize),
    /// Columns of the program.
    pub columns: usize,
}

/// There is no fleet.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoFleet {
    /// No choice meets all constraints; which ones stand in the way.
    #[error("nothing meets all of [buy]: {}", .0.join("; "))]
    Infeasible(Vec<String>),
    /// The solver gave up, or its answer does not hold.
    #[error("{0}")]
    Solver(String),
}

/// GPUs of one rack: the scale-up domain where it is larger than four servers of eight. Source: [dgx-superpod-h100].
const RACK: u32 = 32;

/// Racks of a record's cluster.
fn racks(sweep: &Sweep, wanted: &Wanted, record: &Record) -> f64 {
    let choice = sweep.option(record.option).unwrap_or_default();
    let domain = super::machine::cluster(&choice, &sweep.sets).map_or(1, |cluster| cluster.scale_up.gpus);
    let rack = if domain > RACK { domain } else { wanted.gpus_per_rack.unwrap_or(RACK) };
    f64::from(record.gpus.div_ceil(rack))
}
