//! Stalls: runs that lose a fixed time in each micro-batch, which no layout explains.

use serde::{Deserialize, Serialize};

use super::normal::{MeanVariance, QuadratureNode, nodes, normal_density, normal_share_below};
use super::traits::Traits;

/// Classes of plans by their stages: one, two, where a stage has one neighbour, and more, where it has two.
pub const CLASSES: usize = 3;

/// Law of the stalls of a stack's runs. A run on n GPUs stalls with probability 1 − exp(−rate·n); then it takes
///
/// ```text
/// t = exp(x) + m·s        x its logarithmic time without stalls, m micro-batches, ln s normal (ln seconds, spread²)
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stalls {
    /// Rate of stalls per GPU of plans with one, two and more stages.
    pub rate: [f64; CLASSES],
    /// Median of the seconds that a micro-batch loses with one, two and more stages.
    pub seconds: [f64; CLASSES],
    /// Standard deviation of their logarithm.
    pub spread: f64,
}

/// Evidence of a stalled run: its density, and the moments of the step time without the stall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StalledRun {
    /// Density of the logarithmic time.
    pub density: f64,
    /// Logarithmic time without stalls.
    pub without: MeanVariance,
    /// Mean of e = ln(seconds lost/their median).
    pub error: f64,
    /// Mean of e².
    pub squared_error: f64,
}

impl Stalls {
    /// Class of a plan.
    pub fn class(traits: &Traits) -> usize {
        traits.stages.clamp(1, 3) as usize - 1
    }

    /// Stalls of a plan.
    pub fn of_plan(&self, traits: &Traits) -> StallsOfPlan {
        let class = Self::class(traits);
        StallsOfPlan {
            expected: self.rate[class] * libm::exp2(traits.log2_gpus),
            lost: libm::log(self.seconds[class] * traits.micro_batches),
            spread: self.spread,
        }
    }
}

/// Stalls of one plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallsOfPlan {
    /// Expected number; the plan stalls with probability 1 − exp(−this).
    pub expected: f64,
    /// Mean of the logarithm of the seconds that a step loses.
    lost: f64,
    /// Standard deviation of that logarithm.
    spread: f64,
}

impl StallsOfPlan {
    /// Evidence of a stalled run that took exp(`time`), its logarithmic time without stalls being normal. `None` where no stall
    /// explains it.
    pub fn stalled(&self, time: f64, mean: f64, deviation: f64) -> Option<StalledRun> {
        let total = libm::exp(time);
        let (mut density, mut first, mut second) = (0.0, 0.0, 0.0);
        let (mut errors, mut squares) = (0.0, 0.0);
        for QuadratureNode { value: without, weight } in nodes(mean, deviation).filter(|node| node.value < time) {
            let lost = total - libm::exp(without);
            let error = libm::log(lost) - self.lost;
            // d ln s / d ln t = t/(t − exp(x))
            let share = weight * normal_density(error, 0.0, self.spread) * total / lost;
            density += share;
            first += share * without;
            second += share * without * without;
            errors += share * error;
            squares += share * error * error;
        }
        (density > f64::MIN_POSITIVE).then(|| {
            let mean = first / density;
            StalledRun {
                density,
                without: MeanVariance { mean, variance: (second / density - mean * mean).max(0.0) },
                error: errors / density,
                squared_error: squares / density,
            }
        })
    }

    /// Probability that a stalled run takes less than exp(`time`).
    fn below(&self, time: f64, mean: f64, deviation: f64) -> f64 {
        let total = libm::exp(time);
        let share =
            |without: f64| normal_share_below((libm::log(total - libm::exp(without)) - self.lost) / self.spread);
        nodes(mean, deviation)
            .filter(|without| without.value < time)
            .map(|without| without.weight * share(without.value))
            .sum()
    }
}

/// Standard deviation of the logarithm of a cluster's rate of stalls against the stack's: a factor of two, assumed, since one
/// cluster has been measured.
const RATE_SPREAD: f64 = std::f64::consts::LN_2;

/// Scales weights so that they add up to 1, which those of a quadrature do to within its error.
fn normalize(rates: &mut [QuadratureNode]) {
    let all: f64 = rates.iter().map(|rate| rate.weight).sum();
    if all > 0.0 {
        for rate in rates {
            rate.weight /= all;
        }
    }
}

