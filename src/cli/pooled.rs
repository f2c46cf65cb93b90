//! `meshwright plan` and `explain` on pools of heterogeneous GPUs.

use anyhow::{Result, bail};

use super::effort::EffortLimits;
use super::format::OutputFormat;
use super::plan_args::Args;
use super::progress::Progress;
use super::{Outcome, launch_files, output};
use crate::files::Existing;
use crate::question::{self, PooledPlanAnswer};
use crate::report::{explain, pools, pools_advice, pools_document, table};
use meshwright_frameworks::Framework;
use meshwright_frameworks::emit::EmittedFile;
use meshwright_planner::pools::{Mixture, Pooled};

/// Runs `plan` on pools, with the accepted risk of running out of memory.
pub fn run(args: &Args, pooled: &Pooled, framework: Option<&'static Framework>, risk: f64) -> Result<Outcome> {
    if args.html.is_some() {
        bail!(
            "--html does not apply to pools of heterogeneous GPUs: reports are of a single kind of GPU; --format markdown \
             has the tables"
        );
    }
    let effort = EffortLimits::new(args.plans.time_limit, args.plans.memory_limit);
    let progress = Progress::new();
    let answer = args.plans.solve_over_pools(pooled, framework, risk, &|done, all| {
        progress.at(done, all);
        effort.control()
    });
    progress.finish();
    let PooledPlanAnswer { advice, rules } = output::noted(answer?);
    effort.talk();
    let ranked = pools::mixtures(pooled, &advice.answer.mixtures, Some(advice.recommended));
    let text = match args.format {
        OutputFormat::Json => pools_document::json(pooled, &advice.answer, Some(&advice))?
            .with_arguments(&args.problem.resolved_over_pools(pooled, framework))?
            .text()?,
        OutputFormat::Csv => output::sheets(&[ranked], args.format)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let sheets = [ranked, pools::each_alone(pooled, &advice.alone)];
            let paragraphs = pools_advice::recommended(&advice).into_iter();
            let paragraphs = paragraphs.chain([pools_advice::paragraph(pooled, &advice, rules)]);
            let wrapped = |words: String| match args.format {
                OutputFormat::Table => table::wrapped(&words),
                _ => words,
            };
            let words: Vec<String> = paragraphs.map(wrapped).collect();
            format!("{}\n{}\n", output::sheets(&sheets, args.format)?, words.join("\n\n"))
        }
    };
    if advice.mixture().is_none() && args.format != OutputFormat::Json {
        output::talk("no feasible plan uses all pools");
        output::talk(&text);
        return Ok(Outcome::NoPlan);
    }
    output::print(&text)?;
    output::talk(&format!("{} distributions over the pools evaluated", advice.answer.priced));
    if advice.mixture().is_none() {
        return Ok(Outcome::NoPlan);
    }
    let asked = args.emit.as_deref().map(question::framework).transpose()?.zip(args.out.as_ref());
    if let Some((framework, folder)) = asked {
        let recipe = args.problem.recipe_name(&pooled.joined()[0]);
        let release = question::release(framework, args.release.as_deref())?;
        let Some(files) = files(framework, pooled, &advice.by_preference(), &recipe, release) else {
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
        pools_document::json(pooled, &answer, None)?.text()?
    } else {
        sheets.insert(0, pools::mixtures(pooled, &answer.mixtures, None));
        output::sheets(&sheets, format)?
    };
    output::print(&text)?;
    Ok(Outcome::Answered)
}
