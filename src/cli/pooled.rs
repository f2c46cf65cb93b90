//! `meshwright plan` and `explain` on pools of heterogeneous GPUs.

use anyhow::{Result, bail};

use super::effort::EffortLimits;
use super::format::OutputFormat;
use super::plan_args::Args;
use super::progress::Progress;
use super::{Outcome, launch_files, output};
use crate::files::Existing;
use crate::question::{self, Minimised};
use crate::report::{explain, pools, pools_document, table};
use meshwright_frameworks::Framework;
use meshwright_frameworks::emit::EmittedFile;
use meshwright_planner::pools::{Mixture, Pooled};
use meshwright_planner::search::SearchOptions;

/// Runs `plan` on pools.
pub fn run(args: &Args, pooled: &Pooled, framework: Option<&'static Framework>) -> Result<Outcome> {
    refuse(args)?;
    let restrictions = args.plans.restrictions(framework, &pooled.joined()[0])?;
    let options = SearchOptions { top: args.plans.top as usize, restrictions };
    let effort = EffortLimits::new(args.plans.time_limit, args.plans.memory_limit);
    let progress = Progress::new();
    let answer = pooled.answer(&options, &|done, all| {
        progress.at(done, all);
        effort.control()
    });
    progress.finish();
    effort.talk();
    let text = match args.format {
        OutputFormat::Json => pools_document::json(pooled, &answer)?
            .with_arguments(&args.problem.resolved_over_pools(pooled, framework))?
            .text()?,
        OutputFormat::Csv => output::sheets(&[pools::mixtures(pooled, &answer)], args.format)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let sheets = [pools::mixtures(pooled, &answer), pools::each_alone(pooled, &answer)];
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
    let asked = args.emit.as_deref().map(question::framework).transpose()?.zip(args.out.as_ref());
    if let Some((framework, folder)) = asked {
        let recipe = args.problem.recipe_name(&pooled.joined()[0]);
        let release = question::release(framework, args.release.as_deref())?;
        let Some(files) = files(framework, pooled, &answer.mixtures, &recipe, release) else {
            return Ok(Outcome::NoPlan);
        };
        launch_files::written(folder, &files, Existing::from_force(args.force))?;
    }
    Ok(Outcome::Answered)
}

/// The files of the fastest mixture that a framework can express; none where it can express none, and the reason on stderr.
pub fn files(
    framework: &'static Framework,
    pooled: &Pooled,
    mixtures: &[Mixture],
    recipe: &str,
    release: Option<&'static str>,
) -> Option<Vec<EmittedFile>> {
    match question::files(framework, pooled, mixtures, recipe, release) {
        Ok((files, note)) => {
            if let Some(note) = &note {
                output::talk(note);
            }
            Some(files)
        }
        Err(why) => {
            output::talk(&why);
            None
        }
    }
}

/// Runs `explain` on pools: all distributions of one plan, with the fastest in detail; without a plan, the best mixture.
pub fn explain(pooled: &Pooled, plan: Option<&str>, format: OutputFormat) -> Result<Outcome> {
    let effort = EffortLimits::new(None, None);
    let answer = match question::mixtures(pooled, plan, &|_, _| effort.control())? {
        Ok(answer) => answer,
        Err(reasons) => {
            for why in &reasons {
                output::talk(why);
            }
            return Ok(Outcome::NoPlan);
        }
    };
    let best = &answer.mixtures[0];
    let mut sheets = vec![explain::waterfall(&pooled.joined()[best.slowest], &best.evaluation(best.slowest))];
    for (at, (pool, problem)) in pooled.cluster().pools.iter().zip(pooled.joined()).enumerate() {
        let mut memory = explain::memory(problem, &best.ranks_of(at));
        memory.title = format!("pool {}: {}", pool.name, memory.title);
        sheets.push(memory);
    }
    let text = if format == OutputFormat::Json {
        pools_document::json(pooled, &answer)?.text()?
    } else {
        sheets.insert(0, pools::mixtures(pooled, &answer));
        output::sheets(&sheets, format)?
    };
    output::print(&text)?;
    Ok(Outcome::Answered)
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
        ("--html", args.html.is_some(), "reports are of a single kind of GPU; --format markdown has the tables"),
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
