//! `meshwright tune add`: reads the outcome of trials.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use super::FolderArgs;
use crate::cli::files::ForceArgs;
use crate::cli::{Outcome, output};
use crate::files::Existing;
use crate::tune::{self, Posterior, Trials, matching};
use meshwright_engine::units::{Seconds, percent};
use meshwright_lab::runs;
use meshwright_lab::runs::log::condensed::condensed;
use meshwright_planner::catalog;

/// Arguments of `tune add`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Logs of trials.
    #[arg(value_name = "LOG", required_unless_present = "measured")]
    logs: Vec<PathBuf>,
    /// Rows of measured runs instead of logs, as `predict` and `validate` read them.
    #[arg(long, value_name = "FILE", conflicts_with = "logs")]
    measured: Option<PathBuf>,
    /// Trial that the log is of, where it does not say which.
    #[arg(long, value_name = "N")]
    trial: Option<u32>,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    force: ForceArgs,
}

/// Outcome with where it is from.
struct Read {
    origin: String,
    path: PathBuf,
    outcome: tune::Outcome,
}

fn read(args: &Args) -> Result<Vec<Read>> {
    if let Some(path) = &args.measured {
        let origin = path.display().to_string();
        let rows = runs::read(catalog::open(path).with_context(|| format!("{origin}: cannot be read"))?)
            .with_context(|| origin.clone())?;
        if rows.is_empty() {
            bail!("{origin}: has no row");
        }
        return rows
            .iter()
            .map(|row| {
                let origin = format!("{origin}, line {}", row.line.unwrap_or_default());
                let outcome = tune::of_row(row).with_context(|| origin.clone())?;
                Ok(Read { origin, path: PathBuf::new(), outcome })
            })
            .collect();
    }
    args.logs
        .iter()
        .map(|path| {
            let origin = path.display().to_string();
            let text = catalog::open(path).and_then(condensed).with_context(|| format!("{origin}: cannot be read"))?;
            let outcome = tune::of_log(&text).with_context(|| origin.clone())?;
            Ok(Read { origin, path: path.clone(), outcome })
        })
        .collect()
}

/// Trial in whose folder a log lies.
fn by_folder(path: &Path, posterior: &Posterior) -> Option<usize> {
    let folder = path.parent()?.file_name()?.to_str()?;
    posterior.trials().iter().position(|trial| trial.folder() == folder)
}

/// Index of the trial that an outcome belongs to.
fn place(args: &Args, read: &Read, posterior: &Posterior) -> Result<usize> {
    let origin = &read.origin;
    let named = match args.trial {
        Some(number) => {
            let at = posterior.trials().iter().position(|trial| trial.trial == number);
            Some(at.ok_or_else(|| anyhow!("--trial {number}: the study has no such trial"))?)
        }
        None => by_folder(&read.path, posterior),
    };
    let Some(row) = &read.outcome.row else {
        return named.ok_or_else(|| {
            anyhow!("{origin}: names no setting, so it is not known which trial it is of\n\nhint: --trial N says which")
        });
    };
    let Some(at) = named else { return matching(row, posterior).map_err(|why| anyhow!("{origin}: {why}")) };
    let differs = runs::differences(row, posterior.trial_problem(), posterior.trial_plan(at));
    if differs.is_empty() {
        return Ok(at);
    }
    bail!("{origin}: is not of trial {}: it says {}", posterior.trials()[at].trial, differs.join(", "))
}

/// Runs the command: nothing is written unless every log and row is understood.
pub fn run(args: &Args) -> Result<Outcome> {
    let outcomes = read(args)?;
    let (locked, posterior) = args.folder.locked()?;
    let mut trials = Trials(posterior.trials().to_vec());
    let mut lines = Vec::new();
    for read in &outcomes {
        let at = place(args, read, &posterior)?;
        let trial = &mut trials.0[at];
        if trial.status.has_ended() && args.force.existing() == Existing::Keep {
            let from = trial.from.clone().unwrap_or_default();
            bail!(
                "{}: trial {} has an outcome already, of {from}\n\nhint: --force replaces it",
                read.origin,
                trial.trial
            );
        }
        let tune::Outcome { status, step_s, error, steps, row } = &read.outcome;
        trial.status = *status;
        (trial.step_s, trial.error, trial.steps) = (*step_s, *error, *steps);
        let peak = row
            .as_ref()
            .filter(|_| *status == tune::TrialStatus::Ran)
            .and_then(|row| row.peak_mem_gib.filter(|peak| *peak > 0.0));
        trial.peak_gib = peak;
        trial.memory = peak.and(row.as_ref()).and_then(|row| row.mem_kind.clone());
        trial.from = Some(read.origin.clone());
        let time = step_s.map_or_else(String::new, |step| format!(", {}", Seconds::new(step)));
        let sure = error.map_or_else(String::new, |error| format!(" ± {}", percent(error)));
        let count = steps.filter(|_| step_s.is_some()).map_or_else(String::new, |steps| format!(" over {steps} steps"));
        lines.push(format!("{}: trial {}: {status}{time}{sure}{count}\n", read.origin, trial.trial));
    }
    locked.write(&trials)?;
    output::print(&lines.concat())?;
    Ok(Outcome::Answered)
}
