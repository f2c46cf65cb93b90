//! Predictions against what was measured: errors by class, memory, running out of it, and what a choice costs.

pub mod anomaly;
pub mod calibrate;
pub mod choice;
pub mod cross;
pub mod filter;
pub mod metrics;
pub mod omitted;
pub mod sample;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::runs::{Row, Status};
use anomaly::{Anomaly, anomalies};
use choice::{Choice, Choices, choices};
use filter::Filter;
use metrics::{Errors, Pair, errors};
use omitted::{Unmeasured, Unpredicted, unmeasured, unpredicted};
use sample::{Sample, outcome};

/// Step times of one class of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeClass {
    /// What the class is by: `all`, `set`, `gpu`, …
    pub by: &'static str,
    /// The class.
    pub class: String,
    /// Runs with a measured step time.
    pub timed: usize,
    /// Share of them that are predicted at all.
    pub coverage: f64,
    /// Errors of those.
    #[serde(flatten)]
    pub errors: Option<Errors>,
}

/// Peak memory of one kind of figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryClass {
    /// `allocated`, `reserved`, `device`, `unstated`, or all.
    pub kind: String,
    /// Errors.
    #[serde(flatten)]
    pub errors: Errors,
}

/// Running out of memory, as a classification of runs that say how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Oom {
    /// Ran, and predicted to fit.
    pub true_fits: usize,
    /// Ran out of memory, and predicted to fit: what costs a user a launch.
    pub false_fits: usize,
    /// Ran out, and predicted not to fit.
    pub true_ooms: usize,
    /// Ran, and predicted not to fit.
    pub false_ooms: usize,
}

impl Oom {
    /// Share of what is predicted to fit that ran out.
    pub fn false_fit_share(&self) -> f64 {
        ratio(self.false_fits, self.false_fits + self.true_fits)
    }

    /// Share of what ran out that was predicted to fit.
    pub fn missed_share(&self) -> f64 {
        ratio(self.false_fits, self.false_fits + self.true_ooms)
    }

    /// Share of what ran that was predicted not to fit.
    pub fn false_oom_share(&self) -> f64 {
        ratio(self.false_ooms, self.false_ooms + self.true_fits)
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One run that was timed and predicted, for the plot and for who looks for the worst.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Name of the run.
    pub id: String,
    /// Whether experts are routed.
    pub moe: bool,
    /// Measured seconds of a step.
    pub measured_s: f64,
    /// Predicted.
    pub predicted_s: f64,
    /// `predicted/measured − 1`.
    pub error: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Runs looked at, after the filters.
    pub runs: usize,
    /// Step times by class; the first is all of them.
    pub time: Vec<TimeClass>,
    /// Memory by kind; the first is all of it.
    pub memory: Vec<MemoryClass>,
    /// Running out of memory.
    pub oom: Oom,
    /// Ranking and choosing among measured plans.
    pub choice: Choices,
    /// The same over all groups, without the runs that other runs contradict.
    pub choice_uncontradicted: Option<Choice>,
    /// Runs that other runs contradict, whatever is predicted.
    pub anomalies: Vec<Anomaly>,
    /// Runs without a prediction, by reason.
    pub unpredicted: Vec<Unpredicted>,
    /// Measured cells that are no measurement, and count as blank.
    pub unmeasured: Vec<Unmeasured>,
    /// Every timed and predicted run, the worst first.
    pub points: Vec<Point>,
}

/// Scores the samples that pass every filter; `witnesses` are not scored, and may contradict those that are.
pub fn score(samples: &[Sample], filters: &[Filter], witnesses: &[Row]) -> Report {
    let kept: Vec<Sample> =
        samples.iter().filter(|sample| filters.iter().all(|filter| filter.admits(sample))).copied().collect();
    let ran: Vec<Sample> = kept.iter().filter(|sample| outcome(sample.row) == "ok").copied().collect();
    let anomalies = anomalies(&ran, witnesses);
    let uncontradicted: Vec<Sample> = ran
        .iter()
        .filter(|sample| !anomalies.iter().any(|flagged| flagged.id == sample.prediction.id))
        .copied()
        .collect();
    Report {
        runs: kept.len(),
        time: time_classes(&ran),
        memory: memory_classes(&ran),
        oom: oom(&kept),
        choice: choices(&ran),
        choice_uncontradicted: choices(&uncontradicted).classes.into_iter().next(),
        anomalies,
        unpredicted: unpredicted(&kept),
        unmeasured: unmeasured(&kept),
        points: points(&ran),
    }
}

/// The classes of a run, with what they are by.
fn classes(sample: &Sample) -> Vec<(&'static str, String)> {
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
        ("scale", sample.scale().1.to_owned()),
    ];
    if sample.is_megatron_core() {
        classes.push(("family", format!("Megatron-Core {dense}")));
    }
    if sample.is_fsdp() {
        classes.push(("family", "FSDP".into()));
    }
    classes
}

/// Order in which the kinds of class are shown.
const BY: [&str; 9] = ["all", "experts", "family", "set", "GPU", "framework", "stack", "precision", "scale"];

fn time_classes(ran: &[Sample]) -> Vec<TimeClass> {
    let mut members: BTreeMap<(usize, usize, String), (&'static str, Vec<Sample>)> = BTreeMap::new();
    for sample in ran.iter().filter(|sample| sample.measured().is_some()) {
        for (by, class) in classes(sample) {
            let place = BY.iter().position(|known| *known == by).unwrap_or(BY.len());
            let size = if by == "scale" { sample.scale().0 } else { 0 };
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
                errors: errors(&members.iter().filter_map(time_pair).collect::<Vec<_>>()),
            }
        })
        .collect()
}

/// Predicted and measured step time.
pub fn time_pair(sample: &Sample) -> Option<Pair> {
    Some(Pair { predicted: sample.prediction.step_time_s?, measured: sample.measured()?, weight: sample.weight })
}

/// Predicted and measured peak memory.
pub fn memory_pair(sample: &Sample) -> Option<Pair> {
    let measured = sample.row.peak_mem_gib.filter(|peak| peak.is_finite() && *peak > 0.0)?;
    Some(Pair { predicted: sample.prediction.peak_mem_gib?, measured, weight: sample.weight })
}

fn memory_classes(ran: &[Sample]) -> Vec<MemoryClass> {
    let mut kinds: BTreeMap<(bool, String), Vec<Pair>> = BTreeMap::new();
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

fn oom(kept: &[Sample]) -> Oom {
    let mut oom = Oom::default();
    for sample in kept.iter().filter(|sample| sample.prediction.status == Status::Ok) {
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

fn points(ran: &[Sample]) -> Vec<Point> {
    let mut points: Vec<Point> = ran
        .iter()
        .filter_map(|sample| {
            let pair = time_pair(sample)?;
            Some(Point {
                id: sample.prediction.id.clone(),
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
