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
    let mut near = ranked.iter().filter(|plan| plan.step.total() <= limits.ceiling);
    if restrictions.fixes("tp") || near.any(|plan| !leaves_domain(problem, &plan.plan)) {
        return None;
    }
    let mut inside = SearchOptions { top: 1, restrictions: restrictions.clone() };
    inside.restrictions.fix(&format!("tp=1..{}", problem.cluster().scale_up.gpus)).ok()?;
    searches.fastest(&inside, limits, control).evaluations.into_iter().next()
}
