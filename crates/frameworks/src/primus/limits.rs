//! Limits of Primus: those of Megatron-LM, AMD's GPUs, and no exchange with experts but all-to-all.
//!
//! Source: [primus] `runner/helpers/envs/`, `primus/backends/megatron/patches/` (`attention_backend_patches.py`,
//! `turbo/`), commit fd1eeabb; [megatron-lm] `megatron/training/arguments.py` (`validate_args`), commit d3528a21.

use crate::megatron::hybrid::is_hybrid;
use crate::megatron::limits::LIMITS as MEGATRON;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Dispatcher;
use meshwright_engine::workload::Optimizer;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of Primus.
pub const LIMITS: Limits = Limits { name: "primus", title: "Primus", problem, shape: &[shape, dispatcher], ..MEGATRON };

fn problem(problem: &Problem) -> Vec<Obstacle> {
    let mut found = (MEGATRON.problem)(problem);
    let gpu = &problem.cluster().gpu;
    if gpu.vendor != "AMD" {
        found.push(Obstacle::of_model(
            gpu.name.clone(),
            "its launcher and its checks are ROCm's: AMD's GPUs; others: --for megatron",
        ));
    }
    if matches!(problem.stack().attention, AttentionKernel::Fa1 | AttentionKernel::Fa2 | AttentionKernel::Fa3) {
        found.push(Obstacle::of_model(
            "FlashAttention of Transformer Engine",
            "it does not run on ROCm: --set stack.attention=cudnn, the fused kernel",
        ));
    }
    if problem.workload().optimizer == Optimizer::Muon {
        let why =
            "of its Megatron-LM, `muon` runs without overlap and without the distributed optimizer, which are priced";
        found.push(Obstacle::of_model("--optimizer muon", why));
    }
    if is_hybrid(problem.model()) {
        let what = format!("{}: layers of several kinds", problem.model().name);
        found.push(Obstacle::of_model(what, "its experiments are written for transformers here"));
    }
    found
}

/// The first obstacle of Megatron-LM's rules on a shape.
fn shape(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    MEGATRON.shape.iter().find_map(|rule| rule(problem, plan))
}

/// Its fused exchange is `use_turbo_deepep`, with kernels of Primus-Turbo that no stack prices.
fn dispatcher(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.ep * plan.layout.etp == 1 || plan.dispatcher != Dispatcher::DeepEp {
        return None;
    }
    let near = Plan { dispatcher: Dispatcher::AllToAll, ..plan.clone() };
    Obstacle::of_plan(
        "dispatcher=deepep",
        "its fused exchange is Primus-Turbo's (`use_turbo_deepep`), not priced",
        near,
    )
}
