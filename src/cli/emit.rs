//! `meshwright emit`: writes a plan as the files that a framework's launcher reads.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgMatches, Command, FromArgMatches};
use serde::Deserialize;

use super::files::Existing;
use super::{Outcome, output, pooled, refined};
use crate::cli::launch_files::{Chosen, files, framework, written};
use crate::question::{Question, Subject};
use meshwright_engine::cost::Costs;
use meshwright_frameworks::Framework;
use meshwright_frameworks::emit::EmittedFile;
use meshwright_planner::pools::Pooled;
use meshwright_planner::space::{illegal, parse_plan};

/// Arguments of `emit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Framework: megatron, megatron-bridge, deepspeed, torchtitan, accelerate, nanotron.
    framework: String,
    #[command(flatten)]
    problem: Asked,
    /// Plan, such as "tp=8 cp=1 pp=16 vpp=8"; dp follows from the cluster.
    #[arg(long, value_name = "PLAN", required_unless_present = "from")]
    plan: Option<String>,
    /// Document of `plan --format json` or `explain --format json` to read model, cluster, workload and plan from.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    from: Option<PathBuf>,
    /// Rank of the plan in that document.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "from")]
    rank: u32,
    /// Optimise the layers of every stage first, as `plan --refine` does.
    #[arg(long)]
    refine: bool,
    /// Folder for the files, created if missing [default: print them].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long)]
    force: bool,
}

/// Problem flags, which may be omitted when a document gives them.
#[derive(Debug)]
struct Asked(Option<Question>);

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let asked = matches.contains_id("model");
        Ok(Self(if asked { Some(Question::from_arg_matches(matches)?) } else { None }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Asked {
    fn augment_args(command: Command) -> Command {
        Question::augment_args_for_update(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Question::augment_args_for_update(command)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let framework = framework(&args.framework)?;
    let (problem_args, text) = match (&args.from, &args.problem.0, &args.plan) {
        (Some(path), None, _) => earlier(path, args.rank)?,
        (Some(_), Some(_), _) => bail!("--from gives the model and the cluster; leave them out"),
        (None, Some(problem), Some(plan)) => (problem.clone(), plan.clone()),
        (None, ..) => bail!("a model and a cluster are needed, or --from a document of `plan --format json`"),
    };
    let problem = match output::noted(problem_args.subject(Some(framework))?) {
        Subject::Cluster(problem) => *problem,
        Subject::Pools(pooled) => {
            return over_pools(args, framework, &pooled, (&text, &problem_args.recipe_name(&pooled.joined()[0])));
        }
    };
    let plan = parse_plan(&text, &problem).map_err(|why| anyhow!("--plan: {why}"))?;
    let costs = Costs::new(&problem);
    let mut rejections = Vec::new();
    illegal(&costs, &plan, &mut rejections);
    let refines = args.refine && rejections.is_empty(); // what is illegal is told with the files
    let refined = if refines { Some(refined::expressible(framework.limits, &costs, &plan)?) } else { None };
    let chosen = Chosen { plan: &plan, refined: refined.as_ref() };
    let Some(files) = files(framework, &problem, &chosen, &problem_args.recipe_name(&problem)) else {
        return Ok(Outcome::NoPlan);
    };
    put(args, &files)
}

/// Files of a plan over pools of heterogeneous GPUs, distributed in the fastest way that the framework runs.
fn over_pools(
    args: &Args,
    framework: &'static Framework,
    pooled: &Pooled,
    (text, recipe): (&str, &str),
) -> Result<Outcome> {
    if args.refine {
        bail!(
            "--refine does not apply to pools of heterogeneous GPUs: layers of stages on pools are always \
        optimised"
        );
    }
    let plan = parse_plan(text, &pooled.joined()[0]).map_err(|why| anyhow!("--plan: {why}"))?;
    let mixtures = pooled.ways(&plan);
    if mixtures.is_empty() {
        pooled::talk_of_reasons(pooled, &plan);
        return Ok(Outcome::NoPlan);
    }
    match pooled::files(framework, pooled, &mixtures, recipe) {
        Some(files) => put(args, &files),
        None => Ok(Outcome::NoPlan),
    }
}

/// Writes the files to the requested folder, else prints them.
fn put(args: &Args, files: &[EmittedFile]) -> Result<Outcome> {
    match &args.out {
        Some(folder) => written(folder, files, Existing::from_force(args.force))?,
        None => output::print(&printed(files))?,
    }
    Ok(Outcome::Answered)
}

/// Text of the files: a single one as it is, several each under its name.
fn printed(files: &[EmittedFile]) -> String {
    match files {
        [file] => file.text.clone(),
        files => {
            let parts: Vec<String> = files.iter().map(|file| format!("==> {} <==\n{}", file.name, file.text)).collect();
            parts.join("\n")
        }
    }
}

/// Fields that `emit` reads from an earlier document.
#[derive(Deserialize)]
struct Document {
    schema: u32,
    arguments: Option<Question>,
    #[serde(default)]
    plans: Vec<Planned>,
    /// Plan of an `explain` document.
    prediction: Option<Planned>,
}

#[derive(Deserialize)]
struct Planned {
    plan: String,
}

/// Problem flags and plan of an earlier document.
fn earlier(path: &std::path::Path, rank: u32) -> Result<(Question, String)> {
    let origin = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{origin}: cannot be read"))?;
    let document: Document =
        serde_json::from_str(&text).with_context(|| format!("{origin}: not a document of `plan --format json`"))?;
    let known = crate::report::json::SCHEMA;
    if document.schema != known {
        bail!("{origin}: schema {}, and this version reads {known}", document.schema);
    }
    let arguments = document.arguments.ok_or_else(|| {
        anyhow!("{origin}: has no `arguments`, so it is older than `emit`\n\nhint: run `plan --format json` again")
    })?;
    let plans: Vec<Planned> = document.plans.into_iter().chain(document.prediction).collect();
    let plan =
        plans.get(rank as usize - 1).ok_or_else(|| anyhow!("{origin}: has {} plans, and no {rank}", plans.len()))?;
    Ok((arguments, plan.plan.clone()))
}
