//! `meshwright predict`: predicts published runs, row by row.

use meshwright_engine::units::significant;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use super::{Outcome, output};
use crate::question::RunConstants;
use crate::report::{Sheet, csv, table};
use meshwright_lab::runs::{self, Row};
use meshwright_planner::catalog::Overrides;

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

    /// Rows of the file, and the catalogue overrides.
    pub fn load(&self) -> Result<(Vec<Row>, Overrides)> {
        let sets = self.constants.overrides()?;
        let origin = self.runs.display().to_string();
        let file = File::open(&self.runs).with_context(|| format!("{origin}: cannot be read"))?;
        Ok((runs::read(file).with_context(|| origin)?, sets))
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

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let (rows, sets) = args.runs.load()?;
    let predictions =
        runs::predict_all_with(&rows, &sets).iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
    let text = match args.format {
        Lines::Jsonl => lines(&predictions),
        Lines::Csv => csv::render_objects(&predictions)?,
        Lines::Table => table::render(&sheet(&predictions)),
    };
    output::print(&text)?;
    let answered = predictions.iter().filter(|prediction| prediction["status"] == "ok").count();
    output::talk(&format!("{answered} of {} runs predicted", predictions.len()));
    Ok(Outcome::Answered)
}

fn lines(predictions: &[Value]) -> String {
    let mut lines: Vec<String> = predictions.iter().map(Value::to_string).collect();
    lines.push(String::new());
    lines.join("\n")
}

fn sheet(predictions: &[Value]) -> Sheet {
    let mut sheet = Sheet::new("", &SHOWN);
    for prediction in predictions {
        sheet.push(SHOWN.map(|key| match &prediction[key] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.as_f64().map_or_else(|| other.to_string(), significant),
        }));
    }
    sheet
}
