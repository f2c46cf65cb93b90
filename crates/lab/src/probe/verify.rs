//! Verification of the top plans on a device: predicted against measured times by kind of kernel, and a new ranking.

use std::collections::BTreeMap;

use serde::Serialize;

use super::calibration::{ApplyError, Calibration};
use super::parts::parts;
use super::sample::Samples;
use super::shapes::{Measured, Slowest, calls, layer_calls, sequence};
use super::source::{Effort, Probe, ProbeError};
use super::tensors::{self, LayerTensors};
use super::verdict::verdict;
use crate::probe::checked::{Checked, LayerMemory, LayerRun, Term};

pub use super::verdict::{LEAST_COVERED, LEAST_MEASURED, MOST_ERROR, MOST_MEMORY_ERROR, TIE, Verdict};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cost::Costs;
use meshwright_engine::gpu::Format;
use meshwright_engine::kernel::{Call, Pass};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::stack::Stack;
use meshwright_engine::units::Seconds;

/// Largest number of layers to allocate together: the driver allocates whole pages, which would distort the size of a single
/// small layer.
const MOST_LAYERS: u64 = 8;
/// Largest number of bytes to allocate together.
const MOST_BYTES: u64 = 16 << 30;

/// Memory of one layer of each kind of a plan, from an allocation of enough layers that rounding to pages matters little.
///
/// # Errors
///
/// The probe has no memory, or too little.
pub fn memory(
    problem: &Problem,
    plan: &Plan,
    probe: &mut dyn Probe,
    samples: &mut Samples,
) -> Result<Vec<LayerMemory>, ProbeError> {
    let costs = Costs::new(problem);
    let mut found = Vec::new();
    for kind in 0..problem.model().kinds.len() {
        let Some(LayerTensors { states, activations }) = tensors::of_layer(problem, plan, kind) else { continue };
        let one: u64 = states.iter().chain(&activations).map(|tensor| tensor.bytes).sum();
        let layers = (MOST_BYTES / one.max(1)).clamp(1, MOST_LAYERS);
        let buffers = states.iter().map(|tensor| tensor.bytes * layers);
        let kept = (0..layers).flat_map(|_| activations.iter().map(|tensor| tensor.bytes));
        let sizes: Vec<u64> = buffers.chain(kept).collect();
        let bytes = probe.hold(&sizes)?.get();
        samples.held.insert(sizes, bytes as u64);
        found.push(LayerMemory {
            kind,
            predicted_bytes: costs.layer_memory(kind, plan).get(),
            allocated_bytes: bytes / layers as f64,
        });
    }
    Ok(found)
}

/// Times the kernels of one layer of each kind of a plan as one run, forward and backward. Layers with a kernel that no probe
/// runs are left out.
///
/// # Errors
///
/// The probe has no GPU, or a kernel fails.
pub fn run_layers(
    problem: &Problem,
    plan: &Plan,
    probe: &mut dyn Probe,
    effort: Effort,
    samples: &mut Samples,
) -> Result<(), ProbeError> {
    let costs = Costs::new(problem);
    for kind in 0..problem.model().kinds.len() {
        let Some(kernels) = sequence(&layer_calls(&costs, plan, kind)) else { continue };
        if kernels.is_empty() || samples.run(&kernels).is_some() {
            continue;
        }
        let sample = probe.together(&kernels, effort)?;
        samples.together.insert(kernels, sample);
    }
    Ok(())
}

/// Layers of a plan that were timed as one run, with their predictions.
fn layer_runs(before: &Costs, after: &Costs, samples: &Samples, plan: &Plan) -> Vec<LayerRun> {
    let run = |kind| {
        let calls = layer_calls(before, plan, kind);
        let kernels = sequence(&calls)?;
        let together_s = samples.run(&kernels)?.median();
        let alone = kernels.iter().map(|kernel| samples.time(kernel));
        let sum = |calls: &[(Call, Seconds)]| calls.iter().map(|(_, time)| *time).sum::<Seconds>();
        Some(LayerRun {
            kind,
            kernels: kernels.len(),
            predicted_s: sum(&calls),
            calibrated_s: sum(&layer_calls(after, plan, kind)),
            alone_s: alone.sum::<Option<Seconds>>(),
            together_s,
        })
    };
    (0..before.problem.model().kinds.len()).filter_map(run).collect()
}

/// Result of a verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// Verdict on the ranking.
    pub verdict: Verdict,
    /// Clocks of GEMMs in the step times over those that were measured: 1 for one GPU, else the share that runs keep.
    pub step_clocks: f64,
    /// Plans, by measured step time.
    pub plans: Vec<Checked>,
}

