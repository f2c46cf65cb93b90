//! `meshwright intervals`: derives prediction intervals from the errors on measured runs.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::files::{self, ResultFileArgs};
use super::format::OutputFormat;
use super::predict::RunsArgs;
use super::{Outcome, output};
use crate::question::filters;
use crate::report::Sheet;
use meshwright_engine::units::percent;
use meshwright_lab::validate::calibrate::{CalibrationRuns, calibrate, coverage, of_sources, share_inside, trusted};
use meshwright_lab::validate::sample::PredictedRun;
use meshwright_planner::catalog::visible;
use meshwright_planner::confidence::{Interval, Quantiles, Table};

/// Arguments of `intervals`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    runs: RunsArgs,
    /// Use only runs with this property, such as framework=megatron.
    #[arg(long, value_name = "COLUMN=VALUE", default_value = "purpose=pretrain")]
    only: Vec<String>,
    /// CSV of runs of other sources, to which nothing is fitted; may be repeated. Rows of low trust do not count.
    #[arg(long, value_name = "FILE")]
    unfitted: Vec<PathBuf>,
    /// Constants fitted without each source, as `fit --sources` wrote them.
    #[arg(long, value_name = "FILE")]
    sources: PathBuf,
    /// Name of the table.
    #[arg(long, default_value = "calibrated")]
    name: String,
    #[command(flatten)]
    file: ResultFileArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    args.file.check_free()?;
    let filters = filters(&args.only)?;
    let (rows, sets) = args.runs.load()?;
    let counts = |sample: &PredictedRun| filters.iter().all(|filter| filter.admits(sample));
    let fits = files::read_source_fits(&args.sources)?;
    let unfitted = args.unfitted.iter().map(|path| files::read_runs(path)).collect::<Result<Vec<_>>>()?;
    let unfitted = trusted(unfitted.concat());
    let runs = CalibrationRuns { fitted: &rows, unfitted: &unfitted };
    let Some(table) = calibrate(runs, &sets, &fits, &args.name, &args.file.date, &counts) else {
        bail!("{}: too few measured step times and peaks to learn from", args.runs.file_name());
    };
    output::print(&output::sheets(&[step_times(&table), peaks(&table)], OutputFormat::Table)?)?;
    let by_source = coverage(runs, &sets, &fits, &counts).unwrap_or_default();
    for (rows, of) in [(&rows, "the runs"), (&unfitted, "the unfitted runs")] {
        if let Some(inside) = share_inside(of_sources(&by_source, rows)) {
            output::talk(&format!("{} of {of} are inside intervals derived without their source", percent(inside)));
        }
    }
    output::talk(&format!(
        "plans predicted over {} apart are measured in that order nine times out of ten ({} pairs)",
        percent(table.apart.gap),
        table.apart.pairs
    ));
    args.file.write(|| {
        let runs = args.runs.file_name();
        let head = format!(
            "# Quantiles of measured over predicted: step time by class of run, peak memory by family. Written by \
            `meshwright intervals --runs {}`.\n",
            visible(&runs)
        );
        Ok(head + &toml::to_string(&table)?)
    })?;
    Ok(Outcome::Answered)
}

fn step_times(table: &Table) -> Sheet {
    let mut sheet = Sheet::new("Measured over predicted step time", &["class", "90 %", "runs"]);
    for of in &table.classes {
        sheet.push([of.class.to_string(), range(&of.time), of.time.runs.to_string()]);
    }
    sheet
}

fn peaks(table: &Table) -> Sheet {
    let mut sheet = Sheet::new("Measured over predicted peak memory", &["family", "90 %", "runs in effect"]);
    for of in &table.families {
        let name = of.family.map_or_else(|| "others".to_owned(), |family| format!("{family:?}"));
        sheet.push([name, range(&of.memory), of.memory.runs.to_string()]);
    }
    sheet
}

fn range(quantiles: &Quantiles) -> String {
    let Interval { low, high } = quantiles.interval();
    format!("{low:.2} to {high:.2}")
}
