//! Goodput: the share of a job's time that advances the model, after failures, checkpoints, maintenance and stragglers.

pub mod checkpoint;
pub mod failures;
pub mod spares;

use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::sources::Sourced;
use crate::units::Seconds;

pub use checkpoint::{Checkpoints, Mode};
pub use failures::Failures;

/// Planned interruptions of the whole cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// Time between two interruptions.
    pub every: Sourced<Seconds>,
    /// Duration of one interruption; a restart follows.
    pub lasts: Sourced<Seconds>,
}

/// Conditions of a job: interruptions, checkpoints and spares.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Failures of the hardware.
    pub failures: Failures,
    /// Planned interruptions of the cluster.
    pub maintenance: Maintenance,
    /// Checkpointing of the job.
    pub checkpoints: Checkpoints,
    /// Number of spare nodes; by default enough to be exhausted in less than 1 % of failures.
    pub spares: Option<u32>,
    /// Share by which the slowest device lengthens every step, beyond the jitter already in the step time.
    #[serde(default)]
    pub straggler: f64,
    /// Mean time until the spot market reclaims a node.
    pub spot: Option<Sourced<Seconds>>,
}

/// Losses: shares of the time that do not advance the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    /// Pauses for checkpoints.
    pub checkpoints: f64,
    /// Repetition of work since the last checkpoint.
    pub rework: f64,
    /// Restarts: detection, spares or repair, loading, warm-up.
    pub restarts: f64,
    /// Planned maintenance.
    pub maintenance: f64,
    /// Waiting for the slowest device.
    pub straggler: f64,
}

impl Losses {
    /// All losses with their names.
    pub fn parts(&self) -> [(&'static str, f64); 5] {
        let Self { checkpoints, rework, restarts, maintenance, straggler } = *self;
        [
            ("checkpoints", checkpoints),
            ("rework", rework),
            ("restarts", restarts),
            ("maintenance", maintenance),
            ("straggler", straggler),
        ]
    }
}

/// Goodput of a job, with its checkpoints and losses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// Mean time to interruption (M).
    pub between_failures: Seconds,
    /// Work between two checkpoints (τ).
    pub interval: Seconds,
    /// Times of one checkpoint.
    pub checkpoint: checkpoint::Times,
    /// Restart time after an interruption (R), without the repetition of lost work.
    pub restart: Seconds,
    /// Number of spare nodes.
    pub spares: u32,
    /// Share of the time that advances the model (η).
    pub effective: f64,
    /// Losses, the remaining share of the time.
    pub losses: Losses,
}

/// Expected share of useful time between failures that come at random.
///
/// ```text
/// η = τ / ( M·e^((R+D)/M)·(e^((τ+δ)/M) − 1) )
/// ```
///
/// τ = `interval` of work between checkpoints, δ = `pause` of a checkpoint, R + D = `after_failure`, M = `between_failures`.
/// Exact for failures of constant rate, which may also strike during a checkpoint and a restart [daly-2006]; the drain D of an
/// asynchronous checkpoint is work that is lost with the checkpoint under way. To first order it is the formula of
/// specification §7.2.
pub fn useful(interval: Seconds, pause: Seconds, after_failure: Seconds, between_failures: Seconds) -> f64 {
    let m = between_failures;
    interval / (m * (libm::exp(after_failure / m) * libm::expm1((interval + pause) / m)))
}

impl Conditions {
    /// Goodput of a problem under these conditions.
    pub fn goodput(&self, problem: &Problem) -> Goodput {
        let cluster = problem.cluster();
        let spot = self.spot.as_ref().map(|spot| spot.value);
        let between_failures = self.failures.mean_time_to_interruption(cluster, spot);
        let breakages = self.failures.mean_time_to_interruption(cluster, None) / self.failures.hardware.value;
        let repair = self.failures.repair.value;
        let under_repair = repair / breakages;
        let spares = self.spares.unwrap_or_else(|| spares::enough(under_repair));
        let checkpoint = self.checkpoints.times(problem);
        let broken = between_failures / breakages;
        let restart =
            self.failures.restart.value + checkpoint.load + spares::wait(spares, under_repair, repair) * broken;
        let interval = self
            .checkpoints
            .interval
            .unwrap_or_else(|| checkpoint::best_interval(checkpoint.pause, between_failures))
            .max(checkpoint.drain);
        let running = useful(interval, checkpoint.pause, restart + checkpoint.drain, between_failures);
        let planned =
            ((self.maintenance.lasts.value + restart) / (self.maintenance.every.value + restart)).clamp(0.0, 1.0);
        let effective = running * (1.0 - planned) / (1.0 + self.straggler);
        let without_failures = interval / (interval + checkpoint.pause);
        let lost = (without_failures - running) * (1.0 - planned);
        let rework = (interval + checkpoint.pause) / 2.0 + checkpoint.drain;
        let losses = Losses {
            checkpoints: (1.0 - without_failures) * (1.0 - planned),
            rework: lost * (rework / (rework + restart)),
            restarts: lost * (restart / (rework + restart)),
            maintenance: planned,
            straggler: running * (1.0 - planned) - effective,
        };
        Goodput { between_failures, interval, checkpoint, restart, spares, effective, losses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of useful time to first order, as the specification prints it.
    ///
    /// ```text
    /// η = 1/(1 + δ/τ) · 1/(1 + (τ/2 + R)/M)          specification §7.2
    /// ```
    fn first_order(interval: Seconds, pause: Seconds, restart: Seconds, between_failures: Seconds) -> f64 {
        1.0 / (1.0 + pause / interval) / (1.0 + (interval / 2.0 + restart) / between_failures)
    }

    /// Specification §7.2. Its own figures, 0.918 and 0.923, are 0.2 % over what its formula gives at its τ*.
    #[test]
    fn the_worked_numbers_of_the_specification() {
        let m = Seconds::hours(3.09);
        for (pause, restart, tau, expected) in [(30.0, 180.0, Some(817.0), 0.9161), (5.0, 600.0, None, 0.9217)] {
            let (pause, restart) = (Seconds::new(pause), Seconds::new(restart));
            let tau = tau.map_or_else(|| Seconds::new((2.0 * m.get() * pause.get()).sqrt()), Seconds::new);
            let first = first_order(tau, pause, restart, m);
            assert!((first - expected).abs() < 0.0001, "{first}");
            assert!((useful(tau, pause, restart, m) - expected).abs() < 0.008, "{}", useful(tau, pause, restart, m));
        }
    }
}
