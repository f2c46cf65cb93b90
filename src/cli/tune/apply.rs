//! `meshwright tune apply`: writes the files of the best plan at full scale.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::FolderArgs;
use crate::cli::files::ForceArgs;
use crate::cli::{Outcome, launch_files, output};
use crate::question::{Chosen, framework};
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
    let posterior = args.folder.posterior()?;
    let Some(leader) = posterior.outlook.leader else {
        let dir = args.folder.dir.display();
        bail!("{dir}: no trial has run, so there is none to apply\n\nhint: meshwright tune next --dir {dir}");
    };
    let (problem, plan) = (posterior.problem(), posterior.plan(leader));
    let text = format!(
        "trial {}: {plan}\nwithin {} of the fastest with {}\n",
        posterior.trials()[leader].trial,
        percent(posterior.study().tolerance),
        percent(posterior.outlook.within)
    );
    if let Some(name) = posterior.study().framework.as_deref() {
        let chosen = Chosen { plan, refined: None };
        let recipe = posterior.study().problem.recipe_name(problem);
        let Some(files) = launch_files::told(chosen.files(framework(name)?, problem, &recipe, None)) else {
            return Ok(Outcome::NoPlan);
        };
        let folder = args.out.clone().unwrap_or_else(|| args.folder.dir.join("best"));
        launch_files::written(&folder, &files, args.force.existing())?;
    }
    output::print(&text)?;
    Ok(Outcome::Answered)
}
