//! Limits of ms-swift: on Megatron core those of Megatron-LM, and arguments that its command line lacks; on stacks of
//! DeepSpeed or of FSDP those of its `Trainer` (`trainer/`).
//!
//! Source: [ms-swift] `swift/megatron/arguments/megatron_args.py`, commit 3602360a, which has no other names.

use super::trainer::limits as trainer;
use crate::megatron::hybrid::is_hybrid;
use crate::megatron::limits::LIMITS as MEGATRON;
use crate::megatron::release;
use crate::rules::{self, FusedExchange, bytes_are};
use meshwright_engine::plan::{CpKind, Offload, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::{Dispatcher, Family};
use meshwright_engine::workload::Half;
use meshwright_planner::limits::{Limits, Obstacle, PlanRule};

/// Limits of ms-swift.
pub const LIMITS: Limits = Limits {
    name: "ms-swift",
    title: "ms-swift",
    family: Family::Megatron,
    also: &[Family::Deepspeed, Family::Fsdp],
    values: MEGATRON.values,             // of which those of its `Trainer` are a part
    names_stages: release::lists_stages, // `pipeline_model_parallel_layout`
    own_split: None,
    problem,
    shape: &[shape],
    plan: &[plan],
    optimizer_on_host: &[on_host],
    sharding: &[sharding],
};

/// Rules of one engine.
type Rules = [PlanRule];

fn first(rules: &Rules, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules.iter().find_map(|rule| rule(problem, plan))
}

fn shape(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let of_megatron: &Rules = &[of_megatrons_shape, context_kind, dispatcher];
    first(if trainer::trains(problem) { trainer::SHAPE } else { of_megatron }, problem, plan)
}

fn plan(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let of_megatron: &Rules = &[of_megatrons_plan, offload];
    first(if trainer::trains(problem) { trainer::PLAN } else { of_megatron }, problem, plan)
}

fn on_host(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    first(if trainer::trains(problem) { &[] } else { MEGATRON.optimizer_on_host }, problem, plan)
}

fn sharding(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let of_megatron: &Rules =
        &[of_megatrons_sharding, optimizer_states, gradients, rules::no_shard_group, rules::pipeline_outermost];
    first(if trainer::trains(problem) { trainer::SHARDING } else { of_megatron }, problem, plan)
}

fn problem(problem: &Problem) -> Vec<Obstacle> {
    if trainer::trains(problem) {
        return trainer::problem(problem);
    }
    let mut found = (MEGATRON.problem)(problem);
    for obstacle in rules::plain_mixed_precision(problem, &[2.0, 4.0]) {
        if !found.contains(&obstacle) {
            found.push(obstacle);
        }
    }
    if is_hybrid(problem.model()) {
        let what = format!("{}: layers of several kinds", problem.model().name);
        found.push(Obstacle::of_model(
            what,
            "a hybrid's stages are the bars of its pattern, which it has no argument for",
        ));
    }
    if let Some(indexer) = problem.model().indexer() {
        let what = format!("{}: index_topk = {}", problem.model().name, indexer.top_k);
        found.push(Obstacle::of_model(
            what,
            "it takes an indexer and its kernels from the model: --for megatron-bridge",
        ));
    }
    if problem.workload().adaptation.is_lora() {
        found.retain(|obstacle| obstacle.what != "LoRA"); // Megatron-LM's own script has none
        let on_its_trainer =
            "its files for Megatron train all weights; those of its `Trainer` do not: --stack fsdp-eager-2023";
        found.push(Obstacle::of_model("LoRA", on_its_trainer));
    }
    let stack = problem.stack();
    let has_none = [
        (stack.cuda_graphs, "CUDA graphs", "it has none: --set stack.cuda_graphs=false"),
        (
            stack.overlap.ep > 0.0,
            "expert exchange beside another micro-batch",
            "it hides none: --set stack.overlap.ep=0",
        ),
    ];
    found.extend(has_none.into_iter().filter(|(asked, ..)| *asked).map(|(_, what, why)| Obstacle::of_model(what, why)));
    found
}

/// The first obstacle of Megatron-LM's rules on a shape.
fn of_megatrons_shape(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    MEGATRON.shape.iter().find_map(|rule| rule(problem, plan))
}

/// The first obstacle of Megatron-LM's rules on a plan.
fn of_megatrons_plan(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    MEGATRON.plan.iter().find_map(|rule| rule(problem, plan))
}

/// The first obstacle of Megatron-LM's rules on sharding.
fn of_megatrons_sharding(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    MEGATRON.sharding.iter().find_map(|rule| rule(problem, plan))
}

/// `cp_comm_type` without the sizes of two levels.
fn context_kind(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let kinds = [CpKind::Ring, CpKind::AllGather, CpKind::AllToAll];
    rules::only_context(plan, &kinds, "it has no `hierarchical_context_parallel_sizes`")
}

/// `moe_enable_deepep`; no argument chooses another backend.
fn dispatcher(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let fused = plan.layout.ep * plan.layout.etp > 1 && plan.dispatcher == Dispatcher::DeepEp;
    if !fused || FusedExchange::of(problem) == Some(FusedExchange::DeepEp) {
        return None;
    }
    let near = Plan { dispatcher: Dispatcher::AllToAll, ..plan.clone() };
    Obstacle::of_plan("dispatcher=deepep", "`moe_enable_deepep` is its one fused exchange", near)
}

/// No argument puts activations on the host.
fn offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.offload.activations <= 0.0 {
        return None;
    }
    let near = Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan.clone() };
    Obstacle::of_plan(
        format!("offload-activations={}", plan.offload.activations),
        "it has no `cpu_offloading_num_layers`",
        near,
    )
}

/// bf16 gradients are `main_grads_dtype`, which is the precision-aware optimizer's, and that is sharded.
///
/// Source: [megatron-lm] `core/optimizer/optimizer_config.py`.
fn gradients(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero != ZeroStage::Zero || !narrow_gradients(problem) {
        return None;
    }
    let near = Plan { zero: ZeroStage::One, ..plan.clone() };
    Obstacle::of_plan("zero=0", "gradients in bf16 (`main_grads_dtype`) want the distributed optimizer", near)
}

/// Whether gradients of bf16 weights are kept in bf16.
pub(super) fn narrow_gradients(problem: &Problem) -> bool {
    let workload = problem.workload();
    workload.half == Half::Bf16 && bytes_are(workload.recipe.gradient, 2.0)
}

/// `use_distributed_optimizer`; its Megatron-FSDP has no `ckpt_format`, and none of its examples trains with it.
fn optimizer_states(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero <= ZeroStage::One {
        return None;
    }
    let near = Plan { zero: ZeroStage::One, reshard_after_forward: true, ..plan.clone() };
    Obstacle::of_plan(format!("zero={}", u8::from(plan.zero)), "of its Megatron-FSDP it has no example", near)
}
