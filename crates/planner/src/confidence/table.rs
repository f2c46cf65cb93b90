//! Quantiles of measured/predicted ratios: of step times by class of run, of peak memory by family of frameworks.

use super::class::RunClass;
use super::interval::Interval;
use meshwright_engine::model::MixerKind;
use meshwright_engine::range;
use meshwright_engine::stack::Family;
use serde::{Deserialize, Serialize};

/// Levels of the stored quantiles.
pub const LEVELS: [f64; 21] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99,
    0.995,
];
/// Quantile levels of the ends of the 90 % interval.
const ENDS: Interval<f64> = Interval { low: 0.05, high: 0.95 };

/// Value of a sample with its weight; repeats of one measurement share a weight of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted {
    /// The value.
    pub value: f64,
    /// Its weight, above 0.
    pub weight: f64,
}

/// Quantiles of the measured/predicted ratio.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// Number of runs behind them.
    pub runs: u32,
    /// Ratio at each of [`LEVELS`].
    pub values: Vec<f64>,
}

impl Quantiles {
    /// Weighted quantiles of ratios with the finite-sample correction of split-conformal prediction, so that a new run lies
    /// outside with at most the stated probability:
    ///
    /// ```text
    /// below ½ the ⌊(n+1)·q⌋-th smallest, above it the ⌈(n+1)·q⌉-th; past the ends, the ends
    /// ```
    ///
    /// n is the sum of the weights, and ranks count weight. `None` if there are no ratios.
    pub fn of(ratios: &[Weighted]) -> Option<Self> {
        let mut sorted = ratios.to_vec();
        sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
        let n: f64 = sorted.iter().map(|ratio| ratio.weight).sum();
        let (first, last) = (sorted.first()?.value, sorted.last()?.value);
        let below = |wanted: f64| {
            let mut sum = 0.0;
            let mut found = first;
            for ratio in &sorted {
                sum += ratio.weight;
                if sum > wanted + 1e-9 {
                    break;
                }
                found = ratio.value;
            }
            found
        };
        let above = |wanted: f64| {
            let mut sum = 0.0;
            for ratio in &sorted {
                sum += ratio.weight;
                if sum >= wanted - 1e-9 {
                    return ratio.value;
                }
            }
            last
        };
        let values = LEVELS.map(|level| {
            if level < 0.5 { below(((n + 1.0) * level).floor()) } else { above(((n + 1.0) * level).ceil()) }
        });
        Some(Self { runs: n.round() as u32, values: values.into() })
    }

    /// Checks that there is a value above 0 for each level, in order.
    fn check(&self) -> Result<(), String> {
        let ordered = self.values.windows(2).all(|pair| pair[0] <= pair[1]);
        if self.values.len() == LEVELS.len() && ordered && self.values[0] > 0.0 {
            Ok(())
        } else {
            Err(format!("{} quantiles above 0, in order, are needed", LEVELS.len()))
        }
    }

    /// These quantiles, at each level the further of them and others from the median.
    #[must_use]
    pub fn widened(mut self, others: &Self) -> Self {
        for ((value, other), level) in self.values.iter_mut().zip(&others.values).zip(LEVELS) {
            *value = if level < 0.5 { value.min(*other) } else { value.max(*other) };
        }
        self
    }

    /// Interval that covers nine runs of ten, as factors of the prediction.
    pub fn interval(&self) -> Interval<f64> {
        ENDS.map(|level| self.level(level))
    }

    /// Factor that a share `level` of runs does not exceed, linear between the stored levels.
    pub fn level(&self, level: f64) -> f64 {
        let points = || LEVELS.iter().copied().zip(self.values.iter().copied());
        let low = points().take_while(|(at, _)| *at <= level + 1e-12).last();
        let high = points().find(|(at, _)| *at >= level - 1e-12);
        match (low, high) {
            (Some((a, x)), Some((b, y))) if b > a => x + (y - x) * (level - a) / (b - a),
            (Some((_, x)), _) | (None, Some((_, x))) => x,
            (None, None) => 1.0,
        }
    }

