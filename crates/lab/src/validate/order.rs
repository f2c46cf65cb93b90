//! Order of pairs of runs: whether the run that was measured faster is predicted faster.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{number, text};
use super::metrics::PredictedPair;
use super::pairs::time_pair;
use super::sample::PredictedRun;

/// Least relative difference of two measured step times whose order counts.
pub const LEAST_DIFFERENCE: f64 = 0.05;

/// Share of pairs that are predicted in the measured order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PairOrder {
    /// Name of the set, or `all`.
    pub class: String,
    /// Number of pairs.
    pub pairs: usize,
    /// Number of pairs whose faster run is predicted faster.
    pub ordered: usize,
}

impl PairOrder {
    /// Share of the pairs in order; none without pairs.
    pub fn share(&self) -> Option<f64> {
        (self.pairs > 0).then(|| self.ordered as f64 / self.pairs as f64)
    }

    /// Adds the pairs of some runs.
    fn count(&mut self, runs: &[PredictedPair]) {
        for (at, one) in runs.iter().enumerate() {
            for other in &runs[at + 1..] {
                let (fast, slow) = if one.measured <= other.measured { (one, other) } else { (other, one) };
                if slow.measured >= fast.measured * (1.0 + LEAST_DIFFERENCE) {
                    self.pairs += 1;
                    self.ordered += usize::from(fast.predicted < slow.predicted);
                }
            }
        }
    }
}

/// Order of the pairs of each set, all pairs first.
///
/// A pair is two runs of one model, GPU, number of GPUs, batch, precision and framework whose measured step times differ by
/// [`LEAST_DIFFERENCE`] or more. Equal predictions are not in order.
pub fn orders(ran: &[PredictedRun]) -> Vec<PairOrder> {
    let mut groups: BTreeMap<(String, String), Vec<PredictedPair>> = BTreeMap::new();
    for sample in ran {
        if let Some(pair) = time_pair(sample) {
            groups.entry((sample.set().to_owned(), key(sample))).or_default().push(pair);
        }
    }
    let mut all = PairOrder { class: "all".into(), ..PairOrder::default() };
    let mut sets: BTreeMap<String, PairOrder> = BTreeMap::new();
    for ((set, _), runs) in groups {
        let of_set = sets.entry(set.clone()).or_insert_with(|| PairOrder { class: set, ..PairOrder::default() });
        for order in [&mut all, of_set] {
            order.count(&runs);
        }
    }
    std::iter::once(all).chain(sets.into_values()).filter(|order| order.pairs > 0).collect()
}

/// Key of the properties that the runs of a pair share.
fn key(sample: &PredictedRun) -> String {
    let row = sample.row;
    [
        text(row.model_name.as_ref()),
        text(row.gpu.as_ref()),
        number(row.gpus_total, ""),
        number(row.global_batch, ""),
        text(row.dtype.as_ref()),
        text(row.framework.as_ref()),
    ]
    .join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_closer_than_the_least_difference_do_not_count() {
        let counted = |runs: &[(f64, f64)]| {
            let pair = |&(predicted, measured): &(f64, f64)| PredictedPair { predicted, measured, weight: 1.0 };
            let mut order = PairOrder::default();
            order.count(&runs.iter().map(pair).collect::<Vec<_>>());
            (order.pairs, order.ordered)
        };
        assert_eq!(counted(&[(1.0, 10.0), (2.0, 10.4)]), (0, 0));
        assert_eq!(counted(&[(1.0, 10.0), (2.0, 10.5)]), (1, 1));
        assert_eq!(counted(&[(2.0, 10.0), (2.0, 20.0)]), (1, 0), "equal predictions are not in order");
        assert_eq!(counted(&[(1.0, 10.0), (3.0, 20.0), (2.0, 30.0)]), (3, 2));
    }
}
