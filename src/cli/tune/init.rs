//! `meshwright tune init`: starts a study.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use super::FolderArgs;
use crate::cli::effort::EffortLimits;
use crate::cli::files::ForceArgs;
use crate::cli::progress::Progress;
use crate::cli::{Outcome, launch_files, output};
use crate::question::{Minimised, PlanOptions, Question, Subject};
use crate::tune::{Posterior, Study, Trial, Trials};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_lab::runs;
use meshwright_planner::catalog;
use meshwright_planner::search::SearchOptions;
use meshwright_planner::space::parse_plan;

/// Plans that may be tried where the user does not say how many.
const PLANS: u32 = 48;
/// Most trials where the user does not say how many.
const BUDGET: u32 = 8;

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
    /// Number of plans that may be tried, the fastest by prediction.
    #[arg(long, value_name = "N", default_value_t = PLANS, value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "candidates", help_heading = "Trials")]
    plans_to_try: u32,
    /// Share of the step time that does not matter: timing ends when the next trial is expected to gain less.
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, help_heading = "Trials")]
    tolerance: f64,
    /// Most trials.
    #[arg(long, value_name = "N", default_value_t = BUDGET, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Trials")]
    budget: u32,
    /// GPUs of a trial, fewer than the cluster's
    ///
    /// It runs the same micro-batches on fewer replicas, with the batch in proportion.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Trials")]
    trial_gpus: Option<u32>,
    #[command(flatten)]
    force: ForceArgs,
}

/// Share as `5%` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| "is neither `5%` nor `0.05`".to_owned());
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err("must be above 0 and below 100%".into()) }
}

/// The question with the paths of its files from the root, so that later commands find them from anywhere.
fn with_whole_paths(question: &Question) -> Question {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let named = |name: &str| {
        let path = Path::new(name);
        if path.is_file() { whole(path).display().to_string() } else { name.to_owned() }
    };
    let mut question = question.clone();
    (question.model, question.cluster) = (named(&question.model), named(&question.cluster));
    question.options.calibration = question.options.calibration.iter().map(|path| whole(path)).collect();
    question.options.stack = question.options.stack.as_deref().map(named);
    question
}

/// Plans of a file of runs, each with the name of its row.
fn given(path: &Path, problem: &Problem, question: &Question) -> Result<Vec<(Option<String>, Plan)>> {
    let origin = path.display().to_string();
    let rows = runs::read(catalog::open(path).with_context(|| format!("{origin}: cannot be read"))?)
        .with_context(|| origin.clone())?;
    let sets = question.options.overrides()?;
    let mut plans: Vec<(Option<String>, Plan)> = Vec::new();
    for row in rows {
        let line = row.line.unwrap_or_default();
        let wrong = |why: String| anyhow!("{origin}, line {line}: {why}");
        let (_, plan) = runs::problem_with(&row, &sets).map_err(|why| wrong(why.to_string()))?;
        let plan = parse_plan(&plan.to_string(), problem).map_err(wrong)?;
        let id = row.id.filter(|id| !id.is_empty());
        if plans.iter().any(|(_, known)| *known == plan) {
            output::talk(&format!("{origin}, line {line}: the plan is there already, and counts once"));
        } else {
            plans.push((id, plan));
        }
    }
    Ok(plans)
}

/// The fastest plans by prediction.
fn fastest(
    args: &Args,
    problem: &Problem,
    framework: Option<&'static Framework>,
    risk: f64,
) -> Result<Vec<(Option<String>, Plan)>> {
    let (launcher, note) = args.plans.default_launcher(problem);
    if let Some(note) = note {
        output::talk(&note);
    }
    let restrictions = args.plans.restrictions(framework.or(launcher), problem)?;
    let effort = EffortLimits::new(args.plans.time_limit, args.plans.memory_limit);
    let progress = Progress::new();
    let control = |done, all| {
        progress.at(done, all);
        effort.control()
    };
    let options = SearchOptions { top: args.plans_to_try as usize, restrictions };
    let found = args.plans.find(problem, &options, risk, None, &[], &control);
    progress.finish();
    effort.talk();
    Ok(found.ranking.evaluations.into_iter().map(|evaluation| (None, evaluation.plan)).collect())
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if args.plans.economy.objective != Minimised::default() || args.plans.pareto {
        bail!("tune looks for the fastest plan: leave out --objective and --pareto");
    }
    let framework = args.plans.framework.as_deref().and_then(frameworks::named);
    let question = with_whole_paths(&args.problem);
    let (unlimited, risk) = question.split_risk()?;
    let problem = match output::noted(unlimited.subject(framework)?) {
        Subject::Cluster(problem) => *problem,
        Subject::Pools(_) => {
            bail!("{}: tune times plans of one kind of GPU, and this cluster has pools", args.problem.cluster)
        }
    };
    if !launch_files::model_runs(framework, &problem) {
        return Ok(Outcome::NoPlan);
    }
    let written =
        framework.or_else(|| args.plans.default_launcher(&problem).0).map(|framework| framework.name().to_owned());
    let study =
        Study::new(question.resolved(&problem, framework), written, args.tolerance, args.budget, args.trial_gpus);
    study.check().map_err(|why| anyhow!(why))?;
    let plans = match &args.candidates {
        Some(path) => given(path, &problem, &question)?,
        None => fastest(args, &problem, framework, risk)?,
    };
    let (ids, plans): (Vec<_>, Vec<_>) = plans.into_iter().unzip();
    let named: Vec<(String, Option<String>)> = plans.iter().map(ToString::to_string).zip(ids).collect();
    let (mut plans, without) = Posterior::triable(&study, &problem, plans)?;
    if without > 0 {
        output::talk(&format!("{without} plans do not run on the GPUs of a trial, and are left out"));
    }
    if plans.is_empty() {
        output::talk("no plan is left to try");
        return Ok(Outcome::NoPlan);
    }
    let costs = Costs::new(&problem);
    plans.sort_by_cached_key(|plan| costs.evaluate_simulated(plan).step.total().get().to_bits()); // positive numbers sort by their bits
    let trials = plans.iter().zip(1..).map(|(plan, trial)| {
        let text = plan.to_string();
        let id = named.iter().find(|(known, _)| *known == text).and_then(|(_, id)| id.clone());
        Trial { trial, id, plan: text, ..Trial::default() }
    });
    let trials = Trials(trials.collect());
    let count = trials.0.len();
    // whatever later commands could not read must not be written
    let posterior = output::noted(Posterior::new(study.clone(), trials.clone(), &args.folder.dir)?);
    args.folder.folder().lock()?.create(&study, &trials, args.force.existing())?;
    let dir = args.folder.dir.display();
    output::print(&format!(
        "{dir}: {count} plans to try, at most {} trials, to within {}\n",
        study.budget,
        meshwright_engine::units::percent(study.tolerance)
    ))?;
    if let Some(next) = posterior.outlook.next {
        output::print(&format!("first: {}\n\nmeshwright tune next --dir {dir}\n", posterior.plan(next)))?;
    }
    Ok(Outcome::Answered)
}
