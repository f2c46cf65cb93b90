//! `meshwright runs from-log`: converts training logs to rows of a runs file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::files::{self, ForceArgs};
use super::{Outcome, output};
use meshwright_lab::runs::log;
use meshwright_lab::runs::{PredictionStatus, Row, predict};
use meshwright_planner::catalog::{self, Overrides};

/// Subcommands of `runs`.
#[derive(Debug, clap::Subcommand)]
pub enum RunsCommand {
    /// Convert logs of Megatron-LM, DeepSpeed and torchtitan to CSV rows for `predict` and `validate`.
    FromLog(FromLog),
}

/// Arguments of `runs from-log`.
#[derive(Debug, clap::Args)]
pub struct FromLog {
    /// Log files, one for each run.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Values that the logs omit or misstate: gpu=H100, gpus_per_node=8, interconnect_inter="8x400Gb IB", … (columns:
    /// docs/runs.md).
    #[arg(long = "with", value_name = "COLUMN=VALUE")]
    with: Vec<String>,
    /// Model whose shape to use: a name (`meshwright models`), a TOML file, or a Hugging Face config.json.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// File to write the rows to [default: stdout].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

/// Runs the command.
pub fn run(command: &RunsCommand) -> Result<Outcome> {
    let RunsCommand::FromLog(args) = command;
    files::check_free(&args.out, args.force.existing())?;
    let cells = args.with.iter().map(|item| cell(item)).collect::<Result<Vec<_>>>()?;
    let model = args.model.as_deref().map(|name| catalog::model(name, &Overrides::default())).transpose()?;
    let mut rows = Vec::new();
    for path in &args.logs {
        let origin = path.display().to_string();
        let text = catalog::open(path)
            .and_then(log::condensed::condensed)
            .with_context(|| format!("{origin}: cannot be read"))?;
        let run = log::read(&text).with_context(|| origin.clone())?;
        let row = Row { id: Some(name(path)), source: Some(origin.clone()), ..run.row };
        let row = match &model {
            Some(model) => log::of_model(model, row),
            None => row,
        };
        let row = log::fill(row, &cells).map_err(|error| anyhow!("--with: {error}"))?;
        report(&origin, run.steps, &row);
        rows.push(row);
    }
    let text = log::to_csv(&rows)?;
    match &args.out {
        Some(path) => files::write(path, &text, args.force.existing())?,
        None => output::print(&text)?,
    }
    Ok(Outcome::Answered)
}

/// File name of a log without its extension.
fn name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn cell(item: &str) -> Result<(String, String)> {
    let (key, value) =
        item.split_once('=').ok_or_else(|| anyhow!("--with {item}: write `column=value`, such as `gpu=H100`"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Reports on stderr the framework, steps and step time of a log, then the columns that a prediction still needs.
fn report(origin: &str, steps: usize, row: &Row) {
    let framework = row.framework.as_deref().unwrap_or_default();
    let seconds = row.step_time_canon_s.map_or_else(|| "no step time".to_owned(), |s| format!("{s:.4} s a step"));
    output::talk(&format!("{origin}: {framework}, {steps} steps logged, {seconds}"));
    let missing = log::missing(row);
    if !missing.is_empty() {
        output::talk(&format!(
            "  not in the log: {}\n  hint: --with {}=…, or --model for the shape",
            missing.join(", "),
            missing[0]
        ));
        return;
    }
    let prediction = predict(row);
    if prediction.status != PredictionStatus::Ok {
        output::talk(&format!("  cannot be predicted: {}", prediction.reason));
    }
}
