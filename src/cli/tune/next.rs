//! `meshwright tune next`: writes the files of the plans whose timing is worth most.

use std::fmt::Write as _;

use anyhow::Result;

use super::FolderArgs;
use crate::cli::{Outcome, launch_files, output};
use crate::tune::{self, NextTrials};
use meshwright_engine::units::{Seconds, percent};

/// Arguments of `tune next`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    trials: NextTrials,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let launch = output::noted(tune::next(&args.folder.folder(), &args.trials)?);
    let dir = args.folder.dir.display();
    if launch.decided {
        output::print(&format!("decided: no trial is worth its time\n\nmeshwright tune apply --dir {dir}\n"))?;
        return Ok(Outcome::Answered);
    }
    if launch.trials.is_empty() {
        return Ok(Outcome::NoPlan);
    }
    let mut text = String::new();
    for trial in &launch.trials {
        launch_files::name_written(&trial.files);
        writeln!(
            text,
            "{:>4}  {}\n      expected {}, runs with {}, best with {}",
            trial.trial,
            trial.plan,
            Seconds::new(trial.median_s),
            percent(trial.runs),
            percent(trial.best)
        )?;
    }
    if let Some(array) = &launch.array {
        launch_files::name_written(std::slice::from_ref(array));
        let name = array.file_name().unwrap_or_default().display();
        writeln!(text, "\n(cd {dir} && sbatch {name})")?;
    }
    writeln!(text, "meshwright tune add --dir {dir} {dir}/*.log")?;
    output::print(&text)?;
    Ok(Outcome::Answered)
}
