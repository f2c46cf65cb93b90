//! `meshwright predict`: predicts published runs, row by row.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use super::{Outcome, files, output};
use crate::question::RunConstants;
use crate::report::{Sheet, csv, table};
use meshwright_engine::units::significant;
use meshwright_lab::runs::{self, Prediction, PredictionStatus, Row};
use meshwright_planner::catalog::{self, Overrides};

/// Output format of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Lines {
    /// One JSON object per line.
    #[default]
    Jsonl,
    /// CSV for spreadsheets.
    Csv,
    /// Table for people.
    Table,
}

/// File of runs, and the constants to predict them with.
#[derive(Debug, clap::Args)]
pub struct RunsArgs {
    /// CSV of runs (docs/runs.md); `predict` does not read its measured columns.
    #[arg(long, value_name = "FILE")]
    runs: PathBuf,
    #[command(flatten)]
    constants: RunConstants,
}

impl RunsArgs {
    /// Name of the file without its folders.
    pub fn file_name(&self) -> String {
        self.runs.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Text of the file.
    pub fn text(&self) -> Result<String> {
        std::fs::read_to_string(&self.runs).with_context(|| format!("{}: cannot be read", self.runs.display()))
    }

    /// Rows of the file, and the catalogue overrides.
    pub fn load(&self) -> Result<(Vec<Row>, Overrides)> {
        let sets = self.sets()?;
        Ok((files::read_runs(&self.runs)?, sets))
    }

    /// Catalogue overrides.
    fn sets(&self) -> Result<Overrides> {
        Ok(self.constants.overrides()?)
    }

    fn origin(&self) -> String {
        self.runs.display().to_string()
    }

    fn open(&self) -> Result<Box<dyn Read>> {
        catalog::open(&self.runs).with_context(|| format!("{}: cannot be read", self.origin()))
    }
}

/// Arguments of `predict`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    runs: RunsArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Lines,
}

/// Columns of the table.
const SHOWN: [&str; 7] = ["id", "status", "step_time_s", "tokens_per_s_per_gpu", "mfu", "peak_mem_gib", "reason"];

/// Rows that are read, predicted and printed together: enough for every core, and little memory.
const TOGETHER: usize = 1024;

/// Runs of a file that may contradict others; none without a file.
pub fn witnesses(path: Option<&Path>) -> Result<Vec<Row>> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let origin = path.display().to_string();
    let file = catalog::open(path).with_context(|| format!("{origin}: cannot be read"))?;
    runs::read(file).with_context(|| origin)
}

/// Runs the command; lines are printed as rows are read, so a file of any length takes the same memory.
pub fn run(args: &Args) -> Result<Outcome> {
    let sets = args.runs.sets()?;
    let mut rows = runs::rows(args.runs.open()?).with_context(|| args.runs.origin())?;
    let (mut all, mut answered) = (0, 0);
    let mut shown = Sheet::new("", &SHOWN);
    let columns = csv::columns(&[serde_json::to_value(Prediction::with_all_terms())?]);
    if args.format == Lines::Csv {
        output::print(&csv::header(&columns)?)?;
    }
    loop {
        let part = rows.by_ref().take(TOGETHER).collect::<Result<Vec<Row>, _>>().with_context(|| args.runs.origin())?;
        if part.is_empty() {
            break;
        }
        let predictions = runs::predict_all_with(&part, &sets);
        all += predictions.len();
        answered += predictions.iter().filter(|prediction| prediction.status == PredictionStatus::Ok).count();
        let objects = predictions.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
        match args.format {
            Lines::Jsonl => output::print(&lines(&objects))?,
            Lines::Csv => output::print(&csv::objects(&columns, &objects)?)?,
            Lines::Table => shown.rows.extend(objects.iter().map(cells)),
        }
    }
    if args.format == Lines::Table {
        output::print(&table::render(&shown))?;
    }
    output::talk(&format!("{answered} of {all} runs predicted"));
    Ok(Outcome::Answered)
}

fn lines(predictions: &[Value]) -> String {
    let lines = predictions.iter().map(ToString::to_string);
    lines.map(|line| line + "\n").collect()
}

fn cells(prediction: &Value) -> Vec<String> {
    let cell = |key: &str| match &prediction[key] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.as_f64().map_or_else(|| other.to_string(), significant),
    };
    SHOWN.map(cell).into()
}
