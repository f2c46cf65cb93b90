//! Plainness of a plan: number of its settings that differ from a launcher's defaults.

use meshwright_engine::plan::{CpKind, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;

/// Number of settings of a plan that differ from a launcher's default; the fewer, the plainer.
///
/// One for each degree above 1, for tensor parallelism that leaves the scale-up domain, for several chunks on a rank, and for
/// each of: an unusual schedule, an uneven split, ZeRO 2 or 3, a shard group, weights kept after forward, recomputation,
/// offload, an exchange of context parallelism other than the ring, another rank order, tensor parallelism without sequence
/// parallelism.
pub fn settings(problem: &Problem, plan: &Plan) -> u32 {
    let Plan {
        layout,
        sequence_parallel,
        cp_kind,
        schedule,
        ref split,
        zero,
        shard_group,
        reshard_after_forward,
        micro_batch: _,
        recompute,
        offload: Offload { optimizer, activations },
        dispatcher,
        order,
    } = *plan;
    let differs = [
        layout.tp > 1,
        layout.tp > problem.cluster().scale_up.gpus,
        layout.tp > 1 && !sequence_parallel,
        layout.cp > 1,
        layout.cp > 1 && cp_kind != CpKind::Ring,
        layout.pp > 1,
        layout.pp > 1 && schedule.virtual_stages() > 1,
        layout.pp > 1 && !matches!(schedule, Schedule::OneFOneB | Schedule::Interleaved { .. }),
        layout.pp > 1 && *split != LayerSplit::Even,
        layout.ep > 1,
        layout.ep > 1 && dispatcher != problem.stack().dispatcher,
        layout.etp > 1,
        zero > ZeroStage::One,
        shard_group.is_some(),
        !reshard_after_forward,
        recompute != Recompute::None,
        optimizer > 0.0,
        activations > 0.0,
        order != RankOrder::default(),
    ];
    differs.into_iter().map(u32::from).sum()
}