    /// Smallest share that a sample of n runs resolves, 1/(n+1).
    pub fn least_share(&self) -> f64 {
        1.0 / (f64::from(self.runs.max(1)) + 1.0)
    }

    /// Share of runs whose factor exceeds `factor`; never under the smallest that the sample resolves, nor over its complement.
    pub(crate) fn share_above(&self, factor: f64) -> f64 {
        let least = self.least_share();
        (1.0 - self.share_at_or_under(factor)).clamp(least, 1.0 - least)
    }

    /// Share of runs whose factor is at most `factor`, linear between the stored levels: none below the first, all from
    /// the last on.
    pub(super) fn share_at_or_under(&self, factor: f64) -> f64 {
        match self.values.iter().position(|value| *value > factor) {
            None => 1.0,
            Some(0) => 0.0,
            Some(at) => {
                let (below, above) = (self.values[at - 1], self.values[at]);
                LEVELS[at - 1] + (LEVELS[at] - LEVELS[at - 1]) * (factor - below) / (above - below)
            }
        }
    }
}

/// Difference in prediction that is needed to tell two plans of one problem apart.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OrderGap {
    /// Predicted ratio (slower/faster − 1) from which on nine of ten measured pairs were in the predicted order.
    pub gap: f64,
    /// Number of pairs behind it.
    pub pairs: u32,
}

/// Quantiles of the step time of one class.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OfClass {
    /// Class of the runs.
    pub class: RunClass,
    /// Quantiles of step times.
    pub time: Quantiles,
}

/// Quantiles of the peak memory of one family of frameworks.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OfFamily {
    /// The family; none for all that have no measured peak.
    pub family: Option<Family>,
    /// Quantiles of peak memory.
    pub memory: Quantiles,
}

/// Names of the stacks in the calibration runs, by kind of model: what a stack's dense runs show says little about its kernels and
/// exchanges of experts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stacks {
    /// Stacks with runs of dense models.
    pub dense: Vec<String>,
    /// Stacks with runs of models that route tokens to experts.
    pub moe: Vec<String>,
}

impl Stacks {
    /// Whether the calibration includes runs of a stack with models of a kind.
    pub fn include(&self, stack: &str, experts: bool) -> bool {
        let of_kind = if experts { &self.moe } else { &self.dense };
        of_kind.iter().any(|name| name == stack)
    }
}

/// Rate of networks of published runs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRate {
    /// Rate over that of the device's usual adapter.
    pub ratio: f64,
    /// Share of the sources whose network has it.
    pub share: f64,
}

/// Table of prediction errors by class, with its provenance.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Name as printed.
    pub name: String,
    /// Day of the calibration.
    pub date: String,
    /// Key of the source of the runs.
    pub source: String,
    /// Fit that was in use when the errors were measured.
    pub fit: String,
    /// Names of the GPUs in the calibration runs.
    pub gpus: Vec<String>,
    /// Kinds of mixers in the calibration runs.
    pub mixers: Vec<MixerKind>,
    /// Names of the stacks in the calibration runs.
    pub stacks: Stacks,
    /// Difference that tells plans apart.
    pub apart: OrderGap,
    /// Rates of the networks of runs that state theirs.
    pub networks: Vec<NetworkRate>,
    /// Quantiles of step times of every class.
    pub classes: Vec<OfClass>,
    /// Quantiles of peak memory of every family with measured peaks, and of the others.
    pub families: Vec<OfFamily>,
}

impl Table {
    /// Quantiles of step times.
    pub fn time(&self, class: RunClass) -> &Quantiles {
        let of = self.classes.iter().find(|of| of.class == class);
        &of.expect("Table::check: every class is there").time
    }

    /// Quantiles of peak memory. What a mixer without runs keeps, no run of the family shows: nowhere are they narrower than
    /// those of a family without a measured peak.
    pub fn memory(&self, family: Family, known_mixers: bool) -> Quantiles {
        let of_family = |family| self.families.iter().find(|of| of.family == family).map(|of| &of.memory);
        let others = of_family(None).expect("Table::check: the others are there");
        let own = of_family(Some(family)).unwrap_or(others).clone();
        if known_mixers { own } else { own.widened(others) }
    }

