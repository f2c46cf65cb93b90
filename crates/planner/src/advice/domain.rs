//! Tensor parallelism inside the scale-up domain, which a recommendation prefers: beyond it, collectives are extrapolated.

use crate::search::{Control, LimitedSearches, SearchLimits, SearchOptions};
use crate::space::Restrictions;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;

/// Whether the tensor parallelism of a plan leaves the scale-up domain.
pub(super) fn leaves_domain(problem: &Problem, plan: &Plan) -> bool {
    plan.layout.tp > problem.cluster().scale_up.gpus
}

/// Restrictions to plans whose tensor parallelism stays inside a domain, where all plans that errors cannot tell apart leave it;
/// none where tensor parallelism is fixed.
pub(super) fn inside(
    restrictions: &Restrictions,
    domain: u32,
    mut leaves_domain: impl Iterator<Item = bool>,
) -> Option<Restrictions> {
    if restrictions.fixes("tp") || leaves_domain.any(|leaves| !leaves) {
        return None;
    }
    let mut inside = restrictions.clone();
    inside.fix(&format!("tp=1..{domain}")).ok()?;
    Some(inside)
}

/// The fastest plan inside the domain within limits, where every ranked plan that takes no longer than their ceiling leaves the
/// domain; none where tensor parallelism is fixed.
pub(super) fn inside_domain(
    searches: &LimitedSearches,
    restrictions: &Restrictions,
    ranked: &[Evaluation],
    limits: SearchLimits,
    control: &Control,
) -> Option<Evaluation> {
    let problem = searches.costs().problem;
    let near = ranked.iter().filter(|plan| plan.step.total() <= limits.ceiling);
    let leave = near.map(|plan| leaves_domain(problem, &plan.plan));
    let restrictions = inside(restrictions, problem.cluster().scale_up.gpus, leave)?;
    searches.fastest(&SearchOptions { top: 1, restrictions }, limits, control).evaluations.into_iter().next()
}
