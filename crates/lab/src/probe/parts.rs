//! Work of a rank, pass by pass: one layer of each kind for one micro-batch, and the update of its shard.

use serde::Serialize;

use super::shapes::Measured;
use meshwright_engine::cost::Costs;
use meshwright_engine::kernel::{Call, Meter};
use meshwright_engine::plan::Plan;
use meshwright_engine::units::Seconds;

/// One pass over a layer, or the update.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Kind of layer; `None` for the update.
    pub layer: Option<usize>,
    /// Name: `forward`, `backward`, `recompute` or `optimizer`.
    pub name: &'static str,
    /// Time predicted before calibration.
    pub predicted_s: Seconds,
    /// Time predicted with the calibrated curves.
    pub calibrated_s: Seconds,
    /// Time with measured kernels in place of their predictions.
    pub measured_s: Seconds,
    /// Share covered by measured kernels; the rest is predicted (gaps, host time, kernels that were not measured).
    pub covered: f64,
}

impl Part {
    /// Error of the prediction before calibration.
    pub fn error_before(&self) -> f64 {
        self.predicted_s / self.measured_s - 1.0
    }

    /// Error of the prediction after calibration.
    pub fn error_after(&self) -> f64 {
        self.calibrated_s / self.measured_s - 1.0
    }
}

/// Meter that counts the predicted time of measured kernels alone.
#[derive(Debug)]
struct Known<'a>(&'a Measured<'a>);

impl Meter for Known<'_> {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        if self.0.time(call).is_some() { predicted } else { Seconds::ZERO }
    }
}

/// Time of one part of a plan.
struct PartTime {
    /// Kind of layer; none for the update.
    layer: Option<usize>,
    /// Pass, or `optimizer`.
    name: &'static str,
    time: Seconds,
}

/// Times of the passes over one layer of each kind, and of the update, in order.
fn times(costs: &Costs, plan: &Plan) -> Vec<PartTime> {
    let kinds = 0..costs.problem.model().kinds.len();
    let passes = kinds.flat_map(|kind| {
        let layer = costs.layer(kind, plan);
        [("forward", layer.forward), ("backward", layer.dgrad + layer.wgrad), ("recompute", layer.recompute)]
            .map(|(name, time)| PartTime { layer: Some(kind), name, time })
    });
    let update = costs.evaluate(plan).step.optimizer;
    passes.chain([PartTime { layer: None, name: "optimizer", time: update }]).collect()
}

/// Parts of a plan that take time, timed by the curves before and after calibration, and by the samples.
pub(super) fn parts(before: &Costs, after: &Costs, measured: &Measured, plan: &Plan) -> Vec<Part> {
    let known = Known(measured);
    let metered = times(&Costs::new(after.problem).metered(measured), plan);
    let covered = times(&Costs::new(after.problem).metered(&known), plan);
    times(before, plan)
        .into_iter()
        .zip(times(after, plan))
        .zip(metered.into_iter().zip(covered))
        .filter(|((_, calibrated), _)| calibrated.time.get() > 0.0)
        .map(|((predicted, calibrated), (metered, covered))| Part {
            layer: predicted.layer,
            name: predicted.name,
            predicted_s: predicted.time,
            calibrated_s: calibrated.time,
            measured_s: metered.time,
            covered: covered.time / calibrated.time,
        })
        .collect()
}
