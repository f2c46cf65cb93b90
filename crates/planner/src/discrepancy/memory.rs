//! Probability that a plan fits in memory, given the memory errors of earlier trials.

use super::normal::normal_share_below;
use super::table::DiscrepancyTable;
use crate::confidence::{Interval, Quantiles};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Bytes;

/// Outcome of a trial as far as memory goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryEvidence {
    /// The plan ran; its memory error is at most its room.
    Fitted,
    /// The plan ran out of memory; its memory error exceeds its room.
    OutOfMemory,
    /// The plan failed for a reason that is not known.
    Failed,
    /// ln(measured/predicted) of the peak.
    Peak(f64),
}

/// Law of the memory error ln(actual/predicted) of plans of one problem: one part that they share, and one of their own.
///
/// ```text
/// r_i = a + e_i      a normal (median, shared·s²)      e_i normal (0, (1 − shared)·s²)
/// plan i runs out of memory if r_i > ln(device/predicted), its room (`memory_room`)
/// ```
///
/// A trial that ran out of memory is a censored observation of r_i. The posterior of `a` is kept on a grid.
#[derive(Clone, Debug)]
pub struct MemoryBelief {
    /// Values of the common part `a`, ascending.
    grid: Vec<GridPoint>,
    /// Standard deviation of `e_i`.
    own: f64,
    /// Share of runs that fail for other reasons than memory.
    crashes: f64,
}

/// One value of the common part of the memory error.
#[derive(Clone, Copy, Debug)]
struct GridPoint {
    /// The value.
    error: f64,
    /// Its probability; before the first observation, probabilities do not sum to one.
    weight: f64,
}

/// Room of a plan: ln(memory of the device / predicted peak).
pub fn memory_room(problem: &Problem, peak: Bytes) -> f64 {
    libm::log(problem.cluster().gpu.hbm.value / peak)
}

/// Standard normal quantile of 0.95, half the width of a 90 % interval in standard deviations.
pub const NINETY: f64 = 1.644_853_626_951_472_2;
/// Number of grid points on either side of the median.
const POINTS_A_SIDE: i32 = 60;
/// Half the range of the grid, in standard deviations of the common part.
const SPAN: f64 = 4.0;

impl MemoryBelief {
    /// Law before any trial: median and standard deviation of the memory error, the share of its variance that plans of a
    /// problem have in common, and the share of runs that fail for other reasons.
    pub fn prior(median: f64, deviation: f64, shared: f64, crashes: f64) -> Self {
        let common = deviation * shared.sqrt();
        let grid = (-POINTS_A_SIDE..=POINTS_A_SIDE).map(|step| {
            let z = SPAN * f64::from(step) / f64::from(POINTS_A_SIDE);
            GridPoint { error: median + z * common, weight: libm::exp(-0.5 * z * z) }
        });
        let own = (deviation * (1.0 - shared).sqrt()).max(1e-3);
        Self { grid: grid.collect(), own, crashes }
    }

    /// Law before any trial from quantiles of published memory errors.
    pub fn of_quantiles(table: &DiscrepancyTable, quantiles: &Quantiles) -> Self {
        let Interval { low, high } = quantiles.interval();
        let deviation = libm::log(high / low) / (2.0 * NINETY);
        Self::prior(libm::log(quantiles.level(0.5)), deviation, table.memory_shared, table.crashes)
    }

    /// Conditions the law on the outcome of a plan with this room.
    pub fn observe(&mut self, room: f64, evidence: MemoryEvidence) {
        let (own, crashes) = (self.own, self.crashes);
        for GridPoint { error, weight } in &mut self.grid {
            let fits = normal_share_below((room - *error) / own);
            *weight *= match evidence {
                MemoryEvidence::Fitted => fits,
                MemoryEvidence::OutOfMemory => 1.0 - fits,
                MemoryEvidence::Failed => 1.0 - (1.0 - crashes) * fits,
                MemoryEvidence::Peak(ratio) => libm::exp(-0.5 * ((ratio - *error) / own).powi(2)),
            }
            .max(1e-12); // an outcome that the model excludes must not leave a law of no weight
        }
        let sum: f64 = self.grid.iter().map(|point| point.weight).sum();
        self.grid.iter_mut().for_each(|point| point.weight /= sum);
    }

    /// Probability that a plan with this room runs.
    pub fn runs(&self, room: f64) -> f64 {
        let sum: f64 = self.grid.iter().map(|point| point.weight).sum();
        let fitting = |point: &GridPoint| point.weight * normal_share_below((room - point.error) / self.own);
        let fits: f64 = self.grid.iter().map(fitting).sum();
        (1.0 - self.crashes) * fits / sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_out_of_memory_warns_of_plans_like_it() {
        let prior = MemoryBelief::prior(0.0, 0.2, 0.5, 0.0);
        // The sum of two normals: Φ(0.2/0.2).
        assert!((prior.runs(0.2) - 0.841_3).abs() < 1e-3, "{}", prior.runs(0.2));
        let mut warned = prior.clone();
        warned.observe(0.3, MemoryEvidence::OutOfMemory);
        assert!(warned.runs(0.2) < prior.runs(0.2) - 0.1, "{}", warned.runs(0.2));
        let mut reassured = prior.clone();
        reassured.observe(0.0, MemoryEvidence::Fitted);
        assert!(reassured.runs(0.1) > prior.runs(0.1) + 0.02, "{}", reassured.runs(0.1));
        let mut known = prior;
        known.observe(0.0, MemoryEvidence::Peak(0.2));
        assert!(known.runs(0.2) < 0.8);
    }

    #[test]
    fn an_unexplained_failure_of_a_small_plan_says_little_about_memory() {
        let mut belief = MemoryBelief::prior(0.0, 0.1, 0.5, 0.05);
        let before = belief.runs(0.1);
        belief.observe(2.0, MemoryEvidence::Failed);
        assert!((belief.runs(0.1) - before).abs() < 0.01);
    }
}