/// Name of a call's kind of kernel.
fn term_of(call: &Call) -> &'static str {
    match call {
        Call::Gemm { pass: Pass::Forward, .. } => "GEMMs forward",
        Call::Gemm { pass: Pass::Dgrad, .. } => "GEMMs dgrad",
        Call::Gemm { pass: Pass::Wgrad, .. } => "GEMMs wgrad",
        Call::Attention { pass: Pass::Forward, .. } => "attention forward",
        Call::Attention { .. } => "attention backward",
        Call::Sparse { pass: Pass::Forward, .. } => "sparse attention forward",
        Call::Sparse { .. } => "sparse attention backward",
        Call::Stream { .. } => "memory-bound",
    }
}

/// Verifies plans, given in their predicted order, with samples of the device.
///
/// `calibrated` is the problem with the curves fitted to these samples, `in_run` the problem at the clocks of a run
/// ([`calibrated`], [`measured`]); `plans` have the result of [`memory`]. Step times are the cost model's, with
/// measured kernels in place of their predictions, at the clocks of a run.
pub fn verify(
    problem: &Problem,
    calibrated: &Problem,
    in_run: &Problem,
    samples: &Samples,
    plans: &[(Plan, Vec<LayerMemory>)],
) -> Verification {
    let measured = Measured::new(samples, &calibrated.cluster().gpu);
    let (before, after) = (Costs::new(problem), Costs::new(calibrated));
    let in_step = Measured::new(samples, &in_run.cluster().gpu);
    let slowest = Slowest(&in_step);
    let metered = Costs::new(in_run).metered(&in_step);
    let slowed = Costs::new(in_run).metered(&slowest);
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
                peak_bytes: evaluation.footprint.peak().get(),
                layers: layers.clone(),
                runs: layer_runs(&before, &after, samples, plan),
            }
        })
        .collect();
    checked.sort_by(|a, b| a.measured_s.get().total_cmp(&b.measured_s.get()).then(a.place_before.cmp(&b.place_before)));
    for (at, plan) in checked.iter_mut().enumerate() {
        plan.place_after = at + 1;
    }
    // Predictions of the model confirm nothing.
    let verdict = if samples.basis == Basis::Datasheet { Verdict::Inconclusive } else { verdict(&checked) };
    let clocks = |of: &Problem| of.cluster().gpu.gemm[&Format::Bf16].sustained;
    Verification { verdict, step_clocks: clocks(in_run) / clocks(calibrated), plans: checked }
}

/// Times of a plan by kind of kernel, and of all kernels.
fn terms(before: &Costs, after: &Costs, measured: &Measured, plan: &Plan) -> Vec<Term> {
    let calibrated = calls(after, plan);
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    // A plan makes the same calls in the same order with any curves.
    for ((call, predicted), (_, calibrated)) in calls(before, plan).into_iter().zip(calibrated) {
        let sum = sums.entry(term_of(&call)).or_default();
        sum.all += predicted;
        if let Some(time) = measured.time(&call) {
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

/// Sums of times over the kernels of one kind.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Predicted time of all kernels.
    all: Seconds,
    /// Predicted time of the measured kernels.
    predicted: Seconds,
    /// Calibrated time of the measured kernels.
    calibrated: Seconds,
    /// Measured time of the measured kernels.
    measured: Seconds,
    /// Predicted time of the kernels that only have an upper bound.
    bounded: Seconds,
    /// Calibrated time of the kernels that only have an upper bound.
    bounded_calibrated: Seconds,
    /// Upper bound of their time.
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

/// Problem with the curves of a calibration, which its samples are compared with.
///
/// # Errors
///
/// The calibration does not fit its device.
pub fn calibrated(problem: &Problem, calibration: &Calibration) -> Result<Problem, String> {
    changed(problem, |name, cluster, stack| calibration.apply_curves(name, cluster, stack))
}

/// Problem with a whole calibration, in which GEMMs that were timed take the time that was measured.
///
/// # Errors
///
/// The calibration does not fit its device.
pub fn measured(problem: &Problem, calibration: &Calibration) -> Result<Problem, String> {
    changed(problem, |name, cluster, stack| calibration.apply(name, cluster, stack))
}

fn changed(
    problem: &Problem,
    apply: impl FnOnce(&str, &mut Cluster, &mut Stack) -> Result<(), ApplyError>,
) -> Result<Problem, String> {
    let (mut cluster, mut stack) = (problem.cluster().clone(), problem.stack().clone());
    let name = cluster.gpu.name.clone();
    apply(&name, &mut cluster, &mut stack).map_err(|error| error.to_string())?;
    problem.changed(|own, _, of_stack| (*own, *of_stack) = (cluster, stack)).map_err(|error| error.to_string())
}
