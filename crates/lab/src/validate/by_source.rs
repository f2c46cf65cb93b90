//! Errors by source: each publisher counts once, whatever the number of its runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::metrics::{Errors, errors};
use super::pairs::{inside, time_pair};
use super::sample::{FEWEST_RUNS, PredictedRun};
use meshwright_planner::median::median;

/// Step-time errors of one class of runs by source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceSummary {
    /// Class of runs: `all`, `dense` or `MoE`.
    pub class: &'static str,
    /// Number of sources with five such runs or more.
    pub sources: usize,
    /// Median over those sources of the mean absolute error of each.
    pub median_of_means: f64,
    /// Mean over those sources of the mean absolute error of each.
    pub mean_of_means: f64,
    /// Errors over the runs of all sources.
    #[serde(flatten)]
    pub errors: Errors,
    /// Share of the runs inside the 90 % interval of their prediction.
    pub inside: Option<f64>,
}

/// Whether a run belongs to a class.
type Admits = fn(&PredictedRun) -> bool;

/// Errors by source of all timed runs, of the dense ones and of those with experts; a class without sources is left out.
pub(super) fn by_source(ran: &[PredictedRun]) -> Vec<SourceSummary> {
    #[allow(clippy::redundant_closure_for_method_calls)] // a method is not general over the lifetime
    let classes: [(&'static str, Admits); 3] =
        [("all", |_| true), ("dense", |of| !of.is_moe()), ("MoE", |of| of.is_moe())];
    classes.into_iter().filter_map(|(class, admits)| summary(class, ran, admits)).collect()
}

fn summary(class: &'static str, ran: &[PredictedRun], admits: Admits) -> Option<SourceSummary> {
    let members: Vec<PredictedRun> = ran.iter().filter(|sample| admits(sample)).copied().collect();
    let mut sources: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for sample in &members {
        if let Some(pair) = time_pair(sample) {
            sources.entry(sample.set()).or_default().push(pair);
        }
    }
    let mut means: Vec<f64> = sources
        .values()
        .filter(|pairs| pairs.len() >= FEWEST_RUNS)
        .filter_map(|pairs| Some(errors(pairs)?.mean_ape))
        .collect();
    means.sort_by(f64::total_cmp); // the sum is that of the ascending values, whatever the names of the sources
    Some(SourceSummary {
        class,
        sources: means.len(),
        mean_of_means: means.iter().sum::<f64>() / means.len() as f64,
        median_of_means: median(means)?,
        errors: errors(&members.iter().filter_map(time_pair).collect::<Vec<_>>())?,
        inside: inside(&members),
    })
}
