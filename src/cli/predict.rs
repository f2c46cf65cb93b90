//! `meshwright predict`: published runs, row by row.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use super::{Outcome, output};
use crate::report::{Sheet, csv, significant, table};
use crate::runs;

/// Form of the predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Lines {
    /// One JSON object a line.
    #[default]
    Jsonl,
    /// For spreadsheets.
    Csv,
    /// For people.
    Table,
}

/// Arguments of `predict`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV of runs (docs/runs.md); measured columns may be empty and are not read.
    #[arg(long, value_name = "FILE")]
    runs: PathBuf,
    /// Form of the answer.
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Lines,
}

/// Columns of the table.
const SHOWN: [&str; 7] = ["id", "status", "step_time_s", "tokens_per_s_per_gpu", "mfu", "peak_mem_gib", "reason"];

/// Answers.
pub fn run(args: &Args) -> Result<Outcome> {
    let origin = args.runs.display().to_string();
    let file = File::open(&args.runs).with_context(|| format!("{origin}: cannot be read"))?;
    let rows = runs::read(file).with_context(|| origin.clone())?;
    let predictions = runs::predict_all(&rows).iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
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
