//! Contradictions between measurements; predictions are not used.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::cells::{number, text};
use super::sample::{PredictedRun, config_group, measured, outcome, purpose, set};
use crate::runs::Row;

/// Ratio of two step times from which on they contradict each other. Below it, noise explains the difference: repeated
/// measurements of one layout differ by 4 % in the median and by 31 % in the worst tenth.
pub(crate) const FACTOR: f64 = 2.0;

/// Rule that two rows contradict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// One layout with more replicas, and no more work for each, takes over twice as long.
    SlowerOnMoreGpus,
    /// One layout with larger micro-batches takes over twice as long.
    SlowerWithLargerMicroBatch,
    /// Two measurements of one layout, GPU count and batch differ by over a factor of two.
    RepeatsDisagree,
}

impl Rule {
    /// Contradiction of the rule in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SlowerOnMoreGpus => {
                "the same layout on fewer GPUs, with as much work for each or more, is over twice as fast"
            }
            Self::SlowerWithLargerMicroBatch => "the same layout with a smaller micro-batch is over twice as fast",
            Self::RepeatsDisagree => "the same layout, GPUs and batch was measured over twice as fast",
        }
    }
}

/// Row that another row contradicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Anomaly {
    /// Name of the slow row.
    pub id: String,
    /// Rule that it contradicts.
    pub rule: Rule,
    /// Name of the row that it is compared with.
    pub against: String,
    /// Ratio of the step times.
    pub factor: f64,
}

/// Measured row with the figures that the rules compare.
struct Timed<'a> {
    id: &'a str,
    gpus: f64,
    batch: f64,
    micro_batch: f64,
    /// Sequences of one replica: micro-batches × their size.
    local: f64,
    seconds: f64,
    /// Whether it is judged, and does not only contradict others.
    is_judged: bool,
}

/// Rows that another row of their layout contradicts, by id, each with its worst contradiction. Witnesses are further rows
/// that may contradict others but are not judged.
pub fn anomalies(ran: &[PredictedRun], witnesses: &[Row]) -> Vec<Anomaly> {
    let judged = ran.iter().map(|sample| (sample.row, true));
    let others = witnesses.iter().filter(|row| outcome(row) == "ok").map(|row| (row, false));
    let mut layouts: BTreeMap<String, Vec<Timed>> = BTreeMap::new();
    for (row, is_judged) in judged.chain(others) {
        if let Some(timed) = timed(row, is_judged) {
            layouts.entry(layout(row)).or_default().push(timed);
        }
    }
    let mut found: BTreeMap<String, Anomaly> = BTreeMap::new();
    for rows in layouts.values() {
        for slow in rows.iter().filter(|row| row.is_judged) {
            for fast in rows {
                let factor = slow.seconds / fast.seconds;
                let Some(rule) = contradiction(slow, fast).filter(|_| factor >= FACTOR) else { continue };
                let anomaly = Anomaly { id: slow.id.to_owned(), rule, against: fast.id.to_owned(), factor };
                if found.get(slow.id).is_none_or(|known| known.factor < factor) {
                    found.insert(slow.id.to_owned(), anomaly);
                }
            }
        }
    }
    found.into_values().collect()
}

/// Share of the runs of each source that others contradict.
pub(crate) fn contradicted_shares(ran: &[PredictedRun]) -> BTreeMap<String, f64> {
    let flagged: BTreeSet<String> = anomalies(ran, &[]).into_iter().map(|anomaly| anomaly.id).collect();
    let mut contradicted: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for sample in ran {
        let is_flagged = sample.row.id.as_ref().is_some_and(|id| flagged.contains(id));
        contradicted.entry(set(sample.row).to_owned()).or_default().push(is_flagged);
    }
    let share = |runs: Vec<bool>| runs.iter().filter(|is_flagged| **is_flagged).count() as f64 / runs.len() as f64;
    contradicted.into_iter().map(|(source, runs)| (source, share(runs))).collect()
}

/// Rule by which `slow` should take no longer than `fast`; both rows have one layout.
fn contradiction(slow: &Timed, fast: &Timed) -> Option<Rule> {
    let same = |a: f64, b: f64| (a - b).abs() < 0.5;
    let (gpus, batch) = (same(slow.gpus, fast.gpus), same(slow.batch, fast.batch));
    let micro_batch = same(slow.micro_batch, fast.micro_batch);
    if gpus && batch && micro_batch {
        Some(Rule::RepeatsDisagree)
    } else if gpus && batch && slow.micro_batch > fast.micro_batch {
        Some(Rule::SlowerWithLargerMicroBatch)
    } else if micro_batch && slow.gpus > fast.gpus && slow.local <= fast.local + 1e-9 {
        Some(Rule::SlowerOnMoreGpus)
    } else {
        None
    }
}

