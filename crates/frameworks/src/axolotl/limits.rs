//! Limits of axolotl: FSDP2 with tensor and context parallelism, or DeepSpeed without either.
//!
//! Source: [axolotl] `utils/schemas/{config,validation,fsdp}.py`, `utils/distributed.py`, `utils/trainer.py`, `loaders/model.py`,
//! `docs/nd_parallelism.qmd`, release 0.19.0.

use crate::hugging_face::limits as hugging_face;
use crate::rules;
use meshwright_engine::plan::{CpKind, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_engine::workload::Adaptation;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of axolotl.
pub const LIMITS: Limits = Limits {
    name: "axolotl",
    title: "axolotl",
    family: Family::Fsdp,
    also: hugging_face::ALSO,
    values: |_| vec!["pp=1", "ep=1", "etp=1", "sp=off", "cp-kind=allgather", "recompute=none,full"],
    names_stages: |_| false, // it has no pipeline
    own_split: None,
    problem,
    shape: &[
        rules::whole_classes,
        context_kind,
        packed,
        rules::no_sequence_parallel,
        rules::no_experts,
        rules::recompute_all_or_none,
        hugging_face::degrees,
        adapters,
    ],
    plan: &[hugging_face::no_offload],
    optimizer_on_host: &[],
    sharding: &[
        rules::no_pipeline,
        hugging_face::copies,
        hugging_face::sharding,
        hugging_face::shard_group,
        hugging_face::reshard,
    ],
};

fn problem(problem: &Problem) -> Vec<Obstacle> {
    let mut found = rules::plain_mixed_precision(problem, &[2.0, 4.0]);
    found.extend(hugging_face::one_gpu(problem));
    found
}

/// `ring_attn_func: varlen_llama3`, that of packed sequences, gathers keys and values.
fn context_kind(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(plan, &[CpKind::AllGather], "the ring attention of packed sequences gathers keys and values")
}

/// `validation.py` (`check_context_parallel_size`): packed sequences beside context parallelism have a micro-batch of 1.
fn packed(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.cp == 1 || plan.micro_batch == 1 {
        return None;
    }
    let why = "packed sequences beside context parallelism have a micro-batch of 1";
    Obstacle::of_plan(format!("mbs={}", plan.micro_batch), why, Plan { micro_batch: 1, ..plan.clone() })
}

/// No example and no test of axolotl trains adapters beside tensor parallelism.
fn adapters(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.tp == 1 || problem.workload().adaptation == Adaptation::Full {
        return None;
    }
    let why = "it has no example and no test of adapters beside tensor parallelism";
    Obstacle::of_plan(format!("tp={}", plan.layout.tp), why, rules::without_tensor(plan))
}
