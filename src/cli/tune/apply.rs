//! `meshwright tune apply`: writes the files of the best plan at full scale.

use std::path::PathBuf;

use anyhow::Result;

use super::FolderArgs;
use crate::cli::files::ForceArgs;
use crate::cli::{Outcome, launch_files, output};
use crate::tune;
use meshwright_engine::units::percent;

/// Arguments of `tune apply`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: FolderArgs,
    /// Folder for the files, created if missing [default: the folder `best` of the study].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let applied = tune::apply(&args.folder.folder(), args.out.as_deref(), args.force.existing())?;
    let Some(best) = output::noted(applied) else { return Ok(Outcome::NoPlan) };
    launch_files::name_written(&best.files);
    output::print(&format!(
        "trial {}: {}\nwithin {} of the fastest with {}\n",
        best.trial,
        best.plan,
        percent(best.tolerance),
        percent(best.within)
    ))?;
    Ok(Outcome::Answered)
}
