//! Validation of predictions: errors of step time and memory by class, out-of-memory predictions, and regret of choices.

pub mod anomaly;
mod by_source;
pub mod calibrate;
mod cells;
pub mod choice;
pub mod cross;
pub mod filter;
mod memory;
pub mod metrics;
mod networks;
pub mod omitted;
pub mod order;
mod pairs;
pub mod sample;
pub mod sources;
mod weights;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::runs::{PredictionStatus, Row};
use anomaly::{Anomaly, anomalies};
use choice::{ChoiceScore, Choices, choices};
use filter::Filter;
use metrics::{Errors, PredictedPair, errors};
use omitted::{Unmeasured, Unpredicted, unmeasured, unpredicted};
use order::{PairOrder, orders};
use sample::{PredictedRun, outcome};

pub use by_source::SourceSummary;
use by_source::by_source;
pub use memory::{SourceCoverage, memory_coverage};
use pairs::inside;
pub use pairs::{memory_pair, time_pair};

/// Step-time errors of one class of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeClass {
    /// Property that defines the class: `all`, `set`, `gpu`, …
    pub by: &'static str,
    /// Value of the property.
    pub class: String,
    /// Number of runs with a measured step time.
    pub timed: usize,
    /// Share of the timed runs with a prediction.
    pub coverage: f64,
    /// Share of the predicted runs inside their 90 % interval.
    pub inside: Option<f64>,
    /// Errors of the predicted runs.
    #[serde(flatten)]
    pub errors: Option<Errors>,
}

/// Peak-memory errors of one kind of figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryClass {
    /// Kind: `allocated`, `reserved`, `device`, `unstated`, or all.
    pub kind: String,
    /// Errors of the predictions.
    #[serde(flatten)]
    pub errors: Errors,
}

/// Confusion matrix of out-of-memory predictions, over runs with a stated outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Oom {
    /// Runs that ran and were predicted to fit.
    pub true_fits: usize,
    /// Runs out of memory that were predicted to fit: a failed launch for the user.
    pub false_fits: usize,
    /// Runs out of memory that were predicted not to fit.
    pub true_ooms: usize,
    /// Runs that ran and were predicted not to fit.
    pub false_ooms: usize,
}

impl Oom {
    /// Share of the runs predicted to fit that were out of memory.
    pub fn false_fit_share(&self) -> f64 {
        ratio(self.false_fits, self.false_fits + self.true_fits)
    }

    /// Share of the runs out of memory that were predicted to fit.
    pub fn missed_share(&self) -> f64 {
        ratio(self.false_fits, self.false_fits + self.true_ooms)
    }

    /// Share of the runs that ran and were predicted not to fit.
    pub fn false_oom_share(&self) -> f64 {
        ratio(self.false_ooms, self.false_ooms + self.true_fits)
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Timed run with its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoredPoint {
    /// Name of the run.
    pub id: String,
    /// Source of the run.
    pub set: String,
    /// Whether the model routes tokens to experts.
    pub moe: bool,
    /// Measured step time in seconds.
    pub measured_s: f64,
    /// Predicted step time in seconds.
    pub predicted_s: f64,
    /// Relative error: `predicted/measured − 1`.
    pub error: f64,
}

/// Run that ran although its prediction does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TooLarge {
    /// Name of the run.
    pub id: String,
    /// Predicted memory of the device in GiB.
    pub predicted_gib: f64,
    /// Measured peak in GiB, where the source states one.
    pub measured_gib: Option<f64>,
    /// Recomputation as stated; empty if the source does not say.
    pub recompute: String,
}

/// Result of a validation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Number of runs after the filters.
    pub runs: usize,
    /// Step-time errors by class; the first class is all runs.
    pub time: Vec<TimeClass>,
    /// Step-time errors of sources: of all runs, of the dense ones, of those with experts.
    pub by_source: Vec<SourceSummary>,
    /// Memory errors by kind; the first kind is all runs.
    pub memory: Vec<MemoryClass>,
    /// Confusion matrix of out-of-memory predictions.
    pub oom: Oom,
    /// Confusion matrix of runs that state their recomputation.
    pub oom_stated: Oom,
    /// Runs that ran and were predicted not to fit, largest excess first.
    pub too_large: Vec<TooLarge>,
    /// Ranking quality among measured plans.
    pub choice: Choices,
    /// Ranking quality over all groups without contradicted runs.
    pub choice_uncontradicted: Option<ChoiceScore>,
    /// Order of measured pairs, all sets first; empty without pairs.
    pub order: Vec<PairOrder>,
    /// Runs that other runs contradict, independent of predictions.
    pub anomalies: Vec<Anomaly>,
    /// Runs without a prediction, by reason.
    pub unpredicted: Vec<Unpredicted>,
    /// Measured cells with invalid values, which count as blank.
    pub unmeasured: Vec<Unmeasured>,
    /// Timed and predicted runs, largest error first.
    pub points: Vec<ScoredPoint>,
}

/// Scores the samples that pass every filter; `witnesses` are not scored but may contradict scored runs.
pub fn score(samples: &[PredictedRun], filters: &[Filter], witnesses: &[Row]) -> Report {
    let kept: Vec<PredictedRun> =
        samples.iter().filter(|sample| filters.iter().all(|filter| filter.admits(sample))).copied().collect();
    let ran: Vec<PredictedRun> = kept.iter().filter(|sample| outcome(sample.row) == "ok").copied().collect();
    let anomalies = anomalies(&ran, witnesses);
    let uncontradicted: Vec<PredictedRun> = ran
        .iter()
        .filter(|sample| !anomalies.iter().any(|flagged| flagged.id == sample.prediction.id))
        .copied()
        .collect();
    Report {
        runs: kept.len(),
        time: time_classes(&ran),
        by_source: by_source(&ran),
        memory: memory_classes(&ran),
        oom: oom(&kept),
        oom_stated: oom(&kept.iter().filter(|sample| states_recompute(sample)).copied().collect::<Vec<_>>()),
        too_large: too_large(&ran),
        choice: choices(&ran),
        choice_uncontradicted: choices(&uncontradicted).classes.into_iter().next(),
        order: orders(&ran),
        anomalies,
        unpredicted: unpredicted(&kept),
        unmeasured: unmeasured(&kept),
        points: points(&ran),
    }
}

