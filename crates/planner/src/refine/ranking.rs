//! Refines the best plans of a ranking, and those that came nearest to fitting.

use rayon::prelude::*;

use super::answer::{Infeasible, Refined};
use super::options::Options;
use super::refine_within;
use crate::search::Ranking;
use crate::space::{Restrictions, Space};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Offload, Plan, Recompute, ZeroStage};

/// A plan whose stages were refined.
#[derive(Clone, Debug, PartialEq)]
pub struct RefinedEntry {
    /// Rank of the plan in the ranking, from 1; none for a plan that did not fit before refinement.
    pub place: Option<usize>,
    /// The plan.
    pub plan: Plan,
    /// Refined plan, or the reason why no stages fit.
    pub outcome: Result<Refined, Infeasible>,
}

/// Plans of a ranking that are refined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefinedPlans {
    /// Number of plans, from the first.
    pub most: usize,
    /// Whether plans whose ranks own several stages, which take longer to refine, are among them.
    pub coupled: bool,
}

/// Refines the first plans of a ranking that have a pipeline or recompute, and the plan that exceeds the memory by the least.
/// The fastest refined plan comes first; plans for which no stages fit come last.
///
/// Stages may offload any share that the search considers, or the plan's own share where a framework's files must express it.
/// Plans and offloads that remain once `is_over` is true are left out.
pub fn refine_ranking(
    costs: &Costs,
    ranking: &Ranking,
    restrictions: &Restrictions,
    RefinedPlans { most, coupled }: RefinedPlans,
    options: &Options,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Vec<RefinedEntry> {
    let space = Space::new(costs, restrictions);
    let ranked = ranking.evaluations.iter().enumerate().map(|(at, evaluation)| (Some(at + 1), evaluation.plan.clone()));
    let near = ranking.nearest.iter().map(|miss| (None, miss.plan.clone()));
    let wanted = |plan: &Plan| is_refinable(plan) && (coupled || plan.schedule.virtual_stages() == 1);
    let chosen: Vec<(Option<usize>, Plan)> = ranked.take(most).chain(near).filter(|(_, plan)| wanted(plan)).collect();
    let mut entries: Vec<RefinedEntry> = chosen
        .into_par_iter()
        .filter_map(|(place, plan)| {
            let offloads = if restrictions.limits().is_some() { vec![plan.offload] } else { offloads(&space, &plan) };
            let options = Options { offloads, ..options.clone() };
            (!is_over()).then(|| {
                let outcome = refine_within(costs, &plan, &options, is_over);
                RefinedEntry { place, plan, outcome }
            })
        })
        .collect();
    let time = |entry: &RefinedEntry| entry.outcome.as_ref().map_or(f64::INFINITY, |refined| refined.step().get());
    sort_by_numbers(&mut entries, |entry| [time(entry)]);
    entries
}

/// Offloads that the search considers for plans with the degrees of `plan`.
fn offloads(space: &Space, plan: &Plan) -> Vec<Offload> {
    let activations = space.offloaded_activations(plan.layout.pp, plan.recompute);
    let optimizer = space.offloaded_optimizer(plan.zero);
    let pairs = optimizer
        .iter()
        .flat_map(|&optimizer| activations.iter().map(move |&activations| Offload { optimizer, activations }));
    pairs.chain([plan.offload]).collect()
}

/// Most virtual stages of a plan that is refined: with more, a stage holds a layer or two, and there is little to move.
pub const MOST_STAGES: u32 = 64;

/// Whether refinement can change a plan: it has several stages, or layers whose recomputation may differ.
fn is_refinable(plan: &Plan) -> bool {
    plan.pipeline().chunks() <= MOST_STAGES
        && plan.zero < ZeroStage::Three
        && (plan.layout.pp > 1 || plan.recompute != Recompute::None)
}
