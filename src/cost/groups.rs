//! Which ranks talk: process groups in Megatron's rank order.

use crate::collective::Group;
use crate::plan::{Plan, RankOrder};

/// The tensor-parallel group: neighbours.
pub const fn tp(plan: &Plan) -> Group {
    Group { ranks: plan.layout.tp, stride: 1 }
}

/// The context-parallel group: tp apart.
pub const fn cp(plan: &Plan) -> Group {
    Group { ranks: plan.layout.cp, stride: plan.layout.tp }
}

/// `ranks` of the data-parallel group of dense weights. Under `tp-cp-ep-pp-dp` they lie a whole pipeline apart; the cp ranks
/// among them, which lie nearer, are counted as far.
pub const fn dp(plan: &Plan, ranks: u32) -> Group {
    let stride = match plan.order {
        RankOrder::PipelineOutermost => plan.layout.tp,
        RankOrder::DataOutermost => plan.layout.tp * plan.layout.pp,
    };
    Group { ranks, stride }
}

/// Distance in ranks between neighbouring stages.
pub const fn stage_distance(plan: &Plan) -> u32 {
    match plan.order {
        RankOrder::PipelineOutermost => plan.layout.tp * plan.layout.cp * plan.layout.dp,
        RankOrder::DataOutermost => plan.layout.tp * plan.layout.cp,
    }
}
