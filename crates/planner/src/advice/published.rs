//! The nearest published layout of the same model on the same GPU, priced for the question.

use crate::catalog::layouts::{PublishedLayout, layouts_of};
use crate::space::check;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::text::parse_plan;
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::problem::Problem;

/// A published layout, evaluated on the question's cluster.
#[derive(Clone, Debug)]
pub struct PublishedPlan {
    /// Layout as published, with its run and its number of GPUs.
    pub layout: PublishedLayout,
    /// Evaluation of the layout with the replicas of the question's cluster.
    pub evaluation: Evaluation,
    /// Whether it fits, by the model.
    pub fits: bool,
}

impl PublishedPlan {
    /// Whether a plan has the degrees of tensor, context, pipeline and expert parallelism of the run, and its ZeRO stage.
    pub fn has_degrees_of(&self, plan: &Plan) -> bool {
        let degrees = |plan: &Plan| {
            let Layout { tp, cp, pp, dp: _, ep, etp } = plan.layout;
            (tp, cp, pp, ep, etp, plan.zero)
        };
        degrees(&self.evaluation.plan) == degrees(plan)
    }

    /// Whether the run shows that the plan fits: it was of the same framework and number format, with no fewer bytes of states
    /// and on no more GPUs, and its pipeline was filled as far, so that its ranks held no less.
    pub fn shows_that_it_fits(&self, problem: &Problem) -> bool {
        let workload = problem.workload();
        let asked = self.evaluation.plan.micro_batches(workload.global_batch);
        self.fits
            && self.layout.state_bytes >= workload.recipe.total()
            && self.layout.micro_batches >= asked.min(FULL * f64::from(self.evaluation.plan.layout.pp))
            && self.layout.family == problem.stack().family
            && self.layout.precision == problem.workload().precision()
            && self.layout.gpus <= problem.cluster().gpus
    }
}

/// Micro-batches per stage from which on more of them keep no more activations: the first rank of interleaved 1F1B starts at
/// most `2(p − 1) + (v − 1)p` chunks ahead of their backward pass, which `2p` micro-batches of v chunks supply (specification §4).
const FULL: f64 = 2.0;

/// Largest ratio between the GPUs of a published run and those asked at which its layout still is a comparison; a judgement.
const MOST_APART: f64 = 16.0;

/// The published layout of the model on the GPU that is nearest to the question: the same sequence length and number format
/// first, then the number of GPUs. None where none is published or none divides the question's sizes, and none for adapters: the
/// layouts are of runs that trained all weights.
pub(super) fn published(costs: &Costs) -> Option<PublishedPlan> {
    let problem = costs.problem;
    if problem.workload().adaptation.is_lora() {
        return None;
    }
    let (gpus, workload) = (f64::from(problem.cluster().gpus), problem.workload());
    let apart = |layout: &PublishedLayout| libm::log(f64::from(layout.gpus) / gpus).abs();
    let mut near: Vec<PublishedLayout> = layouts_of(&problem.model().name)
        .filter(|layout| layout.gpu == problem.cluster().gpu.name)
        .filter(|layout| layout.seq_len == workload.seq_len && apart(layout) <= libm::log(MOST_APART))
        .collect();
    let differs = |layout: &PublishedLayout| layout.precision != workload.precision();
    near.sort_by(|a, b| differs(a).cmp(&differs(b)).then(apart(a).total_cmp(&apart(b))));
    near.into_iter().find_map(|layout| {
        let plan = parse_plan(&layout.plan, problem).ok()?;
        let rejections = check(costs, &plan);
        let runs = rejections.iter().all(crate::space::Rejection::is_of_memory);
        runs.then(|| PublishedPlan { layout, evaluation: costs.evaluate_simulated(&plan), fits: rejections.is_empty() })
    })
}
