//! A request for a plan's files, and the files themselves.

use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::stages::StagedPlan;

/// Steps over which the learning rate rises in a run of any length; to be edited.
const WARM_UP: u32 = 5;

/// Header of files for heterogeneous pools, which no single problem describes.
#[derive(Clone, Copy, Debug)]
pub struct PoolsHeader<'a> {
    /// The question: model, pools and workload.
    pub heading: &'a str,
    /// Lines on hosts and prices.
    pub lines: &'a [String],
}

/// A plan to be written, with its price and the question that it answers.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The problem, ready for pricing.
    pub costs: &'a Costs<'a>,
    /// The plan with its price.
    pub evaluation: &'a Evaluation,
    /// Name of the optimizer recipe, where it was given by name: `sgd` and `muon` have equal bytes per parameter.
    pub recipe: Option<&'a str>,
    /// Steps of a timing run on synthetic data, which saves nothing; none for training, with variables that the user sets.
    pub steps: Option<u32>,
    /// Release of the framework that the files are for; none for the newest that is known.
    pub release: Option<&'static str>,
    /// The stages of the plan where they were chosen one by one, as `evaluation` was priced with them; by the plan's split and
    /// recomputation otherwise.
    pub staged: Option<&'a StagedPlan>,
    /// Header of files for heterogeneous pools; none on one cluster.
    pub pools: Option<PoolsHeader<'a>>,
}

impl<'a> Request<'a> {
    /// Request of a priced plan, without options.
    pub const fn new(costs: &'a Costs<'a>, evaluation: &'a Evaluation) -> Self {
        Self { costs, evaluation, recipe: None, steps: None, release: None, staged: None, pools: None }
    }

    /// The plan with the recomputation that its stages have in common, so that flags can express it.
    pub(crate) fn spelled_out(&self) -> Evaluation {
        let recompute = self.staged.and_then(StagedPlan::shared_recompute);
        let plan =
            Plan { recompute: recompute.unwrap_or(self.evaluation.plan.recompute), ..self.evaluation.plan.clone() };
        Evaluation { plan, ..*self.evaluation }
    }

    /// Micro-batches that each replica works through in turn.
    pub(crate) fn accumulation(&self) -> u32 {
        self.evaluation.plan.micro_batches(self.costs.problem.workload().global_batch) as u32
    }

    /// Steps over which the learning rate rises: fewer than a run has, as Megatron asserts.
    pub(crate) fn warm_up(&self) -> u32 {
        self.steps.map_or(WARM_UP, |steps| WARM_UP.min(steps.saturating_sub(1)))
    }

    /// Duty of the user's program in a timing run, for frameworks whose files do not set the number of steps.
    pub(crate) fn timing_duty(&self) -> Option<String> {
        self.steps
            .map(|steps| format!("end after {steps} steps on synthetic data, and save nothing: this is a timing run"))
    }

    /// Decoder layers of each virtual stage, in model order.
    pub(crate) fn layers_of_chunks(&self) -> Vec<u32> {
        let plan = &self.evaluation.plan;
        match self.staged {
            Some(staged) => staged.layers_of_stages(),
            None => self.costs.layers_of_chunks(plan, &self.costs.shape(plan)),
        }
    }
}

/// Program that a configuration of Accelerate or of DeepSpeed is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The user's own, which leaves mesh, optimizer and recomputation to the configuration.
    Own,
    /// Hugging Face's `Trainer`, which makes the optimizer and recomputes by its own settings.
    Trainer,
}

/// A file for a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedFile {
    /// Name, without a folder.
    pub name: String,
    /// Its contents.
    pub text: String,
}
