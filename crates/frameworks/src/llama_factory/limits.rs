//! Limits of LLaMA-Factory: copies, FSDP2 or DeepSpeed over all ranks.
//!
//! Source: [llama-factory] `hparams/parser.py`, `model/adapter.py`, `model/model_utils/checkpointing.py`, `launcher.py`,
//! `examples/accelerate/`, release 0.9.5.

use crate::hugging_face::limits as hugging_face;
use crate::rules;
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of LLaMA-Factory.
pub const LIMITS: Limits = Limits {
    name: "llama-factory",
    title: "LLaMA-Factory",
    family: Family::Fsdp,
    also: hugging_face::ALSO,
    values: |_| vec!["tp=1", "cp=1", "pp=1", "ep=1", "etp=1", "sp=off", "recompute=none,full"],
    names_stages: |_| false, // it has no pipeline
    own_split: None,
    problem: |problem| rules::plain_mixed_precision(problem, &[2.0, 4.0]),
    shape: &[replicas_alone, rules::no_sequence_parallel, rules::no_experts, rules::recompute_all_or_none],
    plan: &[hugging_face::no_offload],
    optimizer_on_host: &[],
    sharding: &[rules::no_pipeline, hugging_face::sharding, rules::no_shard_group, hugging_face::reshard],
};

/// Release 0.9.5 builds no mesh: `get_train_args` has no degree, and AutoTP's batch is not what the Trainer counts.
fn replicas_alone(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, .. } = plan.layout;
    if tp * cp == 1 {
        return None;
    }
    let near = if tp > 1 { rules::without_tensor(plan) } else { rules::without_context(plan) };
    Obstacle::of_plan(format!("tp={tp} cp={cp}"), "its Trainer counts every rank as a replica", near)
}
