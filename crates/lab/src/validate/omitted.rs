//! Omissions of a validation, with reasons: runs without a prediction, and invalid measured cells.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sample::PredictedRun;
use crate::runs::PredictionStatus;

/// Runs that have no prediction for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unpredicted {
    /// Reason, as text.
    pub reason: String,
    /// Status: too little information (`unsupported`), or a contradiction (`invalid`).
    pub status: PredictionStatus,
    /// Number of runs.
    pub runs: usize,
    /// Names of the runs, in the order of the file.
    pub ids: Vec<String>,
}

/// Invalid measured cell: zero, negative or not finite. It counts as blank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmeasured {
    /// Name of the run.
    pub id: String,
    /// Line of its file, from 1.
    pub line: Option<u64>,
    /// Name of the column.
    pub column: &'static str,
    /// Content as text, since JSON has no infinity.
    pub value: String,
}

/// Runs without a prediction by reason, the most frequent first.
pub fn unpredicted(kept: &[PredictedRun]) -> Vec<Unpredicted> {
    let mut reasons: BTreeMap<&str, Unpredicted> = BTreeMap::new();
    for PredictedRun { prediction, .. } in kept.iter().filter(|sample| sample.prediction.status != PredictionStatus::Ok)
    {
        let of = reasons.entry(&prediction.reason).or_insert_with(|| Unpredicted {
            reason: prediction.reason.clone(),
            status: prediction.status,
            runs: 0,
            ids: Vec::new(),
        });
        of.runs += 1;
        of.ids.push(prediction.id.clone());
    }
    let mut all: Vec<Unpredicted> = reasons.into_values().collect();
    all.sort_by(|a, b| b.runs.cmp(&a.runs).then_with(|| a.reason.cmp(&b.reason)));
    all
}

/// Invalid measured cells, in the order of the file.
pub fn unmeasured(kept: &[PredictedRun]) -> Vec<Unmeasured> {
    let of_row = |sample: &PredictedRun| {
        let wrong = |(column, value): (&'static str, Option<f64>)| {
            let value = value.filter(|value| !(value.is_finite() && *value > 0.0))?;
            Some(Unmeasured {
                id: sample.prediction.id.clone(),
                line: sample.row.line,
                column,
                value: value.to_string(),
            })
        };
        sample.row.measured_cells().into_iter().filter_map(wrong).collect::<Vec<_>>()
    };
    kept.iter().flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{Row, predict};
    use crate::validate::sample::samples;

    #[test]
    fn reasons_are_counted_and_wrong_cells_named() {
        let row =
            |id: &str, time: f64| Row { id: Some(id.into()), line: Some(7), step_time_s: Some(time), ..Row::default() };
        let rows = [row("a", -1.0), row("b", 2.0), row("c", f64::INFINITY)];
        let predictions: Vec<_> = rows.iter().map(predict).collect();
        let samples = samples(&rows, &predictions);
        let reasons = unpredicted(&samples);
        assert_eq!(
            (reasons.len(), reasons[0].runs, reasons[0].ids.as_slice()),
            (1, 3, &["a", "b", "c"].map(String::from)[..])
        );
        assert!(!reasons[0].reason.is_empty());
        let cells = unmeasured(&samples);
        let named: Vec<(&str, &str, &str)> =
            cells.iter().map(|cell| (cell.id.as_str(), cell.column, cell.value.as_str())).collect();
        assert_eq!(named, [("a", "step_time_s", "-1"), ("c", "step_time_s", "inf")]);
        assert_eq!(cells[0].line, Some(7));
    }
}
