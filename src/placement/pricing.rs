//! Step time of a plan whose ranks have given seats.

use meshwright_engine::collective::Seats;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Plan, RankOrder};
use meshwright_engine::units::Seconds;

/// Plan without the effects of its rank order, which the seats express instead.
pub(super) fn counted(plan: &Plan) -> Plan {
    Plan { order: RankOrder::PipelineOutermost, ..plan.clone() }
}

/// Closed-form step time of a plan whose ranks have the given seats.
pub fn closed_step(costs: &Costs, plan: &Plan, seats: &Seats) -> Seconds {
    costs.seated(seats).evaluate(&counted(plan)).step.total()
}

/// Simulated step time of a plan whose ranks have the given seats.
pub fn simulated_step(costs: &Costs, plan: &Plan, seats: &Seats) -> Seconds {
    costs.seated(seats).evaluate_simulated(&counted(plan)).step.total()
}
