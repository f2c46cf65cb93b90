//! Training logs as rows of a runs file: Megatron-LM, DeepSpeed and torchtitan.
//!
//! A log has its settings and step times, but seldom its devices or network, which the user adds. Unknown columns stay
//! blank, as in any runs file.

pub mod condensed;
mod deepspeed;
mod lines;
mod megatron;
mod shape;
mod torchtitan;

use serde_json::{Map, Value};

use super::row::Row;
use meshwright_engine::suggest::did_you_mean;
use meshwright_planner::catalog::nearest;
use meshwright_planner::median::median;

pub use shape::of_model;

/// Run that a log describes.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedRun {
    /// Columns of the run.
    pub row: Row,
    /// Number of steps with a logged time.
    pub steps: usize,
    /// Relative standard error of the step time, by the spread of the steps after warm-up.
    pub error: Option<f64>,
}

/// End of a run, as far as its log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ran out of memory.
    OutOfMemory,
    /// It ended with another error.
    Crashed,
    /// No error is logged.
    Open,
}

/// Error in a log, or in the columns that the user adds to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log has no line of a known framework.
    #[error(
        "no step of Megatron-LM (`elapsed time per iteration (ms):`), DeepSpeed (`CurrSamplesPerSec=`) or torchtitan \
         (`step: … tps: …`) in it"
    )]
    Unknown,
    /// No column has this name.
    #[error("there is no column `{key}`{}", did_you_mean(near.as_deref()))]
    Column {
        /// Requested name.
        key: String,
        /// Nearest column name.
        near: Option<String>,
    },
    /// A value does not fit its column.
    #[error("column `{key}`: `{value}` is not a number")]
    Number {
        /// Name of the column.
        key: String,
        /// Value as written.
        value: String,
    },
}

/// Reads a log. Lines of other programs are skipped, and so are launcher prefixes such as `[rank0]:`.
///
/// The step time is the median over the logged steps without warm-up: the first quarter, at most ten, is left out.
///
/// # Errors
///
/// No line is a step of a known framework.
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

/// Words of a run that ran out of memory.
const OUT_OF_MEMORY: [&str; 3] = ["CUDA out of memory", "OutOfMemoryError", "HIP out of memory"];

/// Words of a run that ended with another error: of Python, torchrun, NCCL, CUDA and the kernel.
const CRASHED: [&str; 6] = [
    "Traceback (most recent call last)",
    "ChildFailedError",
    "Segmentation fault",
    "NCCL error",
    "CUDA error",
    "DUE TO TIME LIMIT",
];

fn out_of_memory(text: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|words| text.contains(words))
}

/// End of the run of a log.
pub fn ending(text: &str) -> Ending {
    if out_of_memory(text) {
        Ending::OutOfMemory
    } else if CRASHED.iter().any(|words| text.contains(words)) {
        Ending::Crashed
    } else {
        Ending::Open
    }
}

/// Fills columns by name with values that the user gives in addition to the log. Values of numeric columns are parsed as
/// numbers.
///
/// # Errors
///
/// The column does not exist, or its value is not a number.
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

/// All columns of a row with their values.
fn columns(row: &Row) -> Map<String, Value> {
    match serde_json::to_value(row) {
        Ok(Value::Object(columns)) => columns,
        _ => Map::new(),
    }
}

/// Whether a column holds text: its type accepts a word.
fn is_text(key: &str) -> bool {
    let one = Map::from_iter([(key.to_owned(), Value::String("word".into()))]);
    serde_json::from_value::<Row>(Value::Object(one)).is_ok()
}

/// Names of the columns that a prediction needs and the row lacks.
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

/// Writes rows as a runs file.
///
/// # Errors
///
/// A row cannot be written, which does not happen in memory.
pub fn to_csv(rows: &[Row]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Median of steps after warm-up, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Steady {
    median: f64,
    /// Relative standard error; `None` with fewer than three steps.
    error: Option<f64>,
}

/// Median step time after warm-up: without the first quarter, at most ten steps.
///
/// Its standard error is √(π/2)·σ/√n with the robust σ = 1.4826 · median of |x − median| [huber-1981].
fn steady(seconds: &[f64]) -> Option<Steady> {
    const MOST: usize = 10;
    let warm = &seconds[(seconds.len() / 4).max(usize::from(seconds.len() > 1)).min(MOST)..];
    let middle = median(warm.to_vec())?;
    let spread = 1.482_6 * median(warm.iter().map(|value| (value - middle).abs()).collect())? / middle;
    let error = (std::f64::consts::FRAC_PI_2 / warm.len() as f64).sqrt() * spread;
    Some(Steady { median: middle, error: (warm.len() > 2 && error.is_finite()).then_some(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_do_not_count() {
        let median_of = |seconds: &[f64]| steady(seconds).map(|steady| (steady.median, steady.error.is_some()));
        assert_eq!(median_of(&[30.0, 1.0, 1.2, 1.1]), Some((1.1, true)));
        assert_eq!(median_of(&[2.0]), Some((2.0, false)));
        assert_eq!(median_of(&[]), None);
        // Steps 1.0, 1.1, 1.2: σ = 1.4826·0.1, error = √(π/2/3)·σ/1.1
        let error = steady(&[30.0, 1.0, 1.2, 1.1]).unwrap().error.unwrap();
        assert!((error - 0.097_53).abs() < 1e-4, "{error}");
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
