//! Quantiles of the peak memory by family of frameworks.
//!
//! A framework and its allocator decide what a rank holds, so the runs of a family say more about its next run than those of
//! others; but they come from few sources, and the next is another source. With S sources of the family, its runs weigh
//! S/(S + 1) and those of the other families the rest, as in Laplace's rule of succession: the next source resembles one of
//! those seen, or none of them.
//!
//! ```text
//! weight of a run = share · n^¾/Σ n^¾ · 1/n      n runs of its source, sum over the sources of its side
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::pairs::memory_pair;
use super::sample::PredictedRun;
use super::weights::{OF_SOURCE, outwards};
use crate::runs::Row;
use meshwright_engine::stack::Family;
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::confidence::{Interval, OfFamily, Quantiles, Weighted};

/// Ratio of a measured to a predicted peak, with the family of the framework and the source of the run.
#[derive(Clone, Debug)]
struct Peak {
    family: Family,
    source: String,
    ratio: f64,
    weight: f64,
}

/// Whether a run states the settings that decide its peak. Runs of nanotron with tensor parallelism that name no
/// recomputed modules leave out whether each layer keeps the inputs that it gathers, `4·(1 − 1/t)·s·b·h` bytes of it
/// ([nanotron] `tp_recompute_allgather`): the difference to their prediction is that of the setting, which whoever
/// plans a run knows.
fn states_its_peak(family: Family, row: &Row) -> bool {
    let tensor_parallel = row.tp.is_some_and(|degree| degree > 1.0);
    family != Family::Nanotron || !tensor_parallel || row.recompute_modules.is_some()
}

/// Peaks of runs that state the settings that decide them.
fn stated(runs: &[PredictedRun]) -> Vec<Peak> {
    let families = families_of_stacks();
    let peak = |run: &PredictedRun| {
        let pair = memory_pair(run)?;
        let family = *families.get(run.prediction.stack.as_deref()?).filter(|of| states_its_peak(**of, run.row))?;
        Some(Peak { family, source: run.set().to_owned(), ratio: pair.measured / pair.predicted, weight: pair.weight })
    };
    runs.iter().filter_map(peak).collect()
}

/// Peaks of a source on one family of frameworks against the interval that is made without the source.
#[derive(Clone, Debug)]
pub struct SourceCoverage {
    /// The source.
    pub source: String,
    /// The family.
    pub family: Family,
    /// Weight of its peaks, in runs.
    pub runs: f64,
    /// Weight of those that are inside.
    pub inside: f64,
    /// Weight of those above the interval, which run out of memory where 5 % were accepted.
    pub above: f64,
    /// The interval, as factors of the predicted peak.
    pub interval: Interval<f64>,
}

/// Coverage of the 90 % interval of peaks on each source, with the quantiles made from the other sources.
pub fn memory_coverage(runs: &[PredictedRun]) -> Vec<SourceCoverage> {
    let peaks = stated(runs);
    let groups: BTreeSet<(&str, Family)> = peaks.iter().map(|peak| (peak.source.as_str(), peak.family)).collect();
    let coverage_of = |(source, family): (&str, Family)| {
        let others: Vec<Peak> = peaks.iter().filter(|peak| peak.source != source).cloned().collect();
        let family_of_others = others.iter().any(|peak| peak.family == family).then_some(family);
        let interval = quantiles(&others, family_of_others)?.interval();
        let own = || peaks.iter().filter(|peak| peak.source == source && peak.family == family);
        let weight = |holds: &dyn Fn(f64) -> bool| own().filter(|peak| holds(peak.ratio)).map(|peak| peak.weight).sum();
        Some(SourceCoverage {
            source: source.to_owned(),
            family,
            runs: weight(&|_| true),
            inside: weight(&|ratio| interval.contains(&ratio)),
            above: weight(&|ratio| ratio > interval.high),
            interval,
        })
    };
    groups.into_iter().filter_map(coverage_of).collect()
}

