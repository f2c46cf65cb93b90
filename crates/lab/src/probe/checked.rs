//! Plans with predicted and measured terms.

use serde::Serialize;

use super::parts::Part;
use meshwright_engine::units::Seconds;

/// Kernels of one kind in a plan: a layer of each kind, embedding and loss, and the update together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// Name of the kind.
    pub name: String,
    /// Time predicted before calibration.
    pub predicted_s: Seconds,
    /// Time predicted with the calibrated curves.
    pub calibrated_s: Seconds,
    /// Measured time of the kernels.
    pub measured_s: Seconds,
    /// Share of the predicted time whose kernels were measured; errors refer to that share.
    pub covered: f64,
    /// Share of the predicted time that is bounded only: attention that no library ran, timed by the probe's own kernel.
    pub bounded: f64,
    /// Time of that attention, predicted with the calibrated curves.
    pub bounded_s: Seconds,
    /// Upper bound of the time of that attention: that of the probe's own kernel.
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

/// Memory of one layer of a plan on one rank: its states, and the activations of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerMemory {
    /// Kind of layer, as an index.
    pub kind: usize,
    /// Bytes by the cost model's formulas.
    pub predicted_bytes: f64,
    /// Bytes that the driver allocated for the same tensors.
    pub allocated_bytes: f64,
}

impl LayerMemory {
    /// Error of the prediction.
    pub fn error(&self) -> f64 {
        self.predicted_bytes / self.allocated_bytes - 1.0
    }
}

/// Kernels of one layer, forward and backward for one micro-batch, timed as one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerRun {
    /// Kind of layer, as an index.
    pub kind: usize,
    /// Number of kernels.
    pub kernels: usize,
    /// Sum of their times, predicted before calibration.
    pub predicted_s: Seconds,
    /// Sum predicted with the calibrated curves.
    pub calibrated_s: Seconds,
    /// Sum of their measured times, each in a loop of its own; `None` where one was not measured.
    pub alone_s: Option<Seconds>,
    /// Time of the run.
    pub together_s: Seconds,
}

impl LayerRun {
    /// Error of the prediction before calibration.
    pub fn error_before(&self) -> f64 {
        self.predicted_s / self.together_s - 1.0
    }

    /// Error of the prediction after calibration.
    pub fn error_after(&self) -> f64 {
        self.calibrated_s / self.together_s - 1.0
    }
}

/// Plan with its measured terms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The plan as text.
    pub plan: String,
    /// Rank by predicted step time, from 1.
    pub place_before: usize,
    /// Rank by measured step time, from 1.
    pub place_after: usize,
    /// Predicted step time.
    pub predicted_s: Seconds,
    /// Step time with measured kernels; communication is predicted or calibrated.
    pub measured_s: Seconds,
    /// Step time with attention at its upper bound, where only the probe's own kernel was timed.
    pub slowest_s: Seconds,
    /// Measured terms, followed by their sum.
    pub terms: Vec<Term>,
    /// One layer of each kind, pass by pass, and the update.
    pub parts: Vec<Part>,
    /// Predicted peak memory of the fullest rank, in bytes.
    pub peak_bytes: f64,
    /// Memory of one layer of each kind that was allocated.
    pub layers: Vec<LayerMemory>,
    /// Layers of each kind that were timed as one run.
    pub runs: Vec<LayerRun>,
}

impl Checked {
    /// Sum of the terms.
    pub fn total(&self) -> Option<&Term> {
        self.terms.last()
    }
}
