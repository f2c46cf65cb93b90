//! Plainness of a plan: its settings that differ from a launcher's defaults.

use meshwright_engine::plan::{CpKind, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;

/// Settings of a plan that differ from a launcher's default, in words; the fewer, the plainer.
///
/// One for each degree above 1, for tensor parallelism that leaves the scale-up domain, for several chunks on a rank, and for
/// each of: an unusual schedule, an uneven split, ZeRO 2 or 3, a shard group, weights kept after forward, recomputation,
/// offload, an exchange of context parallelism other than the ring, another rank order, tensor parallelism without sequence
/// parallelism.
pub fn unusual_settings(problem: &Problem, plan: &Plan) -> Vec<&'static str> {
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
        (layout.tp > 1, "tensor parallelism"),
        (layout.tp > problem.cluster().scale_up.gpus, "tensor parallelism across nodes"),
        (layout.tp > 1 && !sequence_parallel, "no sequence parallelism"),
        (layout.cp > 1, "context parallelism"),
        (layout.cp > 1 && cp_kind != CpKind::Ring, "another exchange than the ring"),
        (layout.pp > 1, "a pipeline"),
        (layout.pp > 1 && schedule.virtual_stages() > 1, "several chunks a rank"),
        (
            layout.pp > 1 && !matches!(schedule, Schedule::OneFOneB | Schedule::Interleaved { .. }),
            "another schedule than 1F1B",
        ),
        (layout.pp > 1 && *split != LayerSplit::Even, "uneven stages"),
        (layout.ep > 1, "expert parallelism"),
        (layout.ep > 1 && dispatcher != problem.stack().dispatcher, "another dispatcher"),
        (layout.etp > 1, "experts split by tensor parallelism"),
        (zero > ZeroStage::One, if zero == ZeroStage::Two { "ZeRO 2" } else { "ZeRO 3" }),
        (shard_group.is_some(), "shard groups"),
        (!reshard_after_forward, "weights kept after forward"),
        (recompute != Recompute::None, "recomputation"),
        (optimizer > 0.0, "optimizer offload"),
        (activations > 0.0, "activation offload"),
        (order != RankOrder::default(), "data parallelism outside the pipeline"),
    ];
    differs.into_iter().filter_map(|(differs, setting)| differs.then_some(setting)).collect()
}