/// Classes of a run: property and value.
fn classes(sample: &PredictedRun) -> Vec<(&'static str, String)> {
    let text = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "not stated".into());
    let dense = if sample.is_moe() { "MoE" } else { "dense" };
    let mut classes = vec![
        ("all", "all".to_owned()),
        ("experts", dense.to_owned()),
        ("set", sample.set().to_owned()),
        ("GPU", text(&sample.row.gpu)),
        ("framework", text(&sample.row.framework)),
        ("stack", sample.prediction.stack.clone().unwrap_or_else(|| "not mapped".into())),
        ("precision", text(&sample.row.dtype)),
        ("schedule", sample.schedule().to_owned()),
        ("context parallel", sample.context_parallel().to_owned()),
        ("scale", sample.scale().name.to_owned()),
    ];
    if sample.is_megatron_core() {
        classes.push(("family", format!("Megatron-Core {dense}")));
    }
    if sample.is_fsdp() {
        classes.push(("family", "FSDP".into()));
    }
    classes
}

/// Order in which class properties are shown.
const BY: [&str; 11] = [
    "all",
    "experts",
    "family",
    "set",
    "GPU",
    "framework",
    "stack",
    "precision",
    "schedule",
    "context parallel",
    "scale",
];

fn time_classes(ran: &[PredictedRun]) -> Vec<TimeClass> {
    let mut members: BTreeMap<(usize, usize, String), (&'static str, Vec<PredictedRun>)> = BTreeMap::new();
    for sample in ran.iter().filter(|sample| sample.measured().is_some()) {
        for (by, class) in classes(sample) {
            let place = BY.iter().position(|known| *known == by).unwrap_or(BY.len());
            let size = if by == "scale" { sample.scale().place } else { 0 };
            members.entry((place, size, class)).or_insert_with(|| (by, Vec::new())).1.push(*sample);
        }
    }
    members
        .into_iter()
        .map(|((_, _, class), (by, members))| {
            let predicted = members.iter().filter(|sample| sample.prediction.step_time_s.is_some()).count();
            TimeClass {
                by,
                class,
                timed: members.len(),
                coverage: ratio(predicted, members.len()),
                inside: inside(&members),
                errors: errors(&members.iter().filter_map(time_pair).collect::<Vec<_>>()),
            }
        })
        .collect()
}

fn memory_classes(ran: &[PredictedRun]) -> Vec<MemoryClass> {
    let mut kinds: BTreeMap<(bool, String), Vec<PredictedPair>> = BTreeMap::new();
    for sample in ran {
        if let Some(pair) = memory_pair(sample) {
            kinds.entry((false, "all".into())).or_default().push(pair);
            kinds.entry((true, sample.memory_kind().into())).or_default().push(pair);
            if matches!(sample.memory_kind(), "allocated" | "reserved") {
                kinds.entry((true, "allocated or reserved".into())).or_default().push(pair);
            }
        }
    }
    kinds.into_iter().filter_map(|((_, kind), pairs)| Some(MemoryClass { kind, errors: errors(&pairs)? })).collect()
}

fn oom(kept: &[PredictedRun]) -> Oom {
    let mut oom = Oom::default();
    for sample in kept.iter().filter(|sample| sample.prediction.status == PredictionStatus::Ok) {
        match (outcome(sample.row), sample.prediction.fits) {
            ("ok", Some(true)) => oom.true_fits += 1,
            ("ok", Some(false)) => oom.false_ooms += 1,
            ("oom", Some(true)) => oom.false_fits += 1,
            ("oom", Some(false)) => oom.true_ooms += 1,
            _ => {}
        }
    }
    oom
}

/// Whether a run states its recomputation.
fn states_recompute(sample: &PredictedRun) -> bool {
    sample.row.recompute.as_ref().is_some_and(|recompute| !recompute.is_empty())
}

fn too_large(ran: &[PredictedRun]) -> Vec<TooLarge> {
    let mut all: Vec<TooLarge> = ran
        .iter()
        .filter(|sample| sample.prediction.fits == Some(false))
        .map(|sample| TooLarge {
            id: sample.prediction.id.clone(),
            predicted_gib: sample.prediction.device_mem_gib.unwrap_or_default(),
            measured_gib: sample.row.peak_mem_gib,
            recompute: sample.row.recompute.clone().unwrap_or_default(),
        })
        .collect();
    all.sort_by(|a, b| b.predicted_gib.total_cmp(&a.predicted_gib).then_with(|| a.id.cmp(&b.id)));
    all
}

fn points(ran: &[PredictedRun]) -> Vec<ScoredPoint> {
    let mut points: Vec<ScoredPoint> = ran
        .iter()
        .filter_map(|sample| {
            let pair = time_pair(sample)?;
            Some(ScoredPoint {
                id: sample.prediction.id.clone(),
                set: sample.set().to_owned(),
                moe: sample.is_moe(),
                measured_s: pair.measured,
                predicted_s: pair.predicted,
                error: pair.error(),
            })
        })
        .collect();
    points.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()).then_with(|| a.id.cmp(&b.id)));
    points
}
