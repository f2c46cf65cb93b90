//! Rates of the networks of published runs, over those of their devices' usual adapters.

use std::collections::BTreeMap;

use super::sample::PredictedRun;
use crate::runs::network_rate_of;
use meshwright_planner::confidence::NetworkRate;

/// Steps per unit to which ratios and shares are rounded.
const THOUSANDTHS: f64 = 1e3;

/// Rates of the networks that runs state. A source weighs as one, whatever its runs: they ran on its own machines.
pub(super) fn rates<'s>(samples: impl Iterator<Item = &'s PredictedRun<'s>>) -> Vec<NetworkRate> {
    let mut of_source: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        if let Some(ratio) = network_rate_of(sample.row) {
            of_source.entry(sample.set()).or_default().push(ratio);
        }
    }
    shares(of_source.into_values().collect())
}

/// Shares of ratios, by ascending ratio, where each list weighs as one.
fn shares(lists: Vec<Vec<f64>>) -> Vec<NetworkRate> {
    let all = lists.len() as f64;
    let mut found: BTreeMap<u64, f64> = BTreeMap::new();
    for list in lists {
        let each = 1.0 / (list.len() as f64 * all);
        for ratio in list {
            *found.entry((ratio * THOUSANDTHS).round() as u64).or_default() += each;
        }
    }
    let rate = |(ratio, share): (u64, f64)| NetworkRate {
        ratio: ratio as f64 / THOUSANDTHS,
        share: (share * THOUSANDTHS).round() / THOUSANDTHS,
    };
    found.into_iter().map(rate).filter(|rate| rate.ratio > 0.0 && rate.share > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_weighs_as_one() {
        let found = shares(vec![vec![1.0; 99], vec![0.5], vec![0.25, 1.0]]);
        let found: Vec<(f64, f64)> = found.iter().map(|of| (of.ratio, of.share)).collect();
        assert_eq!(found, [(0.25, 0.167), (0.5, 0.333), (1.0, 0.5)]);
        assert!(shares(Vec::new()).is_empty());
    }
}
