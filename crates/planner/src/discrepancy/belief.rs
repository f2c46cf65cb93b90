//! Joint normal law of the logarithmic step times of plans, and its conditioning on a measurement.

use super::memory::NINETY;
use super::stalls::StallBelief;
use super::table::DiscrepancyTable;
use super::traits::Traits;
use crate::confidence::Interval;

/// Plan on a number of GPUs whose step time the belief is about.
#[derive(Clone, Copy, Debug)]
pub struct BeliefPoint {
    /// Traits of the plan there.
    pub traits: Traits,
    /// Logarithm of the predicted step time in seconds.
    pub predicted: f64,
    /// Number of the plan; the same on any number of GPUs.
    pub plan: usize,
}

/// Covariance of the deviations of two plans of one problem at a scale of 1, without what the coefficients of the stack add:
///
/// ```text
/// exp(−|Δ log₂ GPUs|/reach) · (Σ_j within_j² φ_j φ'_j + smooth² · exp(−½ |x − x'|²/length²) + own² · [same plan])
/// ```
pub fn covariance(table: &DiscrepancyTable, a: (&Traits, usize), b: (&Traits, usize)) -> f64 {
    let products = table.traits.iter().zip(a.0.linear.iter().zip(&b.0.linear));
    let linear: f64 = products.map(|(spread, (x, y))| spread.within.powi(2) * x * y).sum();
    let apart: f64 = a.0.coordinates.iter().zip(&b.0.coordinates).map(|(x, y)| (x - y).powi(2)).sum();
    let smooth = table.smooth.powi(2) * libm::exp(-0.5 * apart / table.length.powi(2));
    let own = if a.1 == b.1 { table.own.powi(2) } else { 0.0 };
    libm::exp(-(a.0.log2_gpus - b.0.log2_gpus).abs() / table.reach) * (linear + smooth + own)
}

/// Joint law of logarithmic step times: normal without stalls.
#[derive(Clone, Debug)]
pub struct Belief {
    /// Mean of each point's ln seconds without stalls.
    mean: Vec<f64>,
    /// Covariance, row by row.
    covariance: Vec<Vec<f64>>,
    /// Stalls, where the stack has some.
    stalls: Option<StallBelief>,
}

impl Belief {
    /// Joint normal law, without stalls.
    pub const fn normal(mean: Vec<f64>, covariance: Vec<Vec<f64>>) -> Self {
        Self { mean, covariance, stalls: None }
    }

    /// Law before any trial, for plans of one problem on a stack.
    pub fn prior(table: &DiscrepancyTable, stack: &str, points: &[BeliefPoint]) -> Self {
        let (mean, coefficients) = table.coefficients(stack);
        let variance = table.scale(stack).powi(2);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let spread: Vec<Vec<f64>> = points
            .iter()
            .map(|point| coefficients.iter().map(|row| dot(row, &point.traits.linear)).collect())
            .collect();
        let shared = |a: usize, b: usize| dot(&spread[a], &points[b].traits.linear);
        let traits_of = |at: usize| (&points[at].traits, points[at].plan);
        let all = 0..points.len();
        Self {
            mean: points.iter().map(|point| point.predicted + dot(&mean, &point.traits.linear)).collect(),
            covariance: all
                .clone()
                .map(|a| {
                    all.clone()
                        .map(|b| shared(a, b) + variance * covariance(table, traits_of(a), traits_of(b)))
                        .collect()
                })
                .collect(),
            stalls: table.stalls(stack).map(|law| StallBelief::prior(law, points.iter().map(|point| &point.traits))),
        }
    }