    /// Checks that every class and the families without a measured peak are present, and that quantiles are complete and
    /// ascending.
    ///
    /// # Errors
    ///
    /// A class is missing, or its quantiles are too few or not in order.
    pub fn check(&self) -> Result<(), String> {
        for class in RunClass::all() {
            let of = self.classes.iter().find(|of| of.class == class).ok_or_else(|| format!("no class: {class}"))?;
            of.time.check().map_err(|why| format!("{class}: {why}"))?;
        }
        if self.families.iter().all(|of| of.family.is_some()) {
            return Err("no memory of families without a measured peak".into());
        }
        if !self
            .networks
            .iter()
            .all(|of| range::FACTOR.check("ratio", of.ratio).is_ok() && of.share > 0.0 && of.share <= 1.0)
        {
            return Err("rates of networks are ratios above 0, with shares of at most 1".into());
        }
        self.families.iter().try_for_each(|of| of.memory.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(n: u32) -> Quantiles {
        let ratios: Vec<Weighted> = (1..=n).map(|at| Weighted { value: f64::from(at), weight: 1.0 }).collect();
        Quantiles::of(&ratios).unwrap()
    }

    #[test]
    fn quantiles_have_the_correction_of_a_finite_sample() {
        // 99 ratios 1, 2, … 99: the ⌊100·0.05⌋-th is 5, the ⌈100·0.95⌉-th is 95
        assert_eq!(even(99).interval(), Interval { low: 5.0, high: 95.0 });
        // 9 ratios cannot resolve one run in twenty: the extremes
        assert_eq!(even(9).interval(), Interval { low: 1.0, high: 9.0 });
    }

    #[test]
    fn widened_quantiles_are_nowhere_nearer_to_the_median() {
        let (ratio, wide) = (even(99), even(199));
        let widened = ratio.clone().widened(&wide);
        assert_eq!(widened.interval(), Interval { low: ratio.interval().low, high: wide.interval().high });
        assert_eq!((&widened.clone().widened(&ratio), widened.runs), (&widened, ratio.runs));
    }

    #[test]
    fn a_new_run_is_inside_as_often_as_promised() {
        // Leave each of 200 out in turn: at least nine of ten are inside the interval of the others.
        let ratios: Vec<f64> = (0..200).map(|at| (f64::from(at) * 0.618_034).fract()).collect();
        let inside = (0..ratios.len())
            .filter(|&out| {
                let others = ratios.iter().enumerate().filter(|(at, _)| *at != out);
                let others: Vec<Weighted> = others.map(|(_, &value)| Weighted { value, weight: 1.0 }).collect();
                Quantiles::of(&others).unwrap().interval().contains(&ratios[out])
            })
            .count();
        assert!((178..=186).contains(&inside), "{inside} of 200");
    }

    #[test]
    fn shares_are_read_back_from_levels() {
        let quantiles = even(199);
        for level in [0.05, 0.33, 0.5, 0.8, 0.97] {
            let share = quantiles.share_above(quantiles.level(level));
            assert!((share - (1.0 - level)).abs() < 1e-9, "{level} {share}");
        }
        assert!((quantiles.share_above(1e9) - 1.0 / 200.0).abs() < 1e-12, "never certain");
        assert!((quantiles.share_above(0.0) - 199.0 / 200.0).abs() < 1e-12);
    }

    #[test]
    fn repeats_weigh_as_one() {
        let of = |value, weight| Weighted { value, weight };
        let once = Quantiles::of(&[of(1.0, 1.0), of(2.0, 1.0), of(3.0, 1.0)]).unwrap();
        let twice = Quantiles::of(&[of(1.0, 1.0), of(2.0, 0.5), of(2.0, 0.5), of(3.0, 1.0)]).unwrap();
        assert_eq!(once, twice);
    }
}
