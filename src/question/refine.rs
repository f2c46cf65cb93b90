//! Refined stages of the best plans.

use serde::Deserialize;

use meshwright_engine::cost::Costs;
use meshwright_engine::problem::Problem;
use meshwright_planner::refine::ranking::{RefinedEntry, RefinedPlans, refine_ranking};
use meshwright_planner::refine::{Freedom, Options};
use meshwright_planner::search::Ranking;
use meshwright_planner::space::Restrictions;

/// Choice of the plans whose stages are optimised one by one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Stages and hosts"))]
#[serde(default, deny_unknown_fields)]
pub struct RefineOptions {
    /// Optimise layers and recomputation by stage for the K fastest plans
    ///
    /// And for the plan that is nearest to fitting. By default 3, without plans that have several stages per rank, which take
    /// longer.
    #[cfg_attr(feature = "cli", arg(long, value_name = "K"))]
    pub refine: Option<u32>,
    /// Keep all stages identical.
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "refine", hide_short_help = true))]
    pub no_refine: bool,
}

/// Default number of plans to refine.
const BY_DEFAULT: u32 = 3;

impl RefineOptions {
    /// Refined stages of the best plans; empty if refinement is off, or if the target framework cannot express individual
    /// stages. Recomputation stays as it is if it is fixed or forbidden, if the framework has one setting for all stages, or if
    /// plans fit and nobody asked. Plans are left out from when `is_over` says so.
    pub fn entries(
        &self,
        problem: &Problem,
        ranking: &Ranking,
        restrictions: &Restrictions,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> Vec<RefinedEntry> {
        let most = self.refine.unwrap_or(BY_DEFAULT);
        let limits = restrictions.limits();
        if self.no_refine || most == 0 || limits.is_some_and(|limits| !(limits.names_stages)(problem)) {
            return Vec::new();
        }
        // No framework has flags for the recomputation of single stages: it is for those who ask, and where nothing else fits.
        let is_wanted = self.refine.is_some() || ranking.evaluations.is_empty();
        let recompute = is_wanted && limits.is_none() && !restrictions.mentions("recompute");
        let freedom = Freedom { recompute, ..Freedom::default() };
        // Whoever asks for refined stages also asks how good they are.
        let options = Options { freedom, prove: self.refine.is_some(), ..Options::default() };
        let plans = RefinedPlans { most: most as usize, coupled: self.refine.is_some() };
        refine_ranking(&Costs::new(problem), ranking, restrictions, plans, &options, is_over)
    }
}
