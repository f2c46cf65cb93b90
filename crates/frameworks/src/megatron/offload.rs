//! Limits of Megatron-LM's offload to the host.
//!
//! Source: [megatron-lm] `arguments.py`: `--optimizer-cpu-offload` needs the precision-aware optimizer, and with
//! `--fp8-param-gather` delayed scaling; `transformer_config.py`: `--cpu-offloading-num-layers` needs one stage and no
//! recomputation, and keeps a layer.

use crate::rules::bytes_are;
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{Offload, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::AmaxReduction;
use meshwright_engine::workload::Optimizer;
use meshwright_planner::limits::Obstacle;

/// Obstacle of the share of optimizer states on the host.
pub(super) fn optimizer(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let optimizer = plan.offload.optimizer;
    if optimizer <= 0.0 {
        return None;
    }
    let what = format!("offload-optimizer={optimizer}");
    let without = Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan.clone() };
    let (workload, stack) = (problem.workload(), problem.stack());
    if workload.optimizer == Optimizer::Muon || plan.zero >= ZeroStage::Two {
        return Obstacle::of_plan(what, "the hybrid device optimizer is Adam without FSDP", without);
    }
    if plan.zero == ZeroStage::Zero {
        let sharded = Plan { zero: ZeroStage::One, ..plan.clone() };
        return Obstacle::of_plan(what, "it needs the distributed optimizer", sharded);
    }
    let delayed = workload.format == Format::Fp8 && stack.amax_reduction != AmaxReduction::None;
    if bytes_are(workload.recipe.weight, 1.0) && !delayed {
        return Obstacle::of_plan(what, "beside 8-bit weights it needs delayed scaling", without);
    }
    None
}

/// Obstacle of the share of activations on the host.
pub(super) fn activations(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let activations = plan.offload.activations;
    if activations <= 0.0 {
        return None;
    }
    let what = format!("offload-activations={activations}");
    let with_share = |activations: f64| Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
    if plan.layout.pp > 1 {
        return Obstacle::of_plan(what, "`--cpu-offloading-num-layers` needs pp=1", with_share(0.0));
    }
    if plan.zero >= ZeroStage::Two {
        return Obstacle::of_plan(what, "Megatron core has no test of it with Megatron-FSDP", with_share(0.0));
    }
    if plan.recompute != Recompute::None {
        return Obstacle::of_plan(what, "offloaded layers are not recomputed", with_share(0.0));
    }
    let layers = f64::from(problem.model().layers());
    let offloaded = activations * layers;
    let whole = (offloaded - offloaded.round()).abs() < 1e-6 * layers;
    if !whole || offloaded.round() >= layers {
        let fewer = offloaded.floor().clamp(0.0, layers - 1.0) / layers;
        return Obstacle::of_plan(
            what,
            format!("it offloads whole layers, fewer than the {layers}"),
            with_share(fewer),
        );
    }
    None
}
