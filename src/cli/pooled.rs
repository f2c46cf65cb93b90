//! `meshwright plan` and `explain` on pools of heterogeneous GPUs.

use anyhow::{Result, anyhow, bail};

use super::files::Existing;
use super::format::OutputFormat;
use super::plan_args::Args;
use super::{Outcome, launch_files, output};
use crate::question::Minimised;
use crate::report::hosts::told;
use crate::report::{explain, pools, pools_document, table};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Plan, RankOrder};
use meshwright_frameworks::Framework;
use meshwright_frameworks::emit::{EmittedFile, Request, emit as emit_files};
use meshwright_planner::pools::hosts::hosts;
use meshwright_planner::pools::{Mixture, Pooled, PooledAnswer, Way};
use meshwright_planner::refine::pools::ONE_WAY;
use meshwright_planner::search::SearchOptions;
use meshwright_planner::space::{Restrictions, check, parse_plan};

/// Runs `plan` on pools.
pub fn run(args: &Args, pooled: &Pooled, framework: Option<&'static Framework>) -> Result<Outcome> {
    refuse(args)?;
    let restrictions = args.plans.restrictions(framework, &pooled.joined()[0])?;
    let options = SearchOptions { top: args.plans.top as usize, restrictions };
    let answer = pooled.answer(&options);
    let text = match args.format {
        OutputFormat::Json => pools_document::json(pooled, &answer)?
            .with_arguments(&args.problem.resolved_over_pools(pooled, framework))?
            .text()?,
        OutputFormat::Csv => output::sheets(&[pools::mixtures(pooled, &answer)], args.format)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let sheets = [pools::mixtures(pooled, &answer), pools::alone(pooled, &answer)];
            let words = pools::paragraph(pooled, &answer);
            let words = if args.format == OutputFormat::Table { table::wrapped(&words) } else { words };
            format!("{}\n{words}\n", output::sheets(&sheets, args.format)?)
        }
    };
    if answer.mixtures.is_empty() && args.format != OutputFormat::Json {
        output::talk("no feasible plan uses all pools");
        output::talk(&text);
        return Ok(Outcome::NoPlan);
    }
    output::print(&text)?;
    output::talk(&format!("{} distributions over the pools evaluated", answer.priced));
    if answer.mixtures.is_empty() {
        return Ok(Outcome::NoPlan);
    }
    let asked = args.emit.as_deref().map(launch_files::framework).transpose()?.zip(args.out.as_ref());
    if let Some((framework, folder)) = asked {
        let recipe = args.problem.recipe_name(&pooled.joined()[0]);
        let Some(files) = files(framework, pooled, &answer.mixtures, &recipe) else { return Ok(Outcome::NoPlan) };
        launch_files::written(folder, &files, Existing::from_force(args.force))?;
    }
    Ok(Outcome::Answered)
}

/// The files of the fastest mixture that a framework can express; none where it can express none, and the reasons on stderr.
pub fn files(
    framework: &'static Framework,
    pooled: &Pooled,
    mixtures: &[Mixture],
    recipe: &str,
) -> Option<Vec<EmittedFile>> {
    let mut refusals = Vec::new();
    for mixture in mixtures {
        match of_mixture(framework, pooled, mixture, recipe) {
            Ok(files) => {
                if !refusals.is_empty() {
                    output::talk(&format!(
                        "the files are for `{}`: {framework} cannot express the faster plans",
                        mixture.plan
                    ));
                }
                return Some(files);
            }
            Err(why) => refusals.push(why),
        }
    }
    output::talk(refusals.first().map_or("no plan uses all pools", String::as_str));
    None
}

fn of_mixture(
    framework: &'static Framework,
    pooled: &Pooled,
    mixture: &Mixture,
    recipe: &str,
) -> Result<Vec<EmittedFile>, String> {
    if !mixture.way.runs(framework.family()) {
        return Err(format!("{framework} gives every replica the same number of micro-batches: {}", mixture.plan));
    }
    let hosts = hosts(pooled, mixture).map_err(|why| why.to_string())?;
    let (heading, told) = told(pooled, mixture, &hosts);
    let staged = match &mixture.way {
        Way::Replicas { .. } => None,
        Way::Stages { refined, .. } => Some(&refined.staged),
    };
    let problem = &pooled.joined()[mixture.slowest];
    let other =
        pooled.joined().iter().find_map(|problem| framework.limits.problem_obstacles(problem).into_iter().next());
    if let Some(obstacle) = other {
        return Err(format!("{framework} cannot run this: {obstacle}"));
    }
    let (costs, evaluation) = (Costs::new(problem), mixture.evaluation(mixture.slowest));
    let pools = Some((heading.as_str(), told.as_slice()));
    emit_files(framework, &Request { recipe: Some(recipe), staged, pools, ..Request::new(&costs, &evaluation) })
        .map_err(|refusal| refusal.to_string())
}

