//! The nearest published layout of the same model on the same GPU, priced for the question.

use crate::catalog::layouts::{PublishedLayout, layouts};
use crate::space::check;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::text::parse_plan;
use meshwright_engine::problem::Problem;

/// A published layout on the asked cluster.
#[derive(Clone, Debug)]
pub struct PublishedPlan {
    /// Where it was published, and for how many GPUs.
    pub layout: &'static PublishedLayout,
    /// The layout with the replicas of the asked cluster.
    pub evaluation: Evaluation,
    /// Whether it fits, by the model.
    pub fits: bool,
}

/// Largest ratio between the GPUs of a published run and those asked at which its layout still is a comparison; a judgement.
const MOST_APART: f64 = 16.0;

/// The published layout of the model on the GPU that is nearest to the question: the same sequence length and number format
/// first, then the number of GPUs. None where none is published or none divides the question's sizes.
pub fn published(problem: &Problem) -> Option<PublishedPlan> {
    let (gpus, workload) = (f64::from(problem.cluster().gpus), problem.workload());
    let apart = |layout: &PublishedLayout| libm::log(f64::from(layout.gpus) / gpus).abs();
    let mut near: Vec<&'static PublishedLayout> = layouts()
        .iter()
        .filter(|layout| layout.model == problem.model().name && layout.gpu == problem.cluster().gpu.name)
        .filter(|layout| layout.seq_len == workload.seq_len && apart(layout) <= libm::log(MOST_APART))
        .collect();
    let differs = |layout: &PublishedLayout| layout.precision != workload.precision();
    near.sort_by(|a, b| differs(a).cmp(&differs(b)).then(apart(a).total_cmp(&apart(b))));
    let costs = Costs::new(problem);
    near.into_iter().find_map(|layout| {
        let plan = parse_plan(&layout.plan, problem).ok()?;
        let rejections = check(&costs, &plan);
        let runs = rejections.iter().all(crate::space::Rejection::is_of_memory);
        runs.then(|| PublishedPlan { layout, evaluation: costs.evaluate_simulated(&plan), fits: rejections.is_empty() })
    })
}
