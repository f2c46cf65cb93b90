//! A plan in a framework's own terms: files that its launcher takes as they are.

mod accelerate;
mod deepspeed;
mod header;
mod megatron;
mod megatron_bridge;
mod nanotron;
mod settings;
mod text;
mod torchtitan;

use std::fmt;

use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::{Offload, Plan};
use meshwright_engine::stages::StagedPlan;
use meshwright_planner::express::{self, Obstacle, Target};

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The problem, ready for pricing.
    pub costs: &'a Costs<'a>,
    /// The plan with its price.
    pub evaluation: &'a Evaluation,
    /// Name of the optimizer recipe, where it was given by name: `sgd` and `muon` weigh alike.
    pub recipe: Option<&'a str>,
    /// The stages of the plan where they were chosen one by one, as `evaluation` was priced with them; by the plan's split and
    /// recomputation otherwise.
    pub staged: Option<&'a StagedPlan>,
    /// Over pools of unlike GPUs: the question, and what the head of the file says of hosts and prices (`report::hosts`).
    pub pools: Option<(&'a str, &'a [String])>,
}

impl<'a> Request<'a> {
    /// A priced plan as it is.
    pub const fn new(costs: &'a Costs<'a>, evaluation: &'a Evaluation) -> Self {
        Self { costs, evaluation, recipe: None, staged: None, pools: None }
    }

    /// The plan with what its stages share of recomputation, so that flags can say it.
    fn spelled_out(&self) -> Evaluation {
        let recompute = self.staged.and_then(StagedPlan::shared_recompute);
        let plan = Plan { recompute: recompute.unwrap_or(self.evaluation.plan.recompute), ..self.evaluation.plan };
        Evaluation { plan, ..*self.evaluation }
    }

    /// Decoder layers of each virtual stage, in model order.
    fn layers_of_chunks(&self) -> Vec<u32> {
        let plan = &self.evaluation.plan;
        match self.staged {
            Some(staged) => staged.layers_of_stages(),
            None => self.costs.layers_of_chunks(plan, &self.costs.shape(plan)),
        }
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Name, without a folder.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// A plan that a framework cannot express.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The framework.
    pub target: Target,
    /// What it cannot express, one line each.
    pub obstacles: Vec<Obstacle>,
    /// The nearest plan that it can.
    pub nearest: Option<Box<Plan>>,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} cannot run this", self.target)?;
        for obstacle in &self.obstacles {
            write!(f, "\n  {obstacle}")?;
        }
        match &self.nearest {
            Some(plan) => write!(f, "\n\nhint: the nearest plan it can run: --plan \"{plan}\""),
            None => Ok(()),
        }
    }
}

/// What a framework cannot express of an optimizer that is known by name alone.
///
/// Source: [megatron-lm] `core/optimizer/optimizer_config.py`: offloading needs the precision-aware optimizer, and that is Adam.
fn recipe_obstacle(target: Target, request: &Request) -> Option<Obstacle> {
    let plan = request.evaluation.plan;
    let megatron = matches!(target, Target::Megatron | Target::MegatronBridge);
    (megatron && request.recipe == Some("sgd") && plan.offload.optimizer > 0.0).then(|| Obstacle {
        what: format!("offload-optimizer={}", plan.offload.optimizer),
        why: "the hybrid device optimizer is Adam".into(),
        instead: Some(Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan }),
    })
}

/// The files of a legal plan for a framework; the first is what the launcher runs.
///
/// # Errors
/// What the framework cannot express, each with its reason, and the nearest plan that it can. Nothing is approximated.
pub fn emit(target: Target, request: &Request) -> Result<Vec<File>, Refusal> {
    let evaluation = request.spelled_out();
    let request = &Request { evaluation: &evaluation, ..*request };
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let of_problem = express::problem_obstacles(target, problem);
    let possible = of_problem.is_empty();
    let of_recipe = recipe_obstacle(target, request);
    let near = of_recipe.as_ref().and_then(|obstacle| obstacle.instead).unwrap_or(*plan);
    let of_stages = request.staged.and_then(|staged| express::stages_obstacle(target, staged));
    let obstacles: Vec<Obstacle> = of_problem
        .into_iter()
        .chain(express::plan_obstacles(target, problem, plan))
        .chain(of_recipe)
        .chain(of_stages)
        .collect();
    if !obstacles.is_empty() {
        let nearest = if possible { express::nearest(target, problem, &near).map(Box::new) } else { None };
        return Err(Refusal { target, obstacles, nearest });
    }
    let sizes =
        || express::Sizes::of(problem.model()).map_err(|obstacles| Refusal { target, obstacles, nearest: None });
    Ok(match target {
        Target::Megatron if express::is_hybrid(problem.model()) => {
            let hybrid = express::Hybrid::of(problem.model());
            let hybrid = hybrid.map_err(|obstacles| Refusal { target, obstacles, nearest: None })?;
            vec![megatron::script(request, &hybrid.sizes, Some(&hybrid))]
        }
        Target::Megatron => vec![megatron::script(request, &sizes()?, None)],
        Target::MegatronBridge => megatron_bridge::files(request, &sizes()?),
        Target::Deepspeed => deepspeed::files(request),
        Target::Torchtitan => torchtitan::files(request, &sizes()?),
        Target::Accelerate => accelerate::files(request),
        Target::Nanotron => nanotron::files(request, &sizes()?),
    })
}
