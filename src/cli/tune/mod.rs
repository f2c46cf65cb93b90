//! `meshwright tune`: time a few plans, learn from them, and stop when it is decided.

mod add;
mod apply;
mod fit;
mod init;
mod next;
mod status;

use std::path::PathBuf;

use anyhow::Result;

use super::{Outcome, output};
use crate::tune::{Folder, Posterior};

/// Subcommands of `tune`.
#[derive(Debug, clap::Subcommand)]
pub enum TuneCommand {
    /// Start a study: the question, and the plans that may be tried.
    Init(Box<init::Args>),
    /// Write the files of the plan whose timing is worth most, or of several for a job array.
    Next(next::Args),
    /// Read the outcome of trials from their logs, or from rows of measured runs.
    Add(add::Args),
    /// Show what is believed of each plan, and whether further timing is worth it.
    Status(status::Args),
    /// Write the files of the best plan at full scale.
    Apply(apply::Args),
    /// Fit the parameters of the discrepancy model to measured runs.
    Fit(fit::Args),
}

/// Folder of a study.
#[derive(Debug, clap::Args)]
pub struct FolderArgs {
    /// Folder of the study.
    #[arg(long, value_name = "DIR", default_value = "trials")]
    dir: PathBuf,
}

impl FolderArgs {
    fn folder(&self) -> Folder {
        Folder::new(&self.dir)
    }

    fn posterior(&self) -> Result<Posterior> {
        Ok(output::noted(self.folder().posterior()?))
    }
}

/// Runs the command.
pub fn run(command: &TuneCommand) -> Result<Outcome> {
    match command {
        TuneCommand::Init(args) => init::run(args),
        TuneCommand::Next(args) => next::run(args),
        TuneCommand::Add(args) => add::run(args),
        TuneCommand::Status(args) => status::run(args),
        TuneCommand::Apply(args) => apply::run(args),
        TuneCommand::Fit(args) => fit::run(args),
    }
}
