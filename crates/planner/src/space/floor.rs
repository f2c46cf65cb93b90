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
        Adaptation::Lora => 0.0,
    };
    Bytes::new(problem.model().parameters().total as f64 * (workload.recipe.weight + gradient) / gpus)
}

/// Rejection of every plan of a problem whose weights and gradients alone exceed the memory of all GPUs.
pub fn too_few_gpus(problem: &Problem) -> Option<Rejection> {
    let (needed, available, gpus) = (least_memory(problem), problem.hbm_budget(), problem.cluster().gpus);
    let least = (f64::from(gpus) * (needed / available)).ceil() as u64;
    (needed > available).then_some(Rejection::TooFewGpus { needed, available, gpus, least })
}
