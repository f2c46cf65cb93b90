//! Limits of Accelerate: DDP, and FSDP2 with tensor and context parallelism.
//!
//! Source: [accelerate] `parallelism_config.py`, `utils/dataclasses.py`, `commands/launch.py`, release 1.15.0.

use crate::rules;
use meshwright_engine::plan::{CpKind, Layout, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of Accelerate.
pub const LIMITS: Limits = Limits {
    name: "accelerate",
    title: "Accelerate",
    family: Family::Fsdp,
    also: &[],
    values: |_| vec!["pp=1", "ep=1", "etp=1", "sp=off", "cp-kind=allgather,p2p", "recompute=none,full", "zero=0,3"],
    names_stages: |_| false, // it has no pipeline
    own_split: None,
    problem: |problem| rules::plain_mixed_precision(problem, &[2.0, 4.0]),
    shape: &[
        rules::whole_classes,
        context_kind,
        rules::no_sequence_parallel,
        rules::no_experts,
        rules::recompute_all_or_none,
    ],
    plan: &[rules::no_offload],
    optimizer_on_host: &[],
    sharding: &[rules::no_pipeline, sharding, shard_group],
};

/// `parallelism_config_cp_comm_strategy`: `allgather`, or `alltoall`, which passes blocks round the ring.
fn context_kind(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(
        plan,
        &[CpKind::AllGather, CpKind::Ring],
        "torch's context parallelism gathers or passes keys and values",
    )
}

/// FSDP2 is ZeRO 3; without it, DDP has no other axis.
pub(crate) fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let what = || format!("zero={}", u8::from(plan.zero));
    let sharded = Plan { zero: ZeroStage::Three, ..plan.clone() };
    if plan.layout.dense_replicas() == 1 && (plan.zero > ZeroStage::Zero || plan.layout.tp > 1) {
        // Tensor parallelism needs FSDP2, and FSDP2 replicas.
        let near = if plan.layout.tp > 1 {
            rules::without_tensor(&sharded)
        } else {
            Plan { zero: ZeroStage::Zero, ..plan.clone() }
        };
        return Obstacle::of_plan(what(), "with one replica there is nothing to shard over", near);
    }
    match plan.zero {
        ZeroStage::One => Obstacle::of_plan(what(), "FSDP2 shards weights too: DDP or ZeRO 3", sharded),
        ZeroStage::Two => Obstacle::of_plan(
            what(),
            "FSDP2 shards weights too, and may keep them until backward",
            Plan { reshard_after_forward: false, ..sharded },
        ),
        ZeroStage::Zero if plan.layout.tp > 1 || plan.layout.cp > 1 => {
            Obstacle::of_plan(what(), "tensor and context parallelism need FSDP2", sharded)
        }
        ZeroStage::Zero | ZeroStage::Three => None,
    }
}

/// Weights are sharded over `dp_shard_size` and cp together, and copied over `dp_replicate_size`.
pub(crate) fn shard_group(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    let Layout { tp, cp, .. } = plan.layout;
    let meshed = tp > 1 || cp > 1;
    if group.is_multiple_of(cp) && !(meshed && group == cp) {
        return None;
    }
    let why = if group == cp {
        "copies beside tensor or context parallelism need `dp_shard_size` over 1".to_owned()
    } else {
        format!("a shard group holds whole context-parallel groups of {cp}")
    };
    Obstacle::of_plan(format!("shard={group}"), why, Plan { shard_group: None, ..plan.clone() })
}