    /// Conditions the law on a measured ln seconds of a point, with the standard deviation of the measurement:
    ///
    /// ```text
    /// μ ← μ + Σ_i (y − μ_i)/(Σ_ii + σ²)      Σ ← Σ − Σ_i Σ_iᵀ/(Σ_ii + σ²)
    /// ```
    ///
    /// A run that may have stalled gives a mean m and a variance v of its time without stalls (the moments of the mixture;
    /// assumed-density filtering [minka-2001]):
    ///
    /// ```text
    /// μ ← μ + Σ_i (m − μ_i)/Σ_ii             Σ ← Σ − Σ_i Σ_iᵀ (Σ_ii − v)/Σ_ii²
    /// ```
    pub fn observe(&mut self, point: usize, measured: f64, deviation: f64) {
        let column = self.covariance[point].clone();
        let (own, mean) = (column[point], self.mean[point]);
        let (surprise, gain) = match &mut self.stalls {
            None => {
                let variance = own + deviation.powi(2);
                ((measured - mean) / variance, 1.0 / variance)
            }
            Some(stalls) => {
                let without = stalls.observe(point, measured, mean, own.max(0.0).sqrt(), deviation);
                ((without.mean - mean) / own, (own - without.variance) / own.powi(2))
            }
        };
        if !surprise.is_finite() || !gain.is_finite() {
            return;
        }
        for (at, with) in column.iter().enumerate() {
            self.mean[at] += with * surprise;
            for (entry, other) in self.covariance[at].iter_mut().zip(&column) {
                *entry -= with * other * gain;
            }
        }
    }

    /// Marginal law of some of the points, in the order given.
    #[must_use]
    pub fn marginal(&self, points: &[usize]) -> Self {
        let row = |&a: &usize| points.iter().map(|&b| self.covariance[a][b]).collect();
        Self {
            mean: points.iter().map(|&at| self.mean[at]).collect(),
            covariance: points.iter().map(row).collect(),
            stalls: self.stalls.as_ref().map(|stalls| stalls.marginal(points)),
        }
    }

    /// Median of a point's ln seconds.
    pub fn median(&self, point: usize) -> f64 {
        self.quantile(point, 0.0)
    }

    /// Interval of a point's ln seconds.
    pub fn interval(&self, point: usize) -> Interval<f64> {
        Interval { low: -NINETY, high: NINETY }.map(|z| self.quantile(point, z))
    }

    /// ln seconds of a draw, whose deviation from the mean without stalls is given; `random` yields a uniform and a normal number.
    pub(super) fn drawn(&self, point: usize, deviation: f64, random: impl FnOnce() -> (f64, f64)) -> f64 {
        let without = self.mean[point] + deviation;
        self.stalls.as_ref().map_or(without, |stalls| {
            let (uniform, normal) = random();
            stalls.drawn(point, without, uniform, normal)
        })
    }

    /// Covariance of the times without stalls, row by row.
    pub(super) fn covariance(&self) -> &[Vec<f64>] {
        &self.covariance
    }

    /// ln seconds below which a point's time is as probably as a standard normal number is below `z`.
    fn quantile(&self, point: usize, z: f64) -> f64 {
        let (mean, deviation) = (self.mean[point], self.covariance[point][point].max(0.0).sqrt());
        match &self.stalls {
            Some(stalls) => stalls.quantile(point, z, mean, deviation),
            None => mean + z * deviation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rank-one update equals the textbook formula for two correlated normals.
    #[test]
    fn a_measurement_moves_its_point_and_those_that_err_with_it() {
        let mut belief = Belief::normal(vec![1.0, 2.0], vec![vec![0.04, 0.02], vec![0.02, 0.09]]);
        belief.observe(0, 1.3, 0.1);
        // Gain 0.04/0.05 = 0.8 and 0.02/0.05 = 0.4 of a surprise of 0.3
        assert!((belief.mean[0] - 1.24).abs() < 1e-12 && (belief.mean[1] - 2.12).abs() < 1e-12, "{:?}", belief.mean);
        assert!((belief.covariance[0][0] - 0.008).abs() < 1e-12, "{:?}", belief.covariance);
        assert!((belief.covariance[1][1] - 0.082).abs() < 1e-12, "{:?}", belief.covariance);
        assert!((belief.interval(0).high - belief.median(0) - NINETY * 0.008_f64.sqrt()).abs() < 1e-12);
    }
}
