//! `meshwright tune init`: starts a study.

use std::path::PathBuf;

use anyhow::Result;

use super::FolderArgs;
use crate::cli::effort::EffortLimits;
use crate::cli::files::{ForceArgs, read_text};
use crate::cli::progress::Progress;
use crate::cli::{Outcome, output};
use crate::question::{PlanOptions, Question};
use crate::tune::{NamedText, StudyQuestion, TrialLimits};
use meshwright_engine::units::percent;

/// Arguments of `tune init`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    problem: Question,
    #[command(flatten)]
    plans: PlanOptions,
    #[command(flatten)]
    folder: FolderArgs,
    /// Only these layouts may be tried: a CSV of runs, as `predict` reads it.
    #[arg(long, value_name = "FILE", help_heading = "Trials")]
    candidates: Option<PathBuf>,
    #[command(flatten)]
    limits: TrialLimits,
    #[command(flatten)]
    force: ForceArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let candidates = args
        .candidates
        .as_ref()
        .map(|path| anyhow::Ok(NamedText { origin: path.display().to_string(), text: read_text(path)? }));
    let question = StudyQuestion {
        problem: args.problem.clone(),
        plans: args.plans.clone(),
        candidates: candidates.transpose()?,
        limits: args.limits.clone(),
    };
    let effort = EffortLimits::new(args.plans.time_limit, args.plans.memory_limit);
    let progress = Progress::new();
    let control = |done, all| {
        progress.at(done, all);
        effort.control()
    };
    let started = question.start(&args.folder.dir, &control);
    progress.finish();
    effort.talk();
    let Some(started) = output::noted(started?) else { return Ok(Outcome::NoPlan) };
    args.folder.folder().lock()?.create(&started.study, &started.trials, args.force.existing())?;
    let (dir, study) = (args.folder.dir.display(), &started.study);
    output::print(&format!(
        "{dir}: {} plans to try, at most {} trials, to within {}\n",
        started.trials.0.len(),
        study.budget,
        percent(study.tolerance)
    ))?;
    if let Some(next) = started.posterior.outlook.next {
        output::print(&format!("first: {}\n\nmeshwright tune next --dir {dir}\n", started.posterior.plan(next)))?;
    }
    Ok(Outcome::Answered)
}
