//! `plan --refine`: the stages of the best plans beside the ranking.

use anyhow::{Result, bail};

use super::{OutputFormat, output};
use crate::report::{refined, table};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Limits;
use meshwright_planner::refine::ranking::{Entry, MOST_STAGES, refine_ranking};
use meshwright_planner::refine::{Freedom, Options, Refined, refine};
use meshwright_planner::search::Ranking;
use meshwright_planner::space::Restrictions;

/// Arguments of refinement.
#[derive(Debug, clap::Args)]
pub struct RefineArgs {
    /// Choose layers and recomputation of each stage for the K fastest plans, and for the one that came nearest to fitting
    /// [default: 3, without those whose ranks own several stages: they take longer].
    #[arg(long, value_name = "K")]
    pub(super) refine: Option<u32>,
    /// Leave all stages alike.
    #[arg(long, conflicts_with = "refine")]
    pub(super) no_refine: bool,
}

/// Plans that are refined where no number is given.
const BY_DEFAULT: u32 = 3;

impl RefineArgs {
    /// Stages of the best plans; none where they were not asked for, or where the framework that must express them does not say
    /// what a stage holds. Recomputation that was fixed or forbidden, or that one set of flags must say, stays.
    pub fn entries(&self, problem: &Problem, ranking: &Ranking, restrictions: &Restrictions) -> Vec<Entry> {
        let most = self.refine.unwrap_or(BY_DEFAULT);
        let limits = restrictions.limits();
        if self.no_refine || most == 0 || limits.is_some_and(|limits| !limits.names_stages) {
            return Vec::new();
        }
        let recompute = limits.is_none() && !restrictions.mentions("recompute");
        let options = Options { freedom: Freedom { recompute, ..Freedom::default() }, ..Options::default() };
        refine_ranking(&Costs::new(problem), ranking, restrictions, (most as usize, self.refine.is_some()), &options)
    }
}

/// The stages of one plan that a framework can express: free in what each recomputes where one set of flags still says it.
///
/// # Errors
/// Why no stages fit, or why the framework cannot say them.
pub fn expressible(limits: &Limits, costs: &Costs, plan: &Plan) -> Result<Refined> {
    if !limits.names_stages {
        bail!("{limits} does not say which layers a stage holds\n\nhint: leave out --refine");
    }
    let stages = plan.layout.pp * plan.schedule.virtual_stages();
    if stages > MOST_STAGES {
        bail!(
            "the plan has {stages} stages, and of more than {MOST_STAGES} a stage holds a layer or two: there is little to \
             move\n\nhint: leave out --refine, or lower vpp"
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

/// The table of refined plans and what it means; empty where none has stages that fit.
pub fn text(problem: &Problem, ranking: &Ranking, entries: &[Entry], format: OutputFormat) -> Result<String> {
    if entries.iter().all(|entry| entry.outcome.is_err()) {
        return Ok(String::new());
    }
    let sheet = output::sheets(&[refined::sheet(problem, entries)], format)?;
    let fastest = ranking.evaluations.first().map(|evaluation| evaluation.step.total());
    let words = refined::sentence(entries, fastest);
    let words = if format == OutputFormat::Table { table::wrapped(&words) } else { words };
    Ok(if words.is_empty() { format!("\n{sheet}") } else { format!("\n{sheet}\n{words}\n") })
}

/// Says of plans that nearly fit why other stages do not help.
pub fn talk_of_misses(entries: &[Entry]) {
    for entry in entries {
        if let Err(why) = &entry.outcome {
            output::talk(&format!("nor with other stages: {}: {why}", entry.plan));
        }
    }
}
