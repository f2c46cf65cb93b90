//! Training logs as rows: what Megatron-LM, DeepSpeed and torchtitan print of a run, in the columns of a file of runs.
//!
//! A log says its settings and its step times, and seldom its devices or network: those come from the user. What neither
//! says stays blank, as in any file of runs.

mod deepspeed;
mod lines;
mod megatron;
mod shape;
mod torchtitan;

use serde_json::{Map, Value};

use super::Row;
use meshwright_planner::catalog::nearest;

pub use shape::of_model;

/// A run that a log tells of.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedRun {
    /// Its columns.
    pub row: Row,
    /// Steps whose time the log states.
    pub steps: usize,
}

/// Why a log makes no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No line of a known framework.
    #[error(
        "no step of Megatron-LM (`elapsed time per iteration (ms):`), DeepSpeed (`CurrSamplesPerSec=`) or torchtitan \
         (`step: … tps: …`) in it"
    )]
    Unknown,
    /// A column that there is not.
    #[error("there is no column `{key}`{}", near.as_ref().map_or_else(String::new, |near| format!("; did you mean `{near}`?")))]
    Column {
        /// The name.
        key: String,
        /// The nearest.
        near: Option<String>,
    },
    /// A value that does not fit its column.
    #[error("column `{key}`: `{value}` is no number")]
    Number {
        /// The column.
        key: String,
        /// The value.
        value: String,
    },
}

/// Reads a log. Lines of other programs between are skipped, and so are prefixes of a launcher such as `[rank0]:`.
///
/// The step time is the median over the logged steps after the first quarter, at most ten: the first ones compile and warm
/// up.
///
/// # Errors
/// When no line is a step of a framework that is known.
pub fn read(text: &str) -> Result<LoggedRun, LogError> {
    let readers = [megatron::read, torchtitan::read, deepspeed::read];
    let mut run = readers.into_iter().find_map(|read| read(text)).ok_or(LogError::Unknown)?;
    if out_of_memory(text) {
        run.row.outcome = Some("oom".into());
    } else if run.steps > 0 {
        run.row.outcome = Some("ok".into());
    }
    Ok(run)
}

fn out_of_memory(text: &str) -> bool {
    ["CUDA out of memory", "OutOfMemoryError", "HIP out of memory"].iter().any(|words| text.contains(words))
}

/// Fills columns by name: what the user says of a run beside its log. Numbers of number columns are read as such.
///
/// # Errors
/// When there is no such column, or its number is none.
pub fn fill(row: Row, cells: &[(String, String)]) -> Result<Row, LogError> {
    let mut columns = columns(&row);
    for (key, value) in cells {
        let Some(place) = columns.get_mut(key) else {
            let near = nearest(key, columns.keys().map(String::as_str));
            return Err(LogError::Column { key: key.clone(), near });
        };
        *place = if is_text(key) {
            Value::String(value.clone())
        } else {
            let number: f64 = value.parse().map_err(|_| LogError::Number { key: key.clone(), value: value.clone() })?;
            number.into()
        };
    }
    Ok(serde_json::from_value(Value::Object(columns)).unwrap_or(row))
}

/// Every column with its value.
fn columns(row: &Row) -> Map<String, Value> {
    match serde_json::to_value(row) {
        Ok(Value::Object(columns)) => columns,
        _ => Map::new(),
    }
}

/// Whether a column holds text: it is a text column where it accepts a word.
fn is_text(key: &str) -> bool {
    let one = Map::from_iter([(key.to_owned(), Value::String("word".into()))]);
    serde_json::from_value::<Row>(Value::Object(one)).is_ok()
}

/// Columns that a prediction needs and the row lacks.
pub fn missing(row: &Row) -> Vec<&'static str> {
    let needed = [
        ("gpu", row.gpu.is_none()),
        ("gpus_total", row.gpus_total.is_none()),
        ("layers", row.layers.is_none()),
        ("hidden", row.hidden.is_none()),
        ("ffn", row.ffn.is_none() && row.moe_ffn.is_none()),
        ("heads", row.heads.is_none()),
        ("vocab", row.vocab.is_none()),
        ("seq_len", row.seq_len.is_none()),
        ("tp", row.tp.is_none()),
        ("pp", row.pp.is_none()),
        ("global_batch", row.global_batch.is_none()),
    ];
    needed.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect()
}

/// Rows as a file of runs.
///
/// # Errors
/// When a row cannot be written, which text in memory never is.
pub fn to_csv(rows: &[Row]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Median of the steps after warm-up: the first quarter, at most ten, is left out.
fn steady(seconds: &[f64]) -> Option<f64> {
    const MOST: usize = 10;
    let warm = &seconds[(seconds.len() / 4).max(usize::from(seconds.len() > 1)).min(MOST)..];
    let mut sorted = warm.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.is_empty() {
        None
    } else if sorted.len().is_multiple_of(2) {
        Some(f64::midpoint(sorted[middle - 1], sorted[middle]))
    } else {
        Some(sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_do_not_count() {
        assert_eq!(steady(&[30.0, 1.0, 1.2, 1.1]), Some(1.1));
        assert_eq!(steady(&[2.0]), Some(2.0));
        assert_eq!(steady(&[]), None);
    }

    #[test]
    fn columns_are_filled_by_name() {
        let cells = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let row = fill(Row::default(), &cells("gpu", "H100")).unwrap();
        assert_eq!(row.gpu.as_deref(), Some("H100"));
        assert_eq!(fill(row.clone(), &cells("gpus_total", "64")).unwrap().gpus_total, Some(64.0));
        assert!(fill(row.clone(), &cells("gpus_totl", "64")).unwrap_err().to_string().contains("`gpus_total`"));
        assert!(matches!(fill(row, &cells("tp", "two")), Err(LogError::Number { .. })));
    }
}
