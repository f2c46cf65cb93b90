//! Step time of a plan whose ranks have a given mapping.

use meshwright_engine::collective::RankMapping;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Plan, RankOrder};
use meshwright_engine::units::Seconds;

/// Plan without the effects of its rank order, which the mapping expresses instead.
pub(super) fn counted(plan: &Plan) -> Plan {
    Plan { order: RankOrder::PipelineOutermost, ..plan.clone() }
}

/// Closed-form step time of a plan whose ranks have the given mapping.
pub fn closed_step(costs: &Costs, plan: &Plan, mapping: &RankMapping) -> Seconds {
    costs.mapped(mapping).evaluate(&counted(plan)).step.total()
}

/// Simulated step time of a plan whose ranks have the given mapping.
pub fn simulated_step(costs: &Costs, plan: &Plan, mapping: &RankMapping) -> Seconds {
    costs.mapped(mapping).evaluate_simulated(&counted(plan)).step.total()
}
