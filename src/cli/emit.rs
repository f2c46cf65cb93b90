//! `meshwright emit`: writes a plan as the files that a framework's launcher reads.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgMatches, Command, FromArgMatches};
use serde::Deserialize;

use super::files::{Existing, write_all};
use super::problem::ProblemArgs;
use super::{Outcome, output, pooled, refined};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::emit::{EmittedFile, Request, emit};
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::catalog;
use meshwright_planner::pools::Pooled;
use meshwright_planner::refine::Refined;
use meshwright_planner::refine::ranking::Entry;
use meshwright_planner::search::Ranking;
use meshwright_planner::space::{Rejection, check, illegal, parse_plan};

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
struct Asked(Option<ProblemArgs>);

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let asked = matches.contains_id("model");
        Ok(Self(if asked { Some(ProblemArgs::from_arg_matches(matches)?) } else { None }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Asked {
    fn augment_args(command: Command) -> Command {
        ProblemArgs::augment_args_for_update(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ProblemArgs::augment_args_for_update(command)
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
    let ProblemArgs { model, cluster, options } = &problem_args;
    if let Some(pooled) = options.pooled_for(model, cluster, Some(framework))? {
        return over_pools(args, framework, &pooled, (&text, &problem_args.recipe_name(&pooled.joined()[0])));
    }
    let problem = problem_args.problem_for(Some(framework))?;
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

/// Writes files and reports their paths on stderr.
pub fn written(folder: &std::path::Path, files: &[EmittedFile], existing: Existing) -> Result<()> {
    for path in write_all(folder, files, existing)? {
        output::talk(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Plan to write, with its stages if they were optimised.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Plan in the ranking.
    pub plan: &'a Plan,
    /// Optimised stages with their cost.
    pub refined: Option<&'a Refined>,
}

impl<'a> Chosen<'a> {
    /// Fastest among the ranked plans and the plans with refined stages.
    pub fn fastest(ranking: &'a Ranking, refined: &'a [Entry]) -> Option<Self> {
        let best = ranking.evaluations.first();
        let entry = refined.iter().find_map(|entry| Some((entry, entry.outcome.as_ref().ok()?)));
        match (best, entry) {
            (Some(best), Some((_, stages))) if best.step.total() <= stages.step() => {
                Some(Self { plan: &best.plan, refined: None })
            }
            (_, Some((entry, stages))) => Some(Self { plan: &entry.plan, refined: Some(stages) }),
            (Some(best), None) => Some(Self { plan: &best.plan, refined: None }),
            (None, None) => None,
        }
    }
}

/// The files of a plan; none where it is illegal or cannot be expressed, and the reasons on stderr.
pub fn files(
    framework: &'static Framework,
    problem: &Problem,
    chosen: &Chosen,
    recipe: &str,
) -> Option<Vec<EmittedFile>> {
    let costs = Costs::new(problem);
    let (too_large, illegal): (Vec<Rejection>, Vec<Rejection>) =
        check(&costs, chosen.plan).into_iter().partition(Rejection::is_of_memory);
    for rejection in &illegal {
        output::talk(&format!("does not run: {rejection}"));
    }
    if !illegal.is_empty() {
        return None;
    }
    let evaluation =
        chosen.refined.map_or_else(|| costs.evaluate_played(chosen.plan), |refined| refined.price.evaluation);
    let staged = chosen.refined.map(|refined| &refined.staged);
    match emit(framework, &Request { recipe: Some(recipe), staged, ..Request::new(&costs, &evaluation) }) {
        Ok(files) => {
            for rejection in too_large.iter().filter(|_| staged.is_none()) {
                output::talk(&format!("warning: predicted not to fit: {rejection}"));
            }
            Some(files)
        }
        Err(refusal) => {
            output::talk(&refusal.to_string());
            None
        }
    }
}

/// Plans of a ranking that a framework can express; reports on stderr how many it cannot.
pub fn expressible(framework: Option<&Framework>, problem: &Problem, mut ranking: Ranking) -> Ranking {
    if let Some(framework) = framework {
        let found = ranking.evaluations.len();
        ranking.evaluations.retain(|best| framework.limits.plan_obstacles(problem, &best.plan).is_empty());
        let left_out = found - ranking.evaluations.len();
        if left_out > 0 {
            output::talk(&format!("{left_out} of {found} plans left out: {framework} cannot express them"));
        }
    }
    ranking
}

/// Whether a framework can train the model; reports the reasons on stderr if not.
pub fn model_runs(framework: Option<&Framework>, problem: &Problem) -> bool {
    let obstacles = framework.map_or_else(Vec::new, |framework| framework.limits.problem_obstacles(problem));
    for (framework, obstacle) in framework.iter().cycle().zip(&obstacles) {
        output::talk(&format!("{framework} cannot run this: {obstacle}"));
    }
    obstacles.is_empty()
}

/// Target by name; an error suggests the nearest name.
pub fn framework(name: &str) -> Result<&'static Framework> {
    frameworks::named(name).ok_or_else(|| {
        let names = frameworks::names;
        let nearest = catalog::nearest(name, names());
        let nearest = nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        anyhow!(
            "there is no framework `{name}` to write files for{nearest}\n\nhint: there are: {}",
            names().collect::<Vec<_>>().join(", ")
        )
    })
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
    arguments: Option<ProblemArgs>,
    #[serde(default)]
    plans: Vec<Planned>,
    /// Plan of an `explain` document; in a `plan` document, a count.
    priced: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Planned {
    plan: String,
}

/// Problem flags and plan of an earlier document.
fn earlier(path: &std::path::Path, rank: u32) -> Result<(ProblemArgs, String)> {
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
    let explained = document.priced.and_then(|priced| Planned::deserialize(priced).ok());
    let plans: Vec<Planned> = document.plans.into_iter().chain(explained).collect();
    let plan =
        plans.get(rank as usize - 1).ok_or_else(|| anyhow!("{origin}: has {} plans, and no {rank}", plans.len()))?;
    Ok((arguments, plan.plan.clone()))
}
