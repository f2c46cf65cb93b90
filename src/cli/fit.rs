//! `meshwright fit`: fits constants of the model to measured runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::files::{self, ResultFileArgs};
use super::format::OutputFormat;
use super::predict::{RunsArgs, witnesses};
use super::ranges;
use super::{Outcome, output};
use crate::question::filters;
use crate::report::{Sheet, validate as sheets};
use meshwright_engine::range;
use meshwright_engine::units::percent;
use meshwright_lab::fit::silicon::{self, Curve, TimedGemm, Transfer};
use meshwright_lab::fit::steps::{self, FitRuns, Fitted, Weights};
use meshwright_lab::fit::{free, report};
use meshwright_lab::runs::{self, Row};
use meshwright_lab::validate::sample::{PredictedRun, samples};
use meshwright_lab::validate::{Report, cross, score, sources};
use meshwright_planner::catalog::{self, Overrides};

/// Arguments of `fit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    runs: RunsArgs,
    /// Fit only to runs with this property, such as framework=megatron.
    #[arg(long, value_name = "COLUMN=VALUE", default_value = "purpose=pretrain")]
    only: Vec<String>,
    /// CSV of further runs of the same sources that are not fitted to, but may contradict runs, which then have no part in the fit
    /// (for example, a layout twice as fast on fewer GPUs).
    #[arg(long, value_name = "FILE")]
    witnesses: Option<PathBuf>,
    /// Folder of kernel tables (gemm.csv, nccl.csv); the curves of kernels and links are fitted to them first.
    #[arg(long, value_name = "FOLDER")]
    silicon: Option<PathBuf>,
    /// TOML file of the free constants, instead of the built-in list (clusters/fits/free).
    #[arg(long, value_name = "FILE")]
    free: Option<PathBuf>,
    /// Fit only blocks whose name contains this text.
    #[arg(long, value_name = "NAME")]
    block: Vec<String>,
    /// Weight of peak-memory errors relative to step-time errors.
    #[arg(long, value_name = "W", default_value_t = 0.2, value_parser = ranges::real(range::FACTOR))]
    memory_weight: f64,
    /// Weight of regret (step time lost by choosing on predictions) relative to step-time errors.
    #[arg(long, value_name = "W", default_value_t = 0.1, value_parser = ranges::real(range::FACTOR))]
    regret_weight: f64,
    /// Name of the new fit.
    #[arg(long, default_value = "fitted")]
    name: String,
    #[command(flatten)]
    file: ResultFileArgs,
    /// File to write the constants fitted without each source to, for `validate --sources`.
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    args.file.check_free()?;
    files::check_free(&args.sources, args.file.force.existing())?;
    let filters = filters(&args.only)?;
    let (rows, sets) = args.runs.load()?;
    let before = sets.clone();
    let listed = match &args.free {
        Some(path) => catalog::read_text(path)?,
        None => free::DEFAULT.to_owned(),
    };
    let mut blocks = free::blocks(&listed)?;
    if !args.block.is_empty() {
        let names: Vec<String> = blocks.iter().map(|block| format!("`{}`", block.name)).collect();
        blocks.retain(|block| args.block.iter().any(|name| block.name.contains(name.as_str())));
        if blocks.is_empty() {
            bail!("--block {}: is in the name of no block; they are {}", args.block.join(" "), names.join(", "));
        }
    }
    if blocks.is_empty() {
        bail!("--free: the file has no constants to fit");
    }
    let stated = sets.fit().map(|fit| Arc::new(fit.stated()));
    let mut sets = sets.with_fit(stated);
    if let Some(folder) = &args.silicon {
        sets = kernels(folder, &sets)?;
    }
    let witnesses = witnesses(args.witnesses.as_deref())?;
    let weights = Weights { memory: args.memory_weight, regret: args.regret_weight };
    let counts = |sample: &PredictedRun| filters.iter().all(|filter| filter.admits(sample));
    let runs = FitRuns { rows: &rows, witnesses: &witnesses, counts: &counts };
    let fitted = steps::fit(runs, &sets, &blocks, weights, &|line| output::talk(line))?;
    let (origin, date) = (args.runs.file_name(), &args.file.date);
    let fit = report::fit(sets.fit(), &args.name, date, &fitted.constants, &origin);
    let new = sets.clone().with_fit(Some(fit.clone().into()));
    let scored = |sets: &Overrides, crossed: bool| {
        let predictions = if crossed { cross::predict(&rows, sets) } else { runs::predict_all_with(&rows, sets) };
        score(&samples(&rows, &predictions), &filters, &witnesses)
    };
    let reports = [
        ("before", scored(&before, false)),
        ("after, on the runs fitted to", scored(&new, false)),
        ("after, cross-validated", scored(&new, true)),
    ];
    output::print(&output::sheets(&[constants(&fitted.constants), effect(&reports, &rows)], OutputFormat::Table)?)?;
    output::print(&output::sheets(&[sheets::choice(&reports[2].1)], OutputFormat::Table)?)?;
    args.file.write(|| Ok(report::toml(&fit, &comment(&origin, &args.name, date))?))?;
    if let Some(path) = &args.sources {
        let basis = sources::basis(&args.runs.text()?, &listed, &fit);
        let text = report::toml(&report::without_sources(&args.name, basis, &fitted), SOURCES)?;
        files::write(path, &text, args.file.force.existing())?;
    }
    Ok(Outcome::Answered)
}

