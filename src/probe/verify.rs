//! The top plans checked on a device: predicted against measured by kind of kernel, and the ranking done again.

use std::collections::BTreeMap;

use serde::Serialize;

use super::shapes::{Measured, calls};
use super::{Calibration, Samples};
use crate::cost::Costs;
use crate::kernel::{Call, Pass};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::sources::Basis;
use crate::units::Seconds;

/// Least share of the predicted kernel time that must be measured for a verdict.
pub const LEAST_COVERED: f64 = 0.9;
/// Largest error of the calibrated kernel time of a verdict that confirms.
pub const MOST_ERROR: f64 = 0.05;
/// Two plans nearer than this are a tie: repeats of one measurement differ by as much.
pub const TIE: f64 = 0.03;

/// One kind of kernel of a plan: what a layer of each kind, the two ends and the update take together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// Which.
    pub name: String,
    /// As predicted before.
    pub predicted_s: Seconds,
    /// As predicted with the curves through the samples.
    pub calibrated_s: Seconds,
    /// As measured.
    pub measured_s: Seconds,
    /// Share of the predicted time that was measured; errors are of that share.
    pub covered: f64,
}

impl Term {
    /// Error of the prediction before calibration.
    pub fn error_before(&self) -> f64 {
        self.predicted_s / self.measured_s - 1.0
    }

    /// Error of the prediction after calibration.
    pub fn error_after(&self) -> f64 {
        self.calibrated_s / self.measured_s - 1.0
    }
}

/// One plan with its terms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The plan.
    pub plan: String,
    /// Place by predicted step time, from 1.
    pub place_before: usize,
    /// Place by measured step time, from 1.
    pub place_after: usize,
    /// Step time as predicted.
    pub predicted_s: Seconds,
    /// Step time with measured kernels; communication as predicted or calibrated.
    pub measured_s: Seconds,
    /// Terms that were measured at all, and their sum as the last.
    pub terms: Vec<Term>,
    /// Predicted peak memory of the fullest rank, in bytes.
    pub peak_bytes: f64,
}

impl Checked {
    /// The sum of the terms.
    pub fn total(&self) -> Option<&Term> {
        self.terms.last()
    }
}

/// What the check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The predicted winner wins, or ties, and calibrated kernel times are within 5 % of measured.
    Confirmed,
    /// Another plan wins.
    Overturned,
    /// The winner wins, but calibrated kernel times are further off than 5 %.
    Inaccurate,
    /// Too little was measured, or nothing but the model was asked.
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Overturned => "overturned",
            Self::Inaccurate => "inaccurate",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// The whole check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// What it says.
    pub verdict: Verdict,
    /// The plans, by measured step time.
    pub plans: Vec<Checked>,
}

/// Name of the kind of kernel that a call is.
fn term_of(call: &Call) -> &'static str {
    match call {
        Call::Product { pass: Pass::Forward, .. } => "products forward",
        Call::Product { pass: Pass::Dgrad, .. } => "products dgrad",
        Call::Product { pass: Pass::Wgrad, .. } => "products wgrad",
        Call::Attention { pass: Pass::Forward, .. } => "attention forward",
        Call::Attention { .. } => "attention backward",
        Call::Stream { .. } => "memory-bound",
    }
}

/// Checks plans, given in their predicted order, against samples of the device.
///
/// `calibrated` is the problem with the curves through the same samples. Step times are the cost model's own, with each
/// measured kernel in the place of its predicted time.
pub fn verify(problem: &Problem, calibrated: &Problem, samples: &Samples, plans: &[Plan]) -> Verification {
    let measured = Measured::new(samples, &calibrated.cluster().gpu);
    let (before, after) = (Costs::new(problem), Costs::new(calibrated));
    let metered = Costs::new(calibrated).metered(&measured);
    let mut checked: Vec<Checked> = plans
        .iter()
        .enumerate()
        .map(|(at, plan)| {
            let evaluation = before.evaluate(plan);
            Checked {
                plan: plan.to_string(),
                place_before: at + 1,
                place_after: 0,
                predicted_s: evaluation.step.total(),
                measured_s: metered.evaluate(plan).step.total(),
                terms: terms(&before, &after, &measured, plan),
                peak_bytes: evaluation.footprint.device().get(),
            }
        })
        .collect();
    checked.sort_by(|a, b| a.measured_s.get().total_cmp(&b.measured_s.get()).then(a.place_before.cmp(&b.place_before)));
    for (at, plan) in checked.iter_mut().enumerate() {
        plan.place_after = at + 1;
    }
    // The model's own times confirm nothing.
    let verdict = if samples.basis == Basis::Datasheet { Verdict::Inconclusive } else { verdict(&checked) };
    Verification { verdict, plans: checked }
}

fn terms(before: &Costs, after: &Costs, measured: &Measured, plan: &Plan) -> Vec<Term> {
    let calibrated = calls(after, plan);
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    // The same plan makes the same calls in the same order, whatever the curves.
    for ((call, predicted), (_, calibrated)) in calls(before, plan).into_iter().zip(calibrated) {
        let sum = sums.entry(term_of(&call)).or_default();
        sum.all += predicted;
        if let Some(time) = measured.of(&call) {
            sum.predicted += predicted;
            sum.calibrated += calibrated;
            sum.measured += time;
        }
    }
    let total = sums.values().fold(Sums::default(), |total, sum| Sums {
        all: total.all + sum.all,
        predicted: total.predicted + sum.predicted,
        calibrated: total.calibrated + sum.calibrated,
        measured: total.measured + sum.measured,
    });
    sums.into_iter().chain([("all kernels", total)]).map(|(name, sum)| sum.term(name)).collect()
}

#[derive(Clone, Copy, Default)]
struct Sums {
    all: Seconds,
    predicted: Seconds,
    calibrated: Seconds,
    measured: Seconds,
}

impl Sums {
    fn term(self, name: &str) -> Term {
        let covered = if self.all.get() > 0.0 { self.predicted / self.all } else { 0.0 };
        Term {
            name: name.to_owned(),
            predicted_s: self.predicted,
            calibrated_s: self.calibrated,
            measured_s: self.measured,
            covered,
        }
    }
}

fn verdict(plans: &[Checked]) -> Verdict {
    let covered = |plan: &Checked| plan.total().map_or(0.0, |total| total.covered);
    let Some(best) = plans.first() else { return Verdict::Inconclusive };
    if plans.iter().any(|plan| covered(plan) < LEAST_COVERED) {
        return Verdict::Inconclusive;
    }
    let winner = plans.iter().find(|plan| plan.place_before == 1).unwrap_or(best);
    if winner.measured_s / best.measured_s > 1.0 + TIE {
        return Verdict::Overturned;
    }
    let off = plans.iter().filter_map(Checked::total).any(|total| total.error_after().abs() > MOST_ERROR);
    if off { Verdict::Inaccurate } else { Verdict::Confirmed }
}

/// The problem with the curves of a calibration.
///
/// # Errors
/// When the calibration does not fit its device.
pub fn calibrated(problem: &Problem, calibration: &Calibration) -> Result<Problem, String> {
    let (mut cluster, mut stack) = (problem.cluster().clone(), problem.stack().clone());
    let name = cluster.gpu.name.clone();
    calibration.apply(&name, &mut cluster, &mut stack).map_err(|error| error.to_string())?;
    Problem::new(problem.model().clone(), cluster, problem.workload().clone(), stack, problem.hbm_profile())
        .map_err(|error| error.to_string())
}
