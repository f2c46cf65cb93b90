//! `meshwright tune fit`: fits the parameters of the discrepancy model to measured runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::cli::files::ResultFileArgs;
use crate::cli::{Outcome, output};
use crate::question::RunConstants;
use meshwright_lab::runs;
use meshwright_lab::tuning::{Predictions, TimedPlan, fit, timed_plans};
use meshwright_planner::catalog;

/// Arguments of `tune fit`, which prints the parameters unless a file is named.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV files of measured runs (docs/runs.md).
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    constants: RunConstants,
    /// Name of the parameters.
    #[arg(long, default_value = "fitted")]
    name: String,
    #[command(flatten)]
    file: ResultFileArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    args.file.check_free()?;
    let sets = args.constants.overrides()?;
    let mut plans: Vec<TimedPlan> = Vec::new();
    for path in &args.runs {
        let origin = path.display().to_string();
        let rows = runs::read(catalog::open(path).with_context(|| format!("{origin}: cannot be read"))?)
            .with_context(|| origin)?;
        plans.extend(timed_plans(&rows, &sets, Predictions::CrossValidated));
    }
    // A run that two files share counts once.
    let mut seen = BTreeSet::new();
    let key = |plan: &TimedPlan| {
        (plan.problem.clone(), plan.gpus, plan.batch, plan.plan.clone(), plan.measured.map(f64::to_bits))
    };
    plans.retain(|plan| seen.insert(key(plan)));
    if !plans.iter().any(|plan| plan.measured.is_some()) {
        bail!("no run is timed and predicted: there is nothing to learn from");
    }
    let constants = sets.fit().map_or("none", |fit| fit.name.as_str());
    let table = fit(&plans.iter().collect::<Vec<_>>(), &args.name, &args.file.date, constants);
    let text = format!(
        "# Parameters of the discrepancy between measured and predicted step times. Written by `meshwright tune fit`.\n{}",
        toml::to_string(&table)?
    );
    if args.file.out.is_none() {
        output::print(&text)?;
    }
    args.file.write(|| Ok(text))?;
    output::talk(&format!("{} runs of {} problems", table.runs, table.problems));
    Ok(Outcome::Answered)
}
