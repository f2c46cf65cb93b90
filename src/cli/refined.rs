//! `plan --refine`: refined stages of the best plans.

use anyhow::Result;

use super::format::OutputFormat;
use super::output;
use crate::question::RefineOptions;
use crate::report::refined;
use meshwright_engine::problem::Problem;
use meshwright_planner::refine::ranking::RefinedEntry;
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
