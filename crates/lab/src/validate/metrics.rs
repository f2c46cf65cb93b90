//! Error metrics: pure functions of numbers.

use meshwright_planner::confidence::Weighted;
use serde::Serialize;

/// Prediction with its measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedPair {
    /// Predicted value.
    pub predicted: f64,
    /// Measured value, above 0.
    pub measured: f64,
    /// Weight; repeats of one measurement share a weight of 1.
    pub weight: f64,
}

impl PredictedPair {
    /// Signed relative error: `predicted/measured − 1`.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Weighted error statistics of a set of pairs, as shares; empty sets have none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Number of pairs.
    pub n: usize,
    /// Number of measurements: the sum of the weights.
    pub weight: f64,
    /// Mean absolute percentage error (MAPE): mean of `|predicted/measured − 1|`.
    pub mean_ape: f64,
    /// Median of the absolute relative error.
    pub median_ape: f64,
    /// 90th percentile of the absolute relative error.
    pub p90_ape: f64,
    /// Maximum of the absolute relative error.
    pub worst_ape: f64,
    /// Bias: mean of `predicted/measured − 1`.
    pub bias: f64,
}

/// Weighted error statistics of pairs.
pub fn errors(pairs: &[PredictedPair]) -> Option<Errors> {
    let weight: f64 = pairs.iter().map(|pair| pair.weight).sum();
    if pairs.is_empty() || weight <= 0.0 {
        return None;
    }
    let mean = |of: fn(&PredictedPair) -> f64| pairs.iter().map(|pair| pair.weight * of(pair)).sum::<f64>() / weight;
    let size = |pair: &PredictedPair| Weighted { value: pair.error().abs(), weight: pair.weight };
    let sizes: Vec<Weighted> = pairs.iter().map(size).collect();
    Some(Errors {
        n: pairs.len(),
        weight,
        mean_ape: mean(|pair| pair.error().abs()),
        median_ape: quantile(&sizes, 0.5),
        p90_ape: quantile(&sizes, 0.9),
        worst_ape: sizes.iter().map(|size| size.value).fold(0.0, f64::max),
        bias: mean(PredictedPair::error),
    })
}

/// Weighted quantile: the least value with at least a share `q` of the weight at or below it. 0 for an empty list.
pub(crate) fn quantile(values: &[Weighted], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
    let wanted = q * sorted.iter().map(|of| of.weight).sum::<f64>();
    let mut below = 0.0;
    for of in &sorted {
        below += of.weight;
        if below >= wanted - 1e-9 {
            return of.value;
        }
    }
    sorted.last().map_or(0.0, |of| of.value)
}

/// Spearman's rank correlation of two lists of equal length; ties take their mean rank. `None` for fewer than 2 values or a
/// constant list.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let n = a.len() as f64;
    if a.len() < 2 || a.len() != b.len() {
        return None;
    }
    let mean = f64::midpoint(n, 1.0);
    let moment = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (moment(&a, &a) * moment(&b, &b)).sqrt();
    (spread > 0.0).then(|| moment(&a, &b) / spread)
}

/// Ranks from 1; ties take their mean.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let ties = order[from..].iter().take_while(|&&at| values[at] <= values[order[from]]).count();
        for &at in &order[from..from + ties] {
            ranks[at] = from as f64 + f64::midpoint(ties as f64, 1.0);
        }
        from += ties;
    }
    ranks
}

/// Regret of a choice among measured plans.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Regret {
    /// Measured time of the plan predicted fastest, relative to the best measured, minus 1.
    pub first: f64,
    /// Best measured time of the three plans predicted fastest, relative to the best measured, minus 1.
    pub best_of_three: f64,
}

/// Regret of choosing by prediction among plans; `None` for fewer than two.
pub fn regret(plans: &[PredictedPair]) -> Option<Regret> {
    const TRIED: usize = 3;
    let mut by_prediction = plans.to_vec();
    by_prediction.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
    let best = |plans: &[PredictedPair]| plans.iter().map(|plan| plan.measured).fold(f64::INFINITY, f64::min);
    let least = best(&by_prediction);
    if by_prediction.len() < 2 || least <= 0.0 {
        return None;
    }
    let tried = &by_prediction[..TRIED.min(by_prediction.len())];
    Some(Regret { first: by_prediction[0].measured / least - 1.0, best_of_three: best(tried) / least - 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(predicted: f64, measured: f64, weight: f64) -> PredictedPair {
        PredictedPair { predicted, measured, weight }
    }

    #[test]
    fn errors_of_four_pairs() {
        let pairs = [pair(11.0, 10.0, 1.0), pair(8.0, 10.0, 1.0), pair(10.0, 10.0, 1.0), pair(13.0, 10.0, 1.0)];
        let errors = errors(&pairs).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(errors.mean_ape, 0.15);
        close(errors.bias, 0.05);
        close(errors.median_ape, 0.1);
        close(errors.p90_ape, 0.3);
        close(errors.worst_ape, 0.3);
    }

    #[test]
    fn a_repeat_weighs_as_one() {
        let once = errors(&[pair(12.0, 10.0, 1.0), pair(10.0, 10.0, 1.0)]).unwrap();
        let twice = errors(&[pair(12.0, 10.0, 0.5), pair(12.0, 10.0, 0.5), pair(10.0, 10.0, 1.0)]).unwrap();
        assert!((once.mean_ape - twice.mean_ape).abs() < 1e-12 && (once.bias - twice.bias).abs() < 1e-12);
        assert!(errors(&[]).is_none());
    }

    #[test]
    fn rank_correlation_is_that_of_the_textbook() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]), Some(1.0));
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        // One tie: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
        let rho = spearman(&[1.0, 2.0, 2.0, 4.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((rho - 0.948_683_298).abs() < 1e-6, "{rho}");
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn regret_is_what_the_choice_costs() {
        let plans = [(1.0, 12.0), (2.0, 11.0), (3.0, 13.0), (4.0, 10.0)];
        let regret = regret(&plans.map(|(predicted, measured)| pair(predicted, measured, 1.0))).unwrap();
        assert!((regret.first - 0.2).abs() < 1e-12 && (regret.best_of_three - 0.1).abs() < 1e-12);
        assert!(super::regret(&[pair(1.0, 1.0, 1.0)]).is_none());
    }
}
