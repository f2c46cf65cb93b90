//! `meshwright tune next`: writes the files of the plans whose timing is worth most.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::FolderArgs;
use crate::cli::{Outcome, launch_files, output};
use crate::files::Existing;
use crate::question::{Chosen, framework};
use crate::tune::{Posterior, TrialStatus, Trials};
use meshwright_engine::units::{Seconds, percent};
use meshwright_frameworks::emit::{EmittedFile, job_of};

/// Arguments of `tune next`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: FolderArgs,
    /// Number of trials to launch together.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// Steps of a trial; the first quarter, at most ten, are warm-up.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(4..=1_000_000))]
    steps: u32,
    /// Go on although the budget is spent, or further timing is not worth it.
    #[arg(long)]
    anyway: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let (locked, posterior) = args.folder.locked()?;
    let dir = args.folder.dir.display();
    if posterior.is_decided() && !args.anyway {
        output::print(&format!("decided: no trial is worth its time\n\nmeshwright tune apply --dir {dir}\n"))?;
        return Ok(Outcome::Answered);
    }
    let most = if args.anyway { usize::MAX } else { posterior.left() };
    let chosen = posterior.batch(most.min(args.count as usize));
    if chosen.is_empty() {
        let why = if most == 0 { "the budget is spent: --anyway goes on" } else { "no plan is left to try" };
        output::talk(why);
        return Ok(Outcome::NoPlan);
    }
    let mut trials = Trials(posterior.trials().to_vec());
    let (mut folders, mut first) = (Vec::new(), None);
    let mut text = String::new();
    for &at in &chosen {
        let trial = &mut trials.0[at];
        trial.status = TrialStatus::Waiting;
        if let Some(files) = written(&posterior, at, &args.folder.dir.join(trial.folder()), args.steps)? {
            folders.push(trial.folder());
            first.get_or_insert(files);
        }
        let believed = posterior.of(at);
        let shown = Seconds::new(believed.median_s);
        writeln!(
            text,
            "{:>4}  {}\n      expected {shown}, runs with {}, best with {}",
            trial.trial,
            posterior.trial_plan(at),
            percent(believed.prospect.runs),
            percent(believed.prospect.best)
        )?;
    }
    let named = posterior.study().framework.as_deref().map(framework).transpose()?;
    let job = named
        .zip(first.as_deref())
        .and_then(|(named, files)| job_of(named, posterior.trial_problem().cluster(), files));
    if let Some(job) = job {
        let array = job.array(&folders);
        launch_files::written(&args.folder.dir, std::slice::from_ref(&array), Existing::Replace)?;
        writeln!(text, "\n(cd {dir} && sbatch {})", array.name)?;
    }
    locked.write(&trials)?;
    writeln!(text, "meshwright tune add --dir {dir} {dir}/*.log")?;
    output::print(&text)?;
    Ok(Outcome::Answered)
}

/// Writes the launch files of a trial into its folder, and returns them; none where the framework has no files for it.
fn written(posterior: &Posterior, at: usize, folder: &Path, steps: u32) -> Result<Option<Vec<EmittedFile>>> {
    let Some(name) = posterior.study().framework.as_deref() else { return Ok(None) };
    let chosen = Chosen { plan: posterior.trial_plan(at), refined: None };
    let problem = posterior.trial_problem();
    let recipe = posterior.study().problem.recipe_name(problem);
    let files = launch_files::told(chosen.files(framework(name)?, problem, &recipe, Some(steps)));
    files.iter().try_for_each(|files| launch_files::written(folder, files, Existing::Replace))?;
    Ok(files)
}
