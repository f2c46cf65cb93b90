//! Step times under a network that nobody stated.
//!
//! A prediction assumes the device's usual adapter. Clusters of published runs whose source states the network have
//! that rate, twice, a half or a quarter of it, each with a share ρ. The plan is priced again at each rate, and the
//! ratio of measured to predicted time is that of the class, F, times the factor f of the rate that the cluster turns
//! out to have:
//!
//! ```text
//! P(measured/predicted ≤ x) = Σ ρ·F(x/f)          f = T(rate)/T(usual rate)
//! ```
//!
//! So the interval widens as far as the plan's exposed communication lets the rate matter, and no further; nowhere is
//! it narrower than that of the class.

use super::table::{LEVELS, NetworkRate, Quantiles};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::problem::Problem;

/// Halvings of a bracket until it is narrower than a ratio can be printed.
const HALVINGS: u32 = 48;
/// Relative change of step time below which a rate has no effect.
const NO_EFFECT: f64 = 1e-3;

/// Factor of a predicted step time with its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LikelyFactor {
    factor: f64,
    share: f64,
}

/// Factors of an evaluation's step time at each rate of the networks that the cluster assumes; empty where it assumes
/// none, or where the rate has no effect.
pub(super) fn factors(problem: &Problem, evaluation: &Evaluation, rates: &[NetworkRate]) -> Vec<LikelyFactor> {
    if problem.cluster().levels.iter().all(|level| !level.assumed) {
        return Vec::new();
    }
    let priced = |ratio: f64| {
        let at_rate = problem.changed(|cluster, _, _| {
            for level in cluster.levels.iter_mut().filter(|level| level.assumed) {
                level.bandwidth.value = level.bandwidth.value * ratio;
            }
        });
        at_rate.ok().map(|problem| Costs::new(&problem).with_unknown_splits().evaluate(&evaluation.plan).step.total())
    };
    let Some(usual) = priced(1.0) else { return Vec::new() };
    let factor = |rate: &NetworkRate| {
        let factor = priced(rate.ratio).map_or(1.0, |time| time / usual);
        LikelyFactor { factor, share: rate.share }
    };
    let found: Vec<LikelyFactor> = rates.iter().map(factor).collect();
    if found.iter().any(|of| (of.factor - 1.0).abs() > NO_EFFECT) { found } else { Vec::new() }
}

/// Quantiles of the product of two independent ratios: one with `quantiles`, one with the likely `factors`.
pub(super) fn product(quantiles: &Quantiles, factors: &[LikelyFactor]) -> Quantiles {
    let all: f64 = factors.iter().map(|of| of.share).sum();
    let (Some(first), Some(last)) = (quantiles.values.first(), quantiles.values.last()) else {
        return quantiles.clone();
    };
    if all <= 0.0 {
        return quantiles.clone();
    }
    let at_or_under = |ratio: f64| {
        factors.iter().map(|of| of.share * quantiles.share_at_or_under(ratio / of.factor)).sum::<f64>() / all
    };
    let least = factors.iter().map(|of| of.factor).fold(f64::INFINITY, f64::min) * first;
    let most = factors.iter().map(|of| of.factor).fold(0.0, f64::max) * last;
    let values = LEVELS.map(|level| {
        let (mut low, mut high) = (least, most);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if at_or_under(middle) < level { low = middle } else { high = middle }
        }
        high
    });
    Quantiles { runs: quantiles.runs, values: values.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confidence::table::Weighted;

    fn even() -> Quantiles {
        let ratio = |at: u32| Weighted { value: 1.0 + f64::from(at) / 1e3, weight: 1.0 };
        Quantiles::of(&(1..=999).map(ratio).collect::<Vec<_>>()).unwrap()
    }

    fn likely(factor: f64, share: f64) -> LikelyFactor {
        LikelyFactor { factor, share }
    }

    #[test]
    fn a_factor_that_is_certain_scales_every_quantile() {
        let scaled = product(&even(), &[likely(2.0, 0.7)]);
        for (value, own) in scaled.values.iter().zip(even().values) {
            assert!((value - 2.0 * own).abs() < 1e-9, "{value} {own}");
        }
    }

    #[test]
    fn two_rates_are_mixed_by_their_shares() {
        // Even between 1 and 2, and between 10 and 20 with a share of a fifth: 95 % is three quarters through the latter.
        let mixed = product(&even(), &[likely(1.0, 0.8), likely(10.0, 0.2)]);
        assert!((mixed.level(0.95) - 17.5).abs() < 0.05, "{}", mixed.level(0.95));
        // and 5 % is a sixteenth through the former.
        assert!((mixed.level(0.05) - 1.0625).abs() < 0.005, "{}", mixed.level(0.05));
    }
}
