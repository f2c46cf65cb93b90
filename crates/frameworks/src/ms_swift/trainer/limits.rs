//! Limits of ms-swift's `Trainer`.
//!
//! Source: [ms-swift] `swift/arguments/sft_args.py`, `swift/arguments/base_args/template_args.py`,
//! `swift/sequence_parallel/sequence_parallel.py`, commit 3602360a.

use crate::hugging_face::limits as hugging_face;
use crate::hugging_face::limits::on_deepspeed;
use crate::rules;
use meshwright_engine::plan::{CpKind, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Obstacle, PlanRule};

/// Whether its `Trainer` trains, and not Megatron core: on stacks of other families.
pub(crate) fn trains(problem: &Problem) -> bool {
    problem.stack().family != Family::Megatron
}

/// Rules on the dimensions that plans of one shape share.
pub(crate) const SHAPE: &[PlanRule] = &[
    rules::whole_classes,
    no_tensor,
    context_kind,
    rules::no_sequence_parallel,
    rules::no_experts,
    rules::recompute_all_or_none,
];

/// Rules on the whole plan.
pub(crate) const PLAN: &[PlanRule] = &[hugging_face::no_offload];

/// Rules on degrees and sharding.
pub(crate) const SHARDING: &[PlanRule] = &[
    rules::no_pipeline,
    hugging_face::copies,
    context_engine,
    hugging_face::sharding,
    rules::no_shard_group,
    hugging_face::reshard,
];

/// Rules on the model and the workload.
pub(crate) fn problem(problem: &Problem) -> Vec<Obstacle> {
    let mut found = rules::plain_mixed_precision(problem, &[2.0, 4.0]);
    found.extend(hugging_face::one_gpu(problem));
    found
}

/// `deepspeed_autotp_size` without an example, beside which the `Trainer` counts every rank as a replica.
fn no_tensor(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.tp == 1 {
        return None;
    }
    let why = "beside AutoTP its Trainer counts every rank as a replica, and it has no example of it";
    Obstacle::of_plan(format!("tp={}", plan.layout.tp), why, rules::without_tensor(plan))
}

/// `sequence_parallel_size` is Ulysses; a ring is added where it does not divide the key-value heads.
fn context_kind(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(plan, &[CpKind::AllToAll], "its sequence parallelism is Ulysses (a2a)")
}

/// Sequences are split over DeepSpeed or copies, as in its examples.
fn context_engine(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.cp == 1 || on_deepspeed(problem) || plan.zero == ZeroStage::Zero {
        return None;
    }
    let why = "it has no example of sequence parallelism over FSDP2: --stack deepspeed-2024";
    Obstacle::of_plan(format!("cp={}", plan.layout.cp), why, rules::without_context(plan))
}
