//! Limits of Hugging Face's `Trainer` over FSDP2 or DeepSpeed: those of Accelerate and of DeepSpeed's JSON, less what it leaves out.
//!
//! Source: [transformers] `trainer.py`, `training_args.py`, `integrations/deepspeed.py`, release 5.23.

use crate::accelerate::limits as accelerate;
use crate::deepspeed::limits as deepspeed;
use crate::rules;
use meshwright_engine::plan::{Layout, Offload, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::Obstacle;

/// Families beside that of FSDP whose engine is set up.
pub(crate) const ALSO: &[Family] = &[Family::Deepspeed];

/// Whether DeepSpeed is set up in the place of FSDP2.
pub(crate) fn on_deepspeed(problem: &Problem) -> bool {
    problem.stack().family == Family::Deepspeed
}

/// `integrations/deepspeed.py` (`trainer_config_process`): the batch of the JSON must be that of all ranks, so that ranks which share a
/// sequence or a matrix are counted as replicas.
pub(crate) fn degrees(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, .. } = plan.layout;
    if !on_deepspeed(problem) || tp * cp == 1 {
        return None;
    }
    let near = if tp > 1 { rules::without_tensor(plan) } else { rules::without_context(plan) };
    Obstacle::of_plan(format!("tp={tp} cp={cp}"), "over DeepSpeed, the Trainer counts every rank as a replica", near)
}

/// FSDP2 or copies, or any stage of DeepSpeed.
pub(crate) fn sharding(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if on_deepspeed(problem) { deepspeed::replicated(problem, plan) } else { accelerate::sharding(problem, plan) }
}

/// Groups of FSDP2's mesh.
pub(crate) fn shard_group(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if on_deepspeed(problem) { rules::no_shard_group(problem, plan) } else { accelerate::shard_group(problem, plan) }
}

/// ZeRO 3 gathers weights for each pass.
pub(crate) fn reshard(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if on_deepspeed(problem) { rules::reshard_only(problem, plan) } else { None }
}

/// States and activations stay on the device: FSDP offloads weights with them, and DeepSpeed's offload wants its own optimizer.
pub(crate) fn no_offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.offload == Offload::NONE {
        return None;
    }
    let why = "FSDP puts weights on the host with the states, and DeepSpeed's offload wants its own optimizer, not the Trainer's";
    Obstacle::of_plan("offload", why, Plan { offload: Offload::NONE, ..plan.clone() })
}