/// Figures of a row; none where one of them is blank.
fn timed(row: &Row, is_judged: bool) -> Option<Timed<'_>> {
    let gpus = row.gpus_total?;
    let ranks = row.tp? * row.pp? * row.cp.unwrap_or(1.0);
    let batch = row.global_batch?;
    (gpus > 0.0 && ranks > 0.0).then_some(())?;
    Some(Timed {
        id: row.id.as_deref()?,
        gpus,
        batch,
        micro_batch: row.micro_batch?,
        local: batch * ranks / gpus,
        seconds: measured(row)?,
        is_judged,
    })
}

/// Key of comparable rows: everything except GPUs, batch and micro-batch.
fn layout(row: &Row) -> String {
    let group: String = config_group(row).split('|').filter(|part| !is_micro_batch(part)).collect::<Vec<_>>().join("|");
    let texts = [&row.framework, &row.gpu, &row.dtype, &row.dtype_detail, &row.recompute, &row.overlap, &row.fsdp];
    let numbers = [row.seq_len, row.sp, row.zero_stage, row.etp, row.ep, row.vpp, row.year];
    [set(row).to_owned(), purpose(row).to_owned(), group]
        .into_iter()
        .chain(texts.map(|cell| text(cell.as_ref())))
        .chain(numbers.map(|cell| number(cell, "")))
        .collect::<Vec<_>>()
        .join("\u{1f}")
}

/// Whether a part of a configuration is its micro-batch, such as `m2`.
fn is_micro_batch(part: &str) -> bool {
    part.strip_prefix('m').is_some_and(|size| !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{Prediction, predict};

    fn row(id: &str, gpus: f64, batch: f64, micro_batch: f64, seconds: f64) -> Row {
        Row {
            id: Some(id.into()),
            gpus_total: Some(gpus),
            tp: Some(1.0),
            pp: Some(1.0),
            global_batch: Some(batch),
            micro_batch: Some(micro_batch),
            step_time_s: Some(seconds),
            ..Row::default()
        }
    }

    fn found(rows: &[Row]) -> Vec<(String, Rule)> {
        let predictions: Vec<Prediction> = rows.iter().map(predict).collect();
        let samples = super::super::sample::samples(rows, &predictions);
        anomalies(&samples, &[]).into_iter().map(|anomaly| (anomaly.id, anomaly.rule)).collect()
    }

    #[test]
    fn witnesses_contradict_and_are_not_judged() {
        let rows = [row("runs-1", 8.0, 64.0, 1.0, 1.0), row("runs-2", 16.0, 128.0, 1.0, 9.0)];
        let predictions: Vec<Prediction> = rows[..1].iter().map(predict).collect();
        let samples = super::super::sample::samples(&rows[..1], &predictions);
        assert_eq!(anomalies(&samples, &rows[1..]), [], "the witness is the slow one");
        let predictions: Vec<Prediction> = rows[1..].iter().map(predict).collect();
        let samples = super::super::sample::samples(&rows[1..], &predictions);
        let found = anomalies(&samples, &rows[..1]);
        assert_eq!((found[0].id.as_str(), found[0].against.as_str()), ("runs-2", "runs-1"));
    }

    #[test]
    fn the_share_of_contradicted_runs_is_by_source() {
        let rows = [
            row("runs-1", 8.0, 64.0, 1.0, 1.0),
            row("runs-2", 8.0, 64.0, 2.0, 2.5),
            row("others-1", 8.0, 64.0, 1.0, 1.0),
            row("others-2", 8.0, 64.0, 2.0, 1.1),
        ];
        let predictions: Vec<Prediction> = rows.iter().map(predict).collect();
        let share = contradicted_shares(&super::super::sample::samples(&rows, &predictions));
        assert_eq!(share.into_iter().collect::<Vec<_>>(), [("others".into(), 0.0), ("runs".into(), 0.5)]);
    }

    #[test]
    fn contradictions_are_found_and_noise_is_not() {
        let (base, noise) = (row("runs-1", 8.0, 64.0, 1.0, 1.0), row("runs-2", 16.0, 64.0, 1.0, 1.2));
        assert_eq!(found(&[base.clone(), noise]), []);
        let slow = |row: Row| found(&[base.clone(), row]);
        assert_eq!(slow(row("runs-2", 16.0, 64.0, 1.0, 2.5)), [("runs-2".into(), Rule::SlowerOnMoreGpus)]);
        assert_eq!(slow(row("runs-2", 16.0, 128.0, 1.0, 2.5)), [("runs-2".into(), Rule::SlowerOnMoreGpus)]);
        assert_eq!(slow(row("runs-2", 16.0, 512.0, 1.0, 2.5)), [], "four times the work for each");
        assert_eq!(slow(row("runs-2", 8.0, 64.0, 2.0, 2.5)), [("runs-2".into(), Rule::SlowerWithLargerMicroBatch)]);
        assert_eq!(slow(row("runs-2", 8.0, 64.0, 1.0, 2.5)), [("runs-2".into(), Rule::RepeatsDisagree)]);
    }
}
