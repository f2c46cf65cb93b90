//! `plan --refine`: refined stages of the best plans.

use anyhow::{Result, bail};

use super::format::OutputFormat;
use super::output;
use crate::report::refined;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Limits;
use meshwright_planner::refine::ranking::{MOST_STAGES, RefinedEntry, refine_ranking};
use meshwright_planner::refine::{Freedom, Options, Refined, refine};
use meshwright_planner::search::Ranking;
use meshwright_planner::space::Restrictions;

/// Arguments of refinement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Stages and hosts")]
pub struct RefineArgs {
    /// Optimise layers and recomputation by stage for the K fastest plans
    ///
    /// And for the plan that is nearest to fitting. By default 3, without plans that have several stages per rank, which take
    /// longer.
    #[arg(long, value_name = "K")]
    pub(super) refine: Option<u32>,
    /// Keep all stages identical.
    #[arg(long, conflicts_with = "refine", hide_short_help = true)]
    pub(super) no_refine: bool,
}

/// Default number of plans to refine.
const BY_DEFAULT: u32 = 3;

impl RefineArgs {
    /// Refined stages of the best plans; empty if refinement is off, or if the target framework cannot express individual
    /// stages. Recomputation stays as it is if it is fixed or forbidden, or if the framework has one setting for all
    /// stages.
    pub fn entries(&self, problem: &Problem, ranking: &Ranking, restrictions: &Restrictions) -> Vec<RefinedEntry> {
        let most = self.refine.unwrap_or(BY_DEFAULT);
        let limits = restrictions.limits();
        if self.no_refine || most == 0 || limits.is_some_and(|limits| !limits.names_stages) {
            return Vec::new();
        }
        let recompute = limits.is_none() && !restrictions.mentions("recompute");
        let options = Options { freedom: Freedom { recompute, ..Freedom::default() }, ..Options::default() };
        refine_ranking(&Costs::new(problem), ranking, restrictions, (most as usize, self.refine.is_some()), &options)
    }

    /// Table of refined plans, if it was asked for and some plan has stages that fit; else empty.
    pub fn text(&self, problem: &Problem, entries: &[RefinedEntry], format: OutputFormat) -> Result<String> {
        if self.refine.is_none() || entries.iter().all(|entry| entry.outcome.is_err()) {
            return Ok(String::new());
        }
        Ok(format!("\n{}", output::sheets(&[refined::sheet(problem, entries)], format)?))
    }
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