/// Runs `explain` on pools: all distributions of one plan, with the fastest in detail; without a plan, the best mixture.
pub fn explain(pooled: &Pooled, plan: Option<&str>, format: OutputFormat) -> Result<Outcome> {
    let problem = &pooled.joined()[0];
    let (mixtures, priced) = if let Some(text) = plan {
        let plan = parse_plan(text, problem).map_err(|why| anyhow!("--plan: {why}"))?;
        let ways = pooled.ways(&plan);
        if ways.is_empty() {
            talk_of_reasons(pooled, &plan);
            return Ok(Outcome::NoPlan);
        }
        let priced = ways.len();
        (ways, priced)
    } else {
        let answer = pooled.answer(&SearchOptions { top: 1, restrictions: Restrictions::default() });
        (answer.mixtures, answer.priced)
    };
    let Some(best) = mixtures.first() else {
        output::talk("no plan uses all pools: `meshwright plan` says more");
        return Ok(Outcome::NoPlan);
    };
    let mut sheets = vec![explain::waterfall(&pooled.joined()[best.slowest], &best.evaluation(best.slowest))];
    for (at, (pool, problem)) in pooled.cluster().pools.iter().zip(pooled.joined()).enumerate() {
        let mut memory = explain::memory(problem, &best.ranks_of(at));
        memory.title = format!("pool {}: {}", pool.name, memory.title);
        sheets.push(memory);
    }
    let answer = PooledAnswer { mixtures, beyond: None, alone: Vec::new(), priced };
    let text = if format == OutputFormat::Json {
        pools_document::json(pooled, &answer)?.text()?
    } else {
        sheets.insert(0, pools::mixtures(pooled, &answer));
        output::sheets(&sheets, format)?
    };
    output::print(&text)?;
    Ok(Outcome::Answered)
}

/// Reports on stderr why a plan cannot use the pools.
pub fn talk_of_reasons(pooled: &Pooled, plan: &Plan) {
    let mut told = false;
    for (pool, problem) in pooled.cluster().pools.iter().zip(pooled.joined()) {
        for rejection in check(&Costs::new(problem), plan) {
            told = true;
            output::talk(&format!("does not run on pool {}: {rejection}", pool.name));
        }
    }
    if plan.schedule.is_bidirectional() && plan.order == RankOrder::PipelineOutermost {
        told = true;
        output::talk(&format!("stages do not run on pools: {ONE_WAY}"));
    }
    if !told {
        output::talk(
            "does not run: neither tp·cp·pp (replicas on pools, order=tp-cp-ep-pp-dp) nor tp·cp·dp (stages on pools) divides the GPUs \
             of every pool, or its groups leave one",
        );
    }
}

/// Refuses options that are not supported with pools, one line each.
fn refuse(args: &Args) -> Result<()> {
    let plans = &args.plans;
    let asked = [
        ("--pareto", plans.pareto, "plans over pools are ranked by step time"),
        ("--objective", plans.economy.objective != Minimised::StepTime, "plans over pools are ranked by step time"),
        (
            "--tokens",
            plans.economy.tokens.is_some(),
            "bills are for a single kind of GPU; give each [[pool]] its `price`",
        ),
        ("--sensitivity", plans.sensitivity, "it changes a single cluster, but there are several pools"),
        ("--allow-idle", plans.allow_idle, "all GPUs of all pools are used; make a pool smaller instead"),
        ("--place", plans.place.place.is_some(), "hosts are listed pool by pool"),
        ("--time-limit", plans.time_limit.is_some(), "the search over pools has no time limit"),
    ];
    let chosen = "layers of stages on pools are always optimised, those of replicas never";
    let asked = asked
        .into_iter()
        .chain([("--refine", plans.refine.refine.is_some(), chosen), ("--no-refine", plans.refine.no_refine, chosen)]);
    for (flag, there, why) in asked {
        if there {
            bail!("{flag} does not apply to pools of heterogeneous GPUs: {why}");
        }
    }
    Ok(())
}
