//! `meshwright tune add`: reads the outcome of trials.

use std::path::PathBuf;

use anyhow::Result;

use super::FolderArgs;
use crate::cli::files::{ForceArgs, read_text};
use crate::cli::{Outcome, output};
use crate::tune::{self, EnteredOutcome, Evidence};
use meshwright_engine::units::{Seconds, percent};

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

/// Runs the command: nothing is written unless every log and row is understood.
pub fn run(args: &Args) -> Result<Outcome> {
    let evidence: Vec<Evidence> = match &args.measured {
        Some(path) => {
            let origin = path.display().to_string();
            Evidence::of_rows(&origin, &read_text(path)?)?
        }
        None => args.logs.iter().map(|path| Evidence::of_log(path)).collect::<Result<_, _>>()?,
    };
    let entered = tune::add(&args.folder.folder(), &evidence, args.trial, args.force.existing())?;
    let lines: Vec<String> = output::noted(entered).iter().map(line).collect();
    output::print(&lines.concat())?;
    Ok(Outcome::Answered)
}

fn line(entered: &EnteredOutcome) -> String {
    let EnteredOutcome { from, trial, status, step_s, error, steps } = entered;
    let time = step_s.map_or_else(String::new, |step| format!(", {}", Seconds::new(step)));
    let sure = error.map_or_else(String::new, |error| format!(" ± {}", percent(error)));
    let count = steps.filter(|_| step_s.is_some()).map_or_else(String::new, |steps| format!(" over {steps} steps"));
    format!("{from}: trial {trial}: {status}{time}{sure}{count}\n")
}
