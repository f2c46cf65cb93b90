//! Purchase that a sweep file asks for.

use serde::{Deserialize, Serialize};

use crate::sweep::error::SweepError;
use crate::sweep::task::Task;
use meshwright_engine::range::{self, OutOfRange};
use meshwright_engine::units::{Seconds, Usd, Watts};

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

/// Most that may be spent within a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PeriodBudget {
    /// Start in days.
    pub start: f64,
    /// End in days.
    pub end: f64,
    /// Dollars.
    pub usd: f64,
}

impl PurchaseRequest {
    /// Budgets of the periods that have one.
    pub(super) fn period_budgets(&self) -> Vec<PeriodBudget> {
        let starts = std::iter::once(0.0).chain(self.period.iter().map(|period| period.until.as_days()));
        self.period
            .iter()
            .zip(starts)
            .filter_map(|(period, start)| {
                let (end, usd) = (period.until.as_days(), period.budget?.get());
                Some(PeriodBudget { start, end, usd })
            })
            .collect()
    }

    /// Checks every number against the range of its kind.
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { goal: _, finish_by, budget, power, racks, gpus_per_rack, offer, period, time_limit } = self;
        let span = |span: Option<Seconds>| span.map_or(range::SPAN.least(), Seconds::get);
        let money = |amount: Option<Usd>| amount.map_or(0.0, Usd::get);
        let power_of = |power: Option<Watts>| power.map_or(0.0, Watts::get);
        range::check([
            ("finish_by", span(*finish_by), range::SPAN),
            ("budget", money(*budget), range::MONEY),
            ("power", power_of(*power), range::SITE_POWER),
            ("racks", racks.unwrap_or_default(), range::COUNT),
            ("gpus_per_rack", f64::from(gpus_per_rack.unwrap_or(1)), range::GPUS),
            ("time_limit", time_limit.map_or(0.0, Seconds::get), range::TIME_LIMIT),
        ])?;
        for Offer { gpu: _, terms: _, from, until, most } in offer {
            range::check([
                ("offer.from", from.map_or(0.0, Seconds::get), range::PAUSE),
                ("offer.until", until.map_or(0.0, Seconds::get), range::PAUSE),
                ("offer.most", f64::from(most.unwrap_or_default()), range::COUNT),
            ])?;
        }
        for Period { until, power, racks, budget } in period {
            range::check([
                ("period.until", until.get(), range::PAUSE),
                ("period.power", power_of(*power), range::SITE_POWER),
                ("period.racks", racks.unwrap_or_default(), range::COUNT),
                ("period.budget", money(*budget), range::MONEY),
            ])?;
        }
        Ok(())
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
        self.check_ranges().map_err(|why| SweepError::value(format!("buy.{}", why.key()), why.why()))?;
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
