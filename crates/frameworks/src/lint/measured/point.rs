//! Measurements and their properties.

use meshwright_engine::cost::StepTime;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// A measured step.
#[derive(Clone, Debug)]
pub struct Point {
    /// Problem that was run.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// Its step time.
    pub measured: Seconds,
    /// Whether only its ratio to the other measurements is known (an efficiency).
    pub relative: bool,
}

/// Properties of a set of measurements that causes depend on.
pub(super) struct RunProperties {
    /// Predicted step time, by term.
    pub step: StepTime,
    /// GPUs of the largest measurement.
    pub most_gpus: u32,
    /// GPUs of the smallest.
    pub least_gpus: u32,
    /// Nodes of the largest.
    pub most_nodes: f64,
    /// Share of the memory that the fullest rank takes.
    pub full: f64,
}
