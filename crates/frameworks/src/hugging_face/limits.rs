//! Limits of Hugging Face's `Trainer` over FSDP2 or DeepSpeed: those of Accelerate and of DeepSpeed's JSON, without what
//! the `Trainer` lacks.
//!
//! Source: [transformers] `trainer.py`, `training_args.py`, `integrations/deepspeed.py`, release 5.23.

use crate::accelerate::limits as accelerate;
use crate::deepspeed::limits as deepspeed;
use crate::rules;
use meshwright_engine::plan::{Layout, Offload, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::Obstacle;

/// Families other than FSDP's whose engine is set up.
pub(crate) const ALSO: &[Family] = &[Family::Deepspeed];

/// Whether DeepSpeed is set up instead of FSDP2.
pub(crate) fn on_deepspeed(problem: &Problem) -> bool {
    problem.stack().family == Family::Deepspeed
}

/// Reason why plain replicas do not train with fp32 states.
const NO_MASTERS: &str =
    "without FSDP it holds weights in 16 bits alone; DeepSpeed keeps fp32 copies: --stack deepspeed-2024";

/// Whether weights that are loaded in a 16-bit type have fp32 copies: those of FSDP2 and DeepSpeed have, and adapters are fp32.
///
/// Source: [axolotl] `loaders/model.py`, release 0.19.0; [ms-swift] `swift/arguments/base_args/model_args.py`
/// (`_init_torch_dtype`), commit 3602360a.
fn keeps_copies(problem: &Problem) -> bool {
    on_deepspeed(problem) || problem.workload().adaptation.is_lora()
}

/// One GPU, which is not sharded, has no fp32 states.
pub(crate) fn one_gpu(problem: &Problem) -> Option<Obstacle> {
    (problem.cluster().gpus == 1 && !keeps_copies(problem)).then(|| Obstacle::of_model("one GPU", NO_MASTERS))
}

/// Copies of 16-bit weights have no fp32 states.
pub(crate) fn copies(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero != ZeroStage::Zero || keeps_copies(problem) || problem.cluster().gpus == 1 {
        return None;
    }
    Obstacle::of_plan("zero=0", NO_MASTERS, Plan { zero: ZeroStage::Three, ..plan.clone() })
}

/// `integrations/deepspeed.py` (`trainer_config_process`): the batch of the JSON must be that of all ranks, so that
/// ranks which share a sequence or a matrix are counted as replicas.
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
