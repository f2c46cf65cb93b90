//! `meshwright validate`: scores predictions against measured runs.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::files::{self, ForceArgs};
use super::format::OutputFormat;
use super::predict::{RunsArgs, witnesses};
use super::{Outcome, output};
use crate::question::{filters, validation};
use crate::report::html::{HtmlReport, errors_figure, points_drawing, points_figure};
use crate::report::{Sheet, validate as sheets};
use meshwright_lab::runs::{self, Prediction, Row};
use meshwright_lab::validate::sample::samples;
use meshwright_lab::validate::{Report, cross, score, sources};
use meshwright_planner::catalog::Overrides;

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    runs: RunsArgs,
    /// Score only runs with this property: purpose=pretrain, trust=high,medium, set=…, gpu=…, framework=…
    #[arg(long, value_name = "COLUMN=VALUE")]
    only: Vec<String>,
    /// CSV of further runs of the same sources that are not scored, but may contradict scored ones (for example, a layout
    /// twice as fast on fewer GPUs).
    #[arg(long, value_name = "FILE")]
    witnesses: Option<PathBuf>,
    /// Predict each run with the constants fitted without its configuration.
    #[arg(long)]
    cross_validated: bool,
    /// Predict the runs of each source with the constants fitted without that source, from the file that `fit --sources`
    /// wrote; runs of sources that it lacks are left out.
    #[arg(long, value_name = "FILE", conflicts_with = "cross_validated")]
    sources: Option<PathBuf>,
    /// Number of runs with the largest errors to list.
    #[arg(long, value_name = "K", default_value_t = 10)]
    worst: usize,
    /// SVG file for a plot of predicted against measured step times.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the scores as a report, with the plot by source.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    files::check_free(args.svg.iter().chain(&args.html), args.force.existing())?;
    let filters = filters(&args.only)?;
    let (rows, sets) = args.runs.load()?;
    let witnesses = witnesses(args.witnesses.as_deref())?;
    let (rows, predictions) = match &args.sources {
        Some(path) => without_source(rows, &sets, path)?,
        None if args.cross_validated => {
            let predictions = cross::predict(&rows, &sets);
            (rows, predictions)
        }
        None => {
            let predictions = runs::predict_all_with(&rows, &sets);
            (rows, predictions)
        }
    };
    let report = score(&samples(&rows, &predictions), &filters, &witnesses);
    if let Some(path) = &args.svg {
        files::write(path, &points_drawing(&report.points), args.force.existing())?;
    }
    let fit = sets.fit().map_or("none", |fit| fit.name.as_str()).to_owned();
    let text = match args.format {
        OutputFormat::Json => validation(&fit, args.cross_validated, &args.only, &report)?,
        OutputFormat::Table | OutputFormat::Markdown | OutputFormat::Csv => {
            output::sheets(&scores(args, &report), args.format)?
        }
    };
    if let Some(path) = &args.html {
        let lead = format!("{} runs selected, {} timed and predicted; fit: {fit}", report.runs, report.points.len());
        let mut page = HtmlReport::new("Predictions against measured runs", vec![lead]);
        page.answer("Predicted against measured", [points_figure(&report.points)]);
        page.section("Errors by source", [errors_figure(&report.points)]);
        for sheet in scores(args, &report) {
            page.sheet(&sheet);
        }
        files::write(path, &page.text(), args.force.existing())?;
    }
    output::print(&text)?;
    if let Some(first) = report.unmeasured.first() {
        let line = first.line.map_or_else(String::new, |line| format!("line {line}, "));
        output::talk(&format!(
            "{} measured cells are invalid and count as blank; the first: {line}row `{}`, column `{}`: {}",
            report.unmeasured.len(),
            first.id,
            first.column,
            first.value
        ));
    }
    output::talk(&format!(
        "{} of {} runs selected, {} of them timed and predicted; fit: {fit}",
        report.runs,
        rows.len(),
        report.points.len()
    ));
    Ok(Outcome::Answered)
}

/// Tables of the scores, without those that have nothing to say.
fn scores(args: &Args, report: &Report) -> Vec<Sheet> {
    let table = |is_shown: bool, sheet: fn(&Report) -> Sheet| is_shown.then(|| sheet(report));
    [
        table(args.sources.is_some(), sheets::by_source),
        table(true, sheets::time),
        table(!report.memory.is_empty(), sheets::memory),
        table(true, sheets::oom),
        table(true, sheets::too_large),
        table(!report.choice.classes.is_empty(), sheets::choice),
        table(!report.order.is_empty(), sheets::order),
        table(!report.anomalies.is_empty(), sheets::anomalies),
        table(!report.unpredicted.is_empty(), sheets::unpredicted),
        table(!report.unmeasured.is_empty(), sheets::unmeasured),
        Some(sheets::worst(report, args.worst)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Rows whose source the file of constants has, with their predictions.
fn without_source(rows: Vec<Row>, sets: &Overrides, path: &Path) -> Result<(Vec<Row>, Vec<Prediction>)> {
    let predicted = sources::predict(&rows, sets, &files::read_source_fits(path)?);
    Ok(rows.into_iter().zip(predicted).filter_map(|(row, prediction)| Some((row, prediction?))).unzip())
}