/// Comment at the top of a file of constants by source.
const SOURCES: &str = "Constants fitted without the runs of each source of five or more, for `meshwright validate --sources`.\n\
    Written by `meshwright fit --sources FILE`; `basis` is a digest of the runs and of the constants that are not fitted.";

/// Comment at the top of a fit file.
fn comment(runs: &str, name: &str, date: &str) -> String {
    let [runs, name, date] = [runs, name, date].map(catalog::visible);
    format!(
        "Constants laid over the specification's own (version 1.1), applied unless `--fit none` is given; later ones win.\n\
         Written by `meshwright fit --runs {runs} --name {name} --date {date} --out FILE`. What has a `spread` was fitted to\n\
         runs, and the next fit finds it anew; all else is stated by its source, is edited here, and stays.\n\
         \n\
         key      gpu.NAME.… or stack.NAME.…, as in the file of that name; NAME may end in *\n\
         value    as it would stand there; `was` is the specification's\n\
         source   key of docs/sources.toml; `from` says what it was fitted to, or where it is stated\n\
         spread   standard deviation over the five folds; `folds` are the values without each (docs/cost-model.md)"
    )
}

/// Fits the curves of kernels and links; improved curves override the catalogue from here on.
fn kernels(folder: &Path, sets: &Overrides) -> Result<Overrides> {
    let gemms: Vec<TimedGemm> = table(&folder.join("gemm.csv"))?;
    let transfers: Vec<Transfer> = table(&folder.join("nccl.csv"))?;
    output::talk(&format!("{} GEMMs and {} collectives to fit curves to", gemms.len(), transfers.len()));
    let mut curves = silicon::gemms(&gemms, sets)?;
    curves.extend(silicon::collectives(&transfers, sets)?);
    let columns = ["curve", "samples", "median error before", "cross-validated", "kept"];
    let mut sheet = Sheet::new("Curves of kernels and links", &columns);
    for curve in &curves {
        sheet.push([
            curve.key.clone(),
            curve.samples.to_string(),
            percent(curve.before),
            percent(curve.crossed),
            if curve.kept { "yes".into() } else { "no: no clear gain".into() },
        ]);
    }
    output::print(&output::sheets(&[sheet], OutputFormat::Table)?)?;
    Ok(steps::with_constants(sets, curves.iter().flat_map(Curve::constants)))
}

fn table<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let origin = path.display().to_string();
    let file = catalog::open(path).with_context(|| format!("{origin}: cannot be read"))?;
    csv::Reader::from_reader(file).deserialize().collect::<Result<_, _>>().with_context(|| origin)
}

/// Table of all constants, before and after.
fn constants(fitted: &[Fitted]) -> Sheet {
    let mut sheet = Sheet::new("Constants", &["constant", "was", "is", "spread", "runs"]);
    for one in fitted {
        let Fitted { placed, value, folds: _, runs } = one;
        let unit = placed.free.unit.as_deref().map_or_else(String::new, |unit| format!(" {unit}"));
        let factor = if placed.free.factor { " times" } else { "" };
        sheet.push([
            placed.free.keys.join(", "),
            format!("{}{unit}{factor}", free::rounded(placed.start())),
            format!("{}{unit}{factor}", free::rounded(*value)),
            free::rounded(one.spread()).to_string(),
            runs.to_string(),
        ]);
    }
    sheet
}

/// Table of errors and regret, before and after.
fn effect(reports: &[(&str, Report)], rows: &[Row]) -> Sheet {
    let title = format!("Effect on {} runs", rows.len());
    let columns = ["", "mean", "median", "p90", "bias", "memory", "mean regret", "best of 3"];
    let mut sheet = Sheet::new(title, &columns);
    for (name, report) in reports {
        let percent = |value: Option<f64>| value.map_or_else(String::new, meshwright_engine::units::percent);
        let time = report.time.first().and_then(|class| class.errors);
        let choice = report.choice.classes.first();
        sheet.push([
            (*name).to_owned(),
            percent(time.map(|errors| errors.mean_ape)),
            percent(time.map(|errors| errors.median_ape)),
            percent(time.map(|errors| errors.p90_ape)),
            percent(time.map(|errors| errors.bias)),
            percent(report.memory.first().map(|class| class.errors.mean_ape)),
            percent(choice.map(|choice| choice.mean_regret)),
            percent(choice.map(|choice| choice.mean_best_of_three)),
        ]);
    }
    sheet
}
