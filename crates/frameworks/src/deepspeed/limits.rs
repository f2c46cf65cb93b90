//! Limits of DeepSpeed's JSON. Source: [deepspeed] `deepspeed/runtime/config.py`, `zero/config.py`, `pipe/engine.py`,
//! release 0.19.8.

use crate::rules::{self, bytes_are};
use meshwright_engine::plan::{CpKind, Offload, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Family;
use meshwright_engine::workload::Half;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of DeepSpeed.
pub const LIMITS: Limits = Limits {
    name: "deepspeed",
    title: "DeepSpeed",
    family: Family::Deepspeed,
    also: &[],
    values: |_| {
        vec!["sp=off", "cp-kind=a2a", "etp=1", "dispatcher=alltoall", "recompute=none,full", "order=tp-cp-ep-dp-pp"]
    },
    names_stages: |_| false, // `PipelineModule` is cut by the model's code
    own_split: None,
    problem: |problem| rules::plain_mixed_precision(problem, &[2.0, 4.0]),
    shape: &[
        rules::whole_classes,
        context_kind,
        rules::no_sequence_parallel,
        rules::no_expert_tensor,
        rules::all_to_all_only,
        rules::recompute_all_or_none,
    ],
    plan: &[schedule, split, offload],
    optimizer_on_host: &[optimizer_on_host],
    sharding: &[
        one_model_axis,
        sharding,
        replicated,
        rules::no_shard_group,
        rules::pipeline_outermost,
        rules::reshard_only,
    ],
};

/// `sequence_parallel_size` is Ulysses.
fn context_kind(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(plan, &[CpKind::AllToAll], "its sequence parallelism is Ulysses (a2a)")
}

/// AutoTP, Ulysses, the pipeline engine and AutoEP are set up one at a time.
fn one_model_axis(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let layout = plan.layout;
    let axes = [layout.tp > 1, layout.cp > 1, layout.pp > 1, layout.ep > 1];
    if axes.iter().filter(|on| **on).count() <= 1 {
        return None;
    }
    let what = format!("tp={} cp={} pp={} ep={}", layout.tp, layout.cp, layout.pp, layout.ep);
    let near = if layout.cp > 1 {
        rules::without_context(plan)
    } else if layout.pp > 1 {
        rules::without_pipeline(plan)
    } else if layout.tp > 1 {
        rules::without_tensor(plan)
    } else {
        return rules::no_experts(problem, plan);
    };
    Obstacle::of_plan(what, "the JSON sets up AutoTP, Ulysses, the pipeline engine or AutoEP, not two of them", near)
}

/// `deepspeed/runtime/pipe/schedule.py`: `TrainSchedule` is 1F1B.
fn schedule(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 || plan.schedule == Schedule::OneFOneB {
        return None;
    }
    Obstacle::of_plan(
        format!("schedule={}", plan.schedule.name()),
        "its pipeline engine runs 1F1B",
        Plan { schedule: Schedule::OneFOneB, ..plan.clone() },
    )
}

/// `pipe/module.py`: stages are cut by `partition_method`, which knows no costs; `uniform` is written.
fn split(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 || plan.split == LayerSplit::Even {
        return None;
    }
    Obstacle::of_plan(
        format!("split={}", plan.split),
        "its pipeline is cut into stages with as many layers each",
        Plan { split: LayerSplit::Even, ..*plan },
    )
}

/// `pipe/engine.py`: ZeRO 2 and 3 do not combine with the pipeline engine; AutoTP and experts take ZeRO 2 at most.
fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let most = if plan.layout.pp > 1 {
        ZeroStage::One
    } else if plan.layout.tp > 1 || plan.layout.ep > 1 {
        ZeroStage::Two
    } else {
        ZeroStage::Three
    };
    if plan.zero <= most {
        return None;
    }
    let why = format!("ZeRO {} is the most beside a pipeline, AutoTP or AutoEP", u8::from(most));
    Obstacle::of_plan(
        format!("zero={}", u8::from(plan.zero)),
        why,
        Plan { zero: most, reshard_after_forward: true, ..plan.clone() },
    )
}

/// Without ZeRO, `engine.py` (`_do_optimizer_sanity_check`) stops where gradients are wider than the 16-bit weights;
/// with bf16 in the pipeline engine it takes `BF16_Optimizer`, which shards its states over the replicas as ZeRO 1
/// does.
pub(crate) fn replicated(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero != ZeroStage::Zero {
        return None;
    }
    let workload = problem.workload();
    let sharded = workload.half == Half::Bf16 && plan.layout.pp > 1 && plan.layout.dense_replicas() > 1;
    let why = if bytes_are(workload.recipe.gradient, 4.0) {
        "it adds gradients of 16-bit weights in fp32 with ZeRO alone"
    } else if sharded {
        "with bf16 its pipeline engine shards the optimizer's states like ZeRO 1"
    } else {
        return None;
    };
    Obstacle::of_plan("zero=0", why, Plan { zero: ZeroStage::One, ..plan.clone() })
}

/// `zero/offload_config.py`: a share of the optimizer (`ratio`) needs ZeRO 3.
fn optimizer_on_host(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let optimizer = plan.offload.optimizer;
    if optimizer > 0.0 && plan.zero == ZeroStage::Zero {
        return Obstacle::of_plan(
            format!("offload-optimizer={optimizer}"),
            "it needs ZeRO 1 or more",
            Plan { zero: ZeroStage::One, ..plan.clone() },
        );
    }
    if !rules::is_whole(optimizer) && plan.zero != ZeroStage::Three {
        return Obstacle::of_plan(
            format!("offload-optimizer={optimizer}"),
            "a share of it needs ZeRO 3",
            Plan { offload: Offload { optimizer: 1.0, ..plan.offload }, ..plan.clone() },
        );
    }
    None
}

/// `cpu_checkpointing` keeps checkpoints only.
fn offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_checkpoints_on_host(plan, "cpu_checkpointing")
}
