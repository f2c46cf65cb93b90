//! Published runs, one per row of a CSV.

use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Its name.
    pub id: String,
}

/// One prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Name of the run.
    pub id: String,
    /// `ok`, `unsupported` or `invalid`.
    pub status: String,
    /// Why not `ok`.
    pub reason: Option<String>,
    /// Step time.
    pub step_time_s: Option<f64>,
}

/// A file that holds no runs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunsError(String);

/// Reads runs.
///
/// # Errors
/// Names file and line of what cannot be read.
pub fn read(reader: impl std::io::Read, origin: &str) -> Result<Vec<Row>, RunsError> {
    csv::Reader::from_reader(reader)
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|error| RunsError(format!("{origin}: {error}")))
}

/// Predicts each.
pub fn predict_all(rows: &[Row]) -> Vec<Prediction> {
    rows.iter()
        .map(|row| Prediction {
            id: row.id.clone(),
            status: "unsupported".into(),
            reason: Some("not there yet".into()),
            step_time_s: None,
        })
        .collect()
}