/// Probability that each plan stalls, averaged over relative rates.
fn chances(rates: &[QuadratureNode], points: &[StallsOfPlan]) -> Vec<f64> {
    let chance = |of: &StallsOfPlan| -> f64 {
        rates.iter().map(|rate| -rate.weight * libm::expm1(-rate.value * of.expected)).sum()
    };
    points.iter().map(chance).collect()
}

/// Belief about the stalls of the plans of one problem.
#[derive(Clone, Debug)]
pub(super) struct StallBelief {
    /// Relative rates with their weights.
    rates: Vec<QuadratureNode>,
    /// Stalls of each point.
    points: Vec<StallsOfPlan>,
    /// Probability of each point that it stalls.
    chances: Vec<f64>,
    /// Logarithmic times of the points that were measured.
    measured: Vec<Option<f64>>,
}

impl StallBelief {
    /// Belief before any trial.
    pub fn prior<'a>(law: &Stalls, points: impl Iterator<Item = &'a Traits>) -> Self {
        let points: Vec<StallsOfPlan> = points.map(|of| law.of_plan(of)).collect();
        let mut rates: Vec<QuadratureNode> =
            nodes(0.0, RATE_SPREAD).map(|node| QuadratureNode { value: libm::exp(node.value), ..node }).collect();
        normalize(&mut rates);
        Self { chances: chances(&rates, &points), measured: vec![None; points.len()], rates, points }
    }

    /// Belief about some of the points.
    pub fn marginal(&self, points: &[usize]) -> Self {
        Self {
            rates: self.rates.clone(),
            points: points.iter().map(|&at| self.points[at]).collect(),
            chances: points.iter().map(|&at| self.chances[at]).collect(),
            measured: points.iter().map(|&at| self.measured[at]).collect(),
        }
    }

    /// Conditions the rates on the measured logarithmic time of a point whose time without stalls is normal, and
    /// returns the latter.
    pub fn observe(&mut self, point: usize, time: f64, mean: f64, deviation: f64, noise: f64) -> MeanVariance {
        let of = self.points[point];
        self.measured[point] = Some(time);
        let spread = libm::hypot(deviation, noise);
        let chance = self.chances[point];
        // Where nearly all runs stall, 1 − chance would be rounding.
        let quiet_of = |rate: &QuadratureNode| libm::exp(-rate.value * of.expected);
        let quiet_chance: f64 = self.rates.iter().map(|rate| rate.weight * quiet_of(rate)).sum();
        let without = quiet_chance * normal_density(time, mean, spread);
        let stalled = of.stalled(time, mean, deviation);
        let with = stalled.map_or(0.0, |run| chance * run.density);
        let kept = (noise / spread).powi(2);
        let direct = MeanVariance { mean: time + kept * (mean - time), variance: kept * deviation.powi(2) };
        if without + with <= 0.0 {
            return direct;
        }
        let share = with / (without + with);
        for rate in &mut self.rates {
            let quiet = quiet_of(rate);
            let stalls = if chance > 0.0 { share * (1.0 - quiet) / chance } else { 0.0 };
            let runs_on = if quiet_chance > 0.0 { (1.0 - share) * quiet / quiet_chance } else { 0.0 };
            rate.weight *= stalls + runs_on;
        }
        normalize(&mut self.rates);
        self.chances = chances(&self.rates, &self.points);
        let hidden = stalled.map_or(direct, |run| run.without);
        let mean = share * hidden.mean + (1.0 - share) * direct.mean;
        let spread = |of: MeanVariance| of.variance + (of.mean - mean).powi(2);
        MeanVariance { mean, variance: share * spread(hidden) + (1.0 - share) * spread(direct) }
    }

    /// Logarithmic time of a draw: that without stalls, a uniform and a normal number.
    pub fn drawn(&self, point: usize, without: f64, uniform: f64, normal: f64) -> f64 {
        match self.measured[point] {
            Some(time) => time,
            None if uniform < self.chances[point] => {
                let of = self.points[point];
                libm::log(libm::exp(without) + libm::exp(of.lost + of.spread * normal))
            }
            None => without,
        }
    }

    /// Quantile of a run's logarithmic time at standard normal score `z`, where the time without stalls is normal.
    pub fn quantile(&self, point: usize, z: f64, mean: f64, deviation: f64) -> f64 {
        if let Some(time) = self.measured[point] {
            return time;
        }
        let (chance, of) = (self.chances[point], self.points[point]);
        let (deviation, share) = (deviation.max(1e-6), normal_share_below(z));
        let so_far = |time: f64| {
            chance * of.below(time, mean, deviation) + (1.0 - chance) * normal_share_below((time - mean) / deviation)
        };
        let mut low = mean - 6.0 * deviation;
        let mut high = (mean + 6.0 * deviation).max(of.lost + 6.0 * of.spread) + 1.0;
        while high - low > 1e-6 {
            let middle = f64::midpoint(low, high);
            if so_far(middle) < share { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> Stalls {
        Stalls { rate: [0.001, 0.002, 0.004], seconds: [1.0, 0.5, 1.0], spread: 0.4 }
    }

    fn traits(stages: u32, log2_gpus: f64) -> Traits {
        Traits { linear: [0.0; 13], coordinates: [0.0; 6], log2_gpus, micro_batches: 8.0, stages }
    }

    #[test]
    fn a_stalled_run_says_little_of_the_time_without() {
        let (of, mean) = (law().of_plan(&traits(4, 9.0)), libm::log(4.0));
        // 8 micro-batches of 1 s on top of 4 s
        let run = of.stalled(libm::log(12.0), mean, 0.2).unwrap();
        assert!((run.without.mean - mean).abs() < 0.05 && (run.without.variance.sqrt() - 0.2).abs() < 0.05, "{run:?}");
        assert!(of.stalled(libm::log(1.0), mean, 0.2).is_none(), "a stall only adds time");
        // Density and share below belong together.
        let (low, high) = (libm::log(11.9), libm::log(12.1));
        let share = of.below(high, mean, 0.2) - of.below(low, mean, 0.2);
        assert!((share / (high - low) - run.density).abs() < 0.01 * run.density, "{share} {run:?}");
    }

    #[test]
    fn quiet_runs_lower_the_rate_and_stalls_raise_it() {
        let (points, mean) = ([traits(4, 7.0), traits(4, 7.0), traits(1, 7.0)], libm::log(4.0));
        let prior = StallBelief::prior(&law(), points.iter());
        assert!(prior.chances[0] > prior.chances[2]);
        let mut quiet = prior.clone();
        let direct = quiet.observe(0, mean, mean, 0.1, 0.0);
        assert!((direct.mean - mean).abs() < 0.01 && direct.variance < 1e-3, "{direct:?}");
        assert!(quiet.chances[1] < prior.chances[1] - 0.02 && quiet.chances[2] < prior.chances[2]);
        let mut stalled = prior.clone();
        let hidden = stalled.observe(0, libm::log(12.0), mean, 0.1, 0.0);
        assert!(hidden.variance.sqrt() > 0.08, "{hidden:?}");
        assert!(stalled.chances[1] > prior.chances[1] + 0.02);
        assert!((stalled.drawn(0, mean, 0.0, 0.0) - libm::log(12.0)).abs() < 1e-12, "what was measured is known");
    }

    /// One quiet run of many GPUs lowers the rate, and does not end all stalls.
    #[test]
    fn a_quiet_run_on_many_gpus_leaves_stalls_probable() {
        for log2_gpus in [14.0, 16.0] {
            let (points, mean) = ([traits(4, log2_gpus), traits(4, log2_gpus)], libm::log(4.0));
            let mut belief = StallBelief::prior(&law(), points.iter());
            let before = belief.chances[1];
            belief.observe(0, mean, mean, 0.1, 0.0);
            assert!(belief.chances[1] <= before && belief.chances[1] > 0.5, "{before} {}", belief.chances[1]);
            assert!((belief.rates.iter().map(|rate| rate.weight).sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_mixture() {
        let belief = StallBelief::prior(&law(), [traits(4, 9.0)].iter());
        let (chance, mean) = (belief.chances[0], libm::log(4.0));
        let median = belief.quantile(0, 0.0, mean, 0.1);
        // Half of the runs are below: those that do not stall, and of the others so many.
        let below = chance * law().of_plan(&traits(4, 9.0)).below(median, mean, 0.1);
        assert!((1.0 - chance + below - 0.5).abs() < 1e-3, "{chance} {median}");
        assert!(belief.quantile(0, -1.645, mean, 0.1) < libm::log(4.1));
    }
}