/// Quantiles of every family with measured peaks, and of the families without.
pub(super) fn families(runs: &[PredictedRun]) -> Option<Vec<OfFamily>> {
    let peaks = stated(runs);
    let seen: BTreeSet<Family> = peaks.iter().map(|peak| peak.family).collect();
    let all = std::iter::once(None).chain(seen.into_iter().map(Some));
    all.map(|family| Some(OfFamily { family, memory: quantiles(&peaks, family)? })).collect()
}

/// Family of each stack of the catalogue, by its name.
fn families_of_stacks() -> BTreeMap<String, Family> {
    let read = |name| catalog::stack(name, &Overrides::default()).expect("tests read the stacks of the catalogue");
    catalog::stack_names().into_iter().map(read).map(|stack| (stack.name, stack.family)).collect()
}

/// Quantiles of a family, rounded outwards; of none, those of all runs.
fn quantiles(peaks: &[Peak], family: Option<Family>) -> Option<Quantiles> {
    let is_own = |peak: &&Peak| Some(peak.family) == family;
    let (own, others): (Vec<&Peak>, Vec<&Peak>) = peaks.iter().partition(is_own);
    let sources = own.iter().map(|peak| peak.source.as_str()).collect::<BTreeSet<_>>().len() as f64;
    let share = if others.is_empty() { 1.0 } else { sources / (sources + 1.0) };
    let mut weighted = by_source(&own, share);
    weighted.extend(by_source(&others, 1.0 - share));
    // As many runs of weight one as have the same variance of their mean.
    let effective = 1.0 / weighted.iter().map(|peak| peak.weight * peak.weight).sum::<f64>();
    for peak in &mut weighted {
        peak.weight *= effective;
    }
    Quantiles::of(&weighted).map(outwards)
}

/// Ratios of peaks with weights whose sum is `share`, which a source has the more of the more peaks it has, by the
/// power [`OF_SOURCE`].
fn by_source(peaks: &[&Peak], share: f64) -> Vec<Weighted> {
    let mut sizes: BTreeMap<&str, f64> = BTreeMap::new();
    for peak in peaks {
        *sizes.entry(&peak.source).or_default() += peak.weight;
    }
    let all: f64 = sizes.values().map(|size| size.powf(OF_SOURCE)).sum();
    let weighted = |peak: &&Peak| Weighted {
        value: peak.ratio,
        weight: peak.weight * share * sizes[peak.source.as_str()].powf(OF_SOURCE - 1.0) / all,
    };
    peaks.iter().map(weighted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks(family: Family, source: &str, ratios: &[f64]) -> Vec<Peak> {
        let peak_of = |ratio: &f64| Peak { family, source: source.to_owned(), ratio: *ratio, weight: 1.0 };
        ratios.iter().map(peak_of).collect()
    }

    #[test]
    fn a_family_is_known_by_its_sources_and_the_others_stand_for_the_next() {
        let wild = peaks(Family::Nanotron, "sweep", &[0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]);
        let one = peaks(Family::Megatron, "a", &[0.99, 1.0, 1.01, 1.0, 1.0, 0.98, 1.02, 1.0, 1.0, 1.0]);
        let two = [one.clone(), peaks(Family::Megatron, "b", &[1.0, 1.01, 0.99, 1.0, 1.0])].concat();
        let four_of_five = |own: &[Peak]| {
            let all = [own.to_vec(), wild.clone()].concat();
            quantiles(&all, Some(Family::Megatron)).unwrap().level(0.8)
        };
        // One source: half of the weight is of the others, eight of whose ten ratios are over 1.02.
        assert!(four_of_five(&one) > 2.0, "{}", four_of_five(&one));
        // Two sources: a third.
        assert!(four_of_five(&two) < four_of_five(&one), "{}", four_of_five(&two));
        let none = quantiles(&[two, wild.clone()].concat(), Some(Family::Jax)).unwrap();
        assert!(none.level(0.8) > 1.02, "{}", none.level(0.8));
    }
}
