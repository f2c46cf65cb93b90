//! Megatron-Core's expert exchange beside the compute of another micro-batch.

use super::hybrid::is_hybrid;
use meshwright_engine::plan::{Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;

/// Whether micro-batches of a plan can be interleaved so that expert exchange runs beside compute.
///
/// Source: [megatron-lm] `transformer_config.py`: it needs ep > 1, chunks where there is a pipeline, and no whole layers or
/// mixtures recomputed.
pub fn can_overlap_experts(problem: &Problem, plan: &Plan) -> bool {
    let chunked = plan.layout.pp == 1 || matches!(plan.schedule, Schedule::Interleaved { .. });
    let keeps_layers = match plan.recompute {
        Recompute::None => true,
        Recompute::Selective(modules) => !modules.moe,
        Recompute::PerOp | Recompute::EveryOther | Recompute::FirstLayers(_) | Recompute::Full => false,
    };
    plan.layout.ep > 1
        && chunked
        && keeps_layers
        && problem.model().mtp_depth <= 1
        && plan.zero < ZeroStage::Two
        && !is_hybrid(problem.model())
}
