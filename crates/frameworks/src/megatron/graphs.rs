//! Megatron-LM's CUDA graphs of modules: settings that they exclude, and their flags.
//!
//! Source: [megatron-lm] `transformer_config.py`: whole layers of dense models; of mixtures without capacity,
//! attention, Mamba, the router and, where no count of tokens is read back, preprocessing; none under full recomputation,
//! offloaded activations or FSDP. [megatron-bridge] `recipes/nemotronh/`: the same of a hybrid with experts.

use super::hybrid::is_hybrid;
use crate::emit::flags::FlagGroup;
use crate::emit::request::Request;
use meshwright_engine::model::Ffn;
use meshwright_engine::plan::{Offload, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Dispatcher;
use meshwright_planner::limits::Obstacle;

/// Whether the layers are replayed from graphs of modules: a graph of the whole iteration holds all that a step does.
fn replays_modules(problem: &Problem) -> bool {
    problem.stack().cuda_graphs && !problem.stack().graphed_experts
}

/// Values of a plan that graphs of modules exclude, but for recomputed first layers and activations on the host.
pub(crate) const EXCLUDED: [&str; 2] = ["recompute=full,per-op,every-other", "zero=2,3"];

/// The setting of a plan, as text, for which graphs of modules do not hold its layers; nothing where they do.
pub(crate) fn excluding(plan: &Plan) -> Option<String> {
    let Plan { recompute, offload, zero, .. } = plan;
    if !matches!(recompute, Recompute::None | Recompute::Selective(_)) {
        return Some(format!("recompute={recompute}"));
    }
    if offload.activations > 0.0 {
        return Some(format!("offload-activations={}", offload.activations));
    }
    (*zero >= ZeroStage::Two).then(|| format!("zero={}", u8::from(*zero)))
}

/// Obstacle of recomputed first layers: a chunk has graphs, or recomputes layers.
pub(super) fn first_layers(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if !(replays_modules(problem) && matches!(plan.recompute, Recompute::FirstLayers(_))) {
        return None;
    }
    Obstacle::of_plan(
        format!("recompute={}", plan.recompute),
        "recomputation of layers excludes CUDA graphs of modules (stack.cuda_graphs=false)",
        Plan { recompute: Recompute::Full, ..plan.clone() },
    )
}

/// Obstacle of activations on the host.
pub(super) fn activations(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if !(replays_modules(problem) && plan.offload.activations > 0.0) {
        return None;
    }
    Obstacle::of_plan(
        format!("offload-activations={}", plan.offload.activations),
        "its copies are not captured in CUDA graphs of modules (stack.cuda_graphs=false)",
        Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan.clone() },
    )
}

/// Obstacle of Megatron-FSDP.
pub(super) fn fsdp(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if !(replays_modules(problem) && plan.zero >= ZeroStage::Two) {
        return None;
    }
    Obstacle::of_plan(
        format!("zero={}", u8::from(plan.zero)),
        "Megatron-FSDP excludes CUDA graphs of modules (stack.cuda_graphs=false)",
        Plan { zero: ZeroStage::One, shard_group: None, reshard_after_forward: true, ..plan.clone() },
    )
}

/// Sets the flags of CUDA graphs, where the stack has them and the plan's layers are not recomputed as a whole.
pub(super) fn set(request: &Request, group: &mut FlagGroup, notes: &mut Vec<String>) {
    let (plan, problem) = (&request.evaluation.plan, request.costs.problem);
    if !problem.stack().cuda_graphs {
        return;
    }
    let recomputes_experts = match plan.recompute {
        Recompute::None => false,
        Recompute::Selective(modules) => modules.moe,
        Recompute::PerOp | Recompute::EveryOther | Recompute::FirstLayers(_) | Recompute::Full => {
            notes.push("no CUDA graphs are written, which full recomputation excludes".into());
            return;
        }
    };
    if plan.offload.activations > 0.0 || plan.zero >= ZeroStage::Two {
        notes.push("the prediction assumed CUDA graphs, which offloading and FSDP exclude".into());
        return;
    }
    let modules = modules(request, recomputes_experts);
    if modules.is_empty() {
        notes.push("no CUDA graphs are written: `stack.graph_scope` leaves no module that they could hold".into());
        return;
    }
    group.set("cuda-graph-impl", "transformer_engine");
    group.on("te-rng-tracker"); // "required for CUDA graphs support", by its help
    group.list("cuda-graph-modules", modules);
}

/// Modules that the graphs hold, in the words of `--cuda-graph-modules`. The MLP of dense layers is refused beside the exchange of experts
/// of another micro-batch, and not written for hybrids, whose MLP is a layer of its own.
fn modules(request: &Request, recomputes_experts: bool) -> Vec<&'static str> {
    let (plan, problem) = (&request.evaluation.plan, request.costs.problem);
    let (model, scope) = (problem.model(), problem.stack().graph_scope);
    let has_mlp = !is_hybrid(model) && model.kinds.iter().any(|layer| matches!(layer.ffn, Ffn::Dense(_)));
    let routed = model.is_moe() && !recomputes_experts;
    let preprocessed = routed && plan.layout.ep > 1 && plan.dispatcher == Dispatcher::DeepEp;
    [
        ("attn", scope.attention),
        ("mamba", scope.attention && is_hybrid(model)),
        ("mlp", scope.mlp && has_mlp && problem.stack().overlap.ep == 0.0),
        ("moe_router", routed),
        ("moe_preprocess", preprocessed),
    ]
    .into_iter()
    .filter_map(|(name, held)| held.then_some(name))
    .collect()
}
