//! `plan --refine`: refined stages of the best plans.

use anyhow::{Result, bail};

use super::format::OutputFormat;
use super::output;
use crate::question::RefineOptions;
use crate::report::refined;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Limits;
use meshwright_planner::refine::ranking::{MOST_STAGES, RefinedEntry};
use meshwright_planner::refine::{Freedom, Options, Refined, refine};
use meshwright_planner::search::Ranking;

/// Table of refined plans, if it was asked for and some plan has stages that fit; else empty.
pub fn text(
    asked: &RefineOptions,
    problem: &Problem,
    entries: &[RefinedEntry],
    format: OutputFormat,
) -> Result<String> {
    if asked.refine.is_none() || entries.iter().all(|entry| entry.outcome.is_err()) {
        return Ok(String::new());
    }
    Ok(format!("\n{}", output::sheets(&[refined::sheet(problem, entries)], format)?))
}

/// Refined stages of one plan that a framework can express; each stage chooses its recomputation if the framework's options
/// allow that.
///
/// # Errors
///
/// The reason why no stages fit, or why the framework cannot express them.
pub fn expressible(limits: &Limits, costs: &Costs, plan: &Plan) -> Result<Refined> {
    if !limits.names_stages {
        bail!("{limits} cannot assign layers to individual stages\n\nhint: leave out --refine");
    }
    let stages = plan.layout.pp * plan.schedule.virtual_stages();
    if stages > MOST_STAGES {
        bail!(
            "the plan has {stages} stages; with more than {MOST_STAGES}, a stage has only a layer or two, which \
            leaves little to optimise\n\nhint: leave out --refine, or lower vpp"
        );
    }
    let options = Options { offloads: vec![plan.offload], ..Options::default() };
    let free = refine(costs, plan, &options);
    if let Ok(refined) = &free
        && limits.stages_obstacle(&refined.staged).is_none()
    {
        return Ok(free?);
    }
    let freedom = Freedom { recompute: false, ..Freedom::default() };
    Ok(refine(costs, plan, &Options { freedom, ..options })?)
}

/// Sentence on the effect of refinement, if it makes a plan the fastest or makes one fit.
pub fn sentence(ranking: &Ranking, entries: &[RefinedEntry]) -> Option<String> {
    let fastest = ranking.evaluations.first().map(|evaluation| evaluation.step.total());
    Some(refined::sentence(entries, fastest)).filter(|words| !words.is_empty())
}

/// Reports why other stages do not make nearly fitting plans fit.
pub fn talk_of_misses(entries: &[RefinedEntry]) {
    for entry in entries {
        if let Err(why) = &entry.outcome {
            output::talk(&format!("no other stages fit either: {}: {why}", entry.plan));
        }
    }
}
