//! Plans over pools that a framework's files can express: on every pool's GPUs, for all ranks read the same files.

use super::mixture::{Distribution, Mixture, Pooled};
use crate::space::{Restrictions, Space};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;

/// Whether the framework of the restrictions can express a plan on the GPUs of every pool; without a framework, all are.
pub(super) fn expresses(pooled: &Pooled, restrictions: &Restrictions, plan: &Plan) -> bool {
    restrictions
        .limits()
        .is_none_or(|limits| pooled.joined().iter().all(|problem| limits.plan_obstacles(problem, plan).is_empty()))
}

/// Whether the framework of the restrictions can express a mixture, the stages included.
pub(super) fn expresses_mixture(pooled: &Pooled, restrictions: &Restrictions, mixture: &Mixture) -> bool {
    let stages = match &mixture.distribution {
        Distribution::Replicas { .. } => None,
        Distribution::Stages { refined, .. } => restrictions.limits().zip(Some(&refined.staged)),
    };
    let names_stages = stages.is_none_or(|(limits, staged)| {
        pooled.joined().iter().all(|problem| limits.stages_obstacle(problem, staged).is_none())
    });
    names_stages && expresses(pooled, restrictions, &mixture.plan)
}

/// Whether a plan lies in the space of every pool's view, whatever its split, which stages on pools choose themselves.
pub(super) fn is_allowed(pooled: &Pooled, restrictions: &Restrictions, plan: &Plan) -> bool {
    pooled.joined().iter().all(|problem| Space::new(&Costs::new(problem), restrictions).allows_in_any_split(plan))
}
