//! The top plans checked on a device: predicted against measured by kind of kernel, and the ranking done again.

use std::collections::BTreeMap;

use serde::Serialize;

use super::parts::{Part, parts};
use super::shapes::{Measured, Slowest, calls};
use super::tensors::{self, LayerTensors};
use super::verdict::verdict;
pub use super::verdict::{LEAST_COVERED, LEAST_MEASURED, MOST_ERROR, MOST_MEMORY_ERROR, TIE, Verdict};
use super::{Calibration, Probe, ProbeError, Samples};
use meshwright_engine::cost::Costs;
use meshwright_engine::kernel::{Call, Pass};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::units::Seconds;

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
    /// Share of the predicted time of which the probe's own attention says only how long it takes at most.
    pub bounded: f64,
    /// That share as predicted with the curves through the samples.
    pub bounded_s: Seconds,
    /// That share as long as it can be: the time of the probe's own attention.
    pub at_most_s: Seconds,
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

/// Memory of one layer of a plan on one rank: its states, and what one micro-batch keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerMemory {
    /// Kind of layer.
    pub kind: usize,
    /// As the cost model's formulas have it.
    pub predicted_bytes: f64,
    /// As the driver allocated the same tensors.
    pub allocated_bytes: f64,
}

impl LayerMemory {
    /// Error of the prediction.
    pub fn error(&self) -> f64 {
        self.predicted_bytes / self.allocated_bytes - 1.0
    }
}

/// Most layers that are allocated together, and the bytes that they may take: the driver gives whole pages, and of one small
/// layer alone they would count for more than they do on a rank.
const TOGETHER: (u64, u64) = (8, 16 << 30);

/// Allocates layers of each kind of a plan, as many together as bring little rounding, and says what one takes.
///
/// # Errors
/// When the probe has no memory, or too little.
pub fn memory(problem: &Problem, plan: &Plan, probe: &mut dyn Probe) -> Result<Vec<LayerMemory>, ProbeError> {
    let costs = Costs::new(problem);
    let mut found = Vec::new();
    for kind in 0..problem.model().kinds.len() {
        let Some(LayerTensors { states, activations }) = tensors::of_layer(problem, plan, kind) else { continue };
        let one: u64 = states.iter().chain(&activations).map(|tensor| tensor.bytes).sum();
        let layers = (TOGETHER.1 / one.max(1)).clamp(1, TOGETHER.0);
        let buffers = states.iter().map(|tensor| tensor.bytes * layers);
        let kept = (0..layers).flat_map(|_| activations.iter().map(|tensor| tensor.bytes));
        let sizes: Vec<u64> = buffers.chain(kept).collect();
        found.push(LayerMemory {
            kind,
            predicted_bytes: costs.layer_memory(kind, plan).get(),
            allocated_bytes: probe.hold(&sizes)?.get() / layers as f64,
        });
    }
    Ok(found)
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
    /// The same with attention as slow as it can be, where only the probe's own kernel was timed.
    pub slowest_s: Seconds,
    /// Terms that were measured at all, and their sum as the last.
    pub terms: Vec<Term>,
    /// One layer of each kind, pass by pass, and the update.
    pub parts: Vec<Part>,
    /// Predicted peak memory of the fullest rank, in bytes.
    pub peak_bytes: f64,
    /// Memory of one layer of each kind, where it was allocated.
    pub layers: Vec<LayerMemory>,
}

impl Checked {
    /// The sum of the terms.
    pub fn total(&self) -> Option<&Term> {
        self.terms.last()
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
/// `calibrated` is the problem with the curves through the same samples; `layers` is what [`memory`] says of each plan. Step times are the cost model's own, with each
/// measured kernel in the place of its predicted time.
pub fn verify(
    problem: &Problem,
    calibrated: &Problem,
    samples: &Samples,
    plans: &[(Plan, Vec<LayerMemory>)],
) -> Verification {
    let measured = Measured::new(samples, &calibrated.cluster().gpu);
    let (before, after) = (Costs::new(problem), Costs::new(calibrated));
    let slowest = Slowest(&measured);
    let metered = Costs::new(calibrated).metered(&measured);
    let slowed = Costs::new(calibrated).metered(&slowest);
    let mut checked: Vec<Checked> = plans
        .iter()
        .enumerate()
        .map(|(at, (plan, layers))| {
            let evaluation = before.evaluate(plan);
            Checked {
                plan: plan.to_string(),
                place_before: at + 1,
                place_after: 0,
                predicted_s: evaluation.step.total(),
                measured_s: metered.evaluate(plan).step.total(),
                slowest_s: slowed.evaluate(plan).step.total(),
                terms: terms(&before, &after, &measured, plan),
                parts: parts(&before, &after, &measured, plan),
                peak_bytes: evaluation.footprint.device().get(),
                layers: layers.clone(),
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
        } else if let Some(bound) = measured.bound(&call) {
            sum.bounded += predicted;
            sum.bounded_calibrated += calibrated;
            sum.at_most += bound;
        }
    }
    let total = sums.values().fold(Sums::default(), |total, sum| Sums {
        all: total.all + sum.all,
        predicted: total.predicted + sum.predicted,
        calibrated: total.calibrated + sum.calibrated,
        measured: total.measured + sum.measured,
        bounded: total.bounded + sum.bounded,
        bounded_calibrated: total.bounded_calibrated + sum.bounded_calibrated,
        at_most: total.at_most + sum.at_most,
    });
    sums.into_iter().chain([("all kernels", total)]).map(|(name, sum)| sum.term(name)).collect()
}

#[derive(Clone, Copy, Default)]
struct Sums {
    all: Seconds,
    predicted: Seconds,
    calibrated: Seconds,
    measured: Seconds,
    bounded: Seconds,
    bounded_calibrated: Seconds,
    at_most: Seconds,
}

impl Sums {
    fn term(self, name: &str) -> Term {
        let share = |part: Seconds| if self.all.get() > 0.0 { part / self.all } else { 0.0 };
        Term {
            name: name.to_owned(),
            predicted_s: self.predicted,
            calibrated_s: self.calibrated,
            measured_s: self.measured,
            covered: share(self.predicted),
            bounded: share(self.bounded),
            bounded_s: self.bounded_calibrated,
            at_most_s: self.at_most,
        }
    }
}

/// The problem with the curves of a calibration.
///
/// # Errors
/// When the calibration does not fit its device.
pub fn calibrated(problem: &Problem, calibration: &Calibration) -> Result<Problem, String> {
    let (mut cluster, mut stack) = (problem.cluster().clone(), problem.stack().clone());
    let name = cluster.gpu.name.clone();
    calibration.apply(&name, &mut cluster, &mut stack).map_err(|error| error.to_string())?;
    problem.changed(|own, _, of_stack| (*own, *of_stack) = (cluster, stack)).map_err(|error| error.to_string())
}
