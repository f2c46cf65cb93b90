//! Lower bound on the memory of every plan: whatever the layout, the GPUs together hold all weights and gradients.

use super::rejection::Rejection;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Bytes;
use meshwright_engine::workload::Adaptation;

/// Bytes of weights and gradients on the fullest GPU of any plan, at the least.
///
/// ```text
/// P·(w + g)/N      P parameters, w and g bytes of a weight and a gradient (g = 0 under LoRA), N GPUs
/// ```
///
/// Optimizer states may be on the host, so they do not count (specification §6.1).
pub fn least_memory(problem: &Problem) -> Bytes {
    let (workload, gpus) = (problem.workload(), f64::from(problem.cluster().gpus));
    let gradient = match workload.adaptation {
        Adaptation::Full => workload.recipe.gradient,
        Adaptation::Lora | Adaptation::LoraAttention => 0.0,
    };
    Bytes::new(problem.model().parameters().total as f64 * (workload.recipe.weight + gradient) / gpus)
}

/// Bytes of model states on the fullest GPU of any plan that places at most a share `on_host` of its optimizer states on the
/// host: weights, gradients, and the optimizer states that stay.
///
/// ```text
/// P·(w + g + s·(1 − o))/N      s bytes of master weight and moments, o the share on the host
/// ```
///
/// Sharded fp32 weights are the master weights: then w counts as nothing (specification §6.1).
pub fn least_states(problem: &Problem, on_host: f64) -> Bytes {
    let (recipe, gpus) = (problem.workload().recipe, f64::from(problem.cluster().gpus));
    let optimizer = match problem.workload().adaptation {
        Adaptation::Full => (recipe.master + recipe.state) * (1.0 - on_host),
        Adaptation::Lora | Adaptation::LoraAttention => 0.0,
    };
    let weights = if problem.stack().memory.fp32_shards { recipe.weight } else { 0.0 };
    let parameters = problem.model().parameters().total as f64;
    let beside = (optimizer - weights).max(0.0);
    least_memory(problem) + Bytes::new(parameters * beside / gpus)
}

/// Rejection of every plan of a problem whose weights and gradients alone exceed the memory of all GPUs.
pub fn too_few_gpus(problem: &Problem) -> Option<Rejection> {
    let (needed, available, gpus) = (least_memory(problem), problem.hbm_budget(), problem.cluster().gpus);
    let least = (f64::from(gpus) * (needed / available)).ceil() as u64;
    (needed > available).then_some(Rejection::TooFewGpus { needed, available, gpus, least })
}
