//! Limits of a training framework: the plans that its files can express, one rule a function, each with its reason and the
//! nearest plan without it.
//!
//! The planner knows the type; the frameworks themselves are defined in a crate above it.

mod obstacle;
mod release;
pub(crate) mod rule;

use std::fmt;

use meshwright_engine::gpu::Gpu;
use meshwright_engine::model::Model;
use meshwright_engine::plan::{Plan, RankOrder, Recompute};
use meshwright_engine::problem::Problem;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Family;
use meshwright_engine::stages::StagedPlan;

pub use obstacle::Obstacle;
pub(crate) use release::check as check_release;
pub use release::release_obstacle;

/// Limits of one framework. Two are equal where their names are.
pub struct Limits {
    /// Name on the command line.
    pub name: &'static str,
    /// Name in prose.
    pub title: &'static str,
    /// Family of software that the cost model prices it as.
    pub family: Family,
    /// Other families whose engines its files also set up, where the problem's stack is one of theirs.
    pub also: &'static [Family],
    /// Values of a plan's keys that it can express of a problem, as `--fix` writes them, or with `!=` those that it cannot; keys of
    /// which it can express every value are left out.
    pub values: fn(&Problem) -> Vec<&'static str>,
    /// Whether its files list the layers of each pipeline stage on a problem's stack.
    pub names_stages: fn(&Problem) -> bool,
    /// The split of a model's layers over `pp` stages that the framework computes itself and no file changes; none where
    /// plans choose the split.
    pub own_split: Option<fn(&Model, u32) -> Option<LayerSplit>>,
    /// Rules on the model and the workload: no plan helps.
    pub problem: fn(&Problem) -> Vec<Obstacle>,
    /// Rules on the dimensions that plans of one shape share: tensor, context and expert parallelism, micro-batch, recomputation. They
    /// read no sharding, offload or rank order.
    pub shape: &'static [PlanRule],
    /// Rules on the whole plan.
    pub plan: &'static [PlanRule],
    /// Rules on the share of optimizer states on the host: of a plan they read that share, the ZeRO stage, and whether it has a
    /// pipeline.
    pub optimizer_on_host: &'static [PlanRule],
    /// Rules on degrees, sharding and rank order alone.
    pub sharding: &'static [PlanRule],
}

/// One rule: the obstacle that a plan meets, if any.
pub type PlanRule = fn(&Problem, &Plan) -> Option<Obstacle>;

impl PartialEq for Limits {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Limits {}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Limits").field(&self.name).finish()
    }
}

/// The framework's name in prose, as messages begin.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl Limits {
    /// Whether its files set up the engine of a family.
    pub fn sets_up(&self, family: Family) -> bool {
        self.family == family || self.also.contains(&family)
    }

    /// Every rule on a plan, in the order in which obstacles are reported.
    fn rules(&self) -> impl Iterator<Item = &'static PlanRule> {
        self.shape.iter().chain(self.plan).chain(self.optimizer_on_host).chain(self.sharding)
    }

    /// Obstacle of the device, whatever is trained.
    pub fn device_obstacle(&self, gpu: &Gpu) -> Option<Obstacle> {
        let (vendors, why): (&[&str], _) = if self.family == Family::Jax {
            (&["Google", "NVIDIA"], "it is written for TPUs and for NVIDIA's GPUs here")
        } else {
            (&["NVIDIA", "AMD"], "its launcher starts PyTorch on CUDA or ROCm")
        };
        let supported = vendors.contains(&gpu.vendor.as_str());
        (!supported).then(|| Obstacle::of_model(gpu.name.clone(), why))
    }

    /// Obstacles of the device, the model and the workload, whatever the plan.
    pub fn problem_obstacles(&self, problem: &Problem) -> Vec<Obstacle> {
        self.device_obstacle(&problem.cluster().gpu).into_iter().chain((self.problem)(problem)).collect()
    }

    /// Every obstacle of a plan.
    pub fn plan_obstacles(&self, problem: &Problem, plan: &Plan) -> Vec<Obstacle> {
        self.rules().filter_map(|rule| rule(problem, plan)).collect()
    }

    /// The first obstacle of the dimensions that plans of one shape share.
    pub(crate) fn shape_obstacle(&self, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
        self.shape.iter().find_map(|rule| rule(problem, plan))
    }

    /// The first obstacle of a plan.
    pub fn plan_obstacle(&self, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
        self.rules().find_map(|rule| rule(problem, plan))
    }

    /// The first obstacle of a plan's share of optimizer states on the host.
    pub(crate) fn obstacle_on_host(&self, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
        self.optimizer_on_host.iter().find_map(|rule| rule(problem, plan))
    }

    /// The first obstacle of a plan's degrees, sharding and rank order.
    pub(crate) fn sharding_obstacle(&self, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
        self.sharding.iter().find_map(|rule| rule(problem, plan))
    }

    /// The obstacle of stages that were chosen one by one.
    pub fn stages_obstacle(&self, problem: &Problem, staged: &StagedPlan) -> Option<Obstacle> {
        let plan = &staged.plan;
        if !(self.names_stages)(problem) {
            let why = "its files do not say which layers a stage holds";
            return Obstacle::of_plan(format!("stages {}", staged.megatron_layout()), why, plan.clone());
        }
        if staged.shared_recompute().is_some() {
            return None;
        }
        let all = staged.stages.iter().flat_map(|stage| &stage.mixes).map(|mix| mix.recompute);
        let most = all.clone().find(|recompute| *recompute == Recompute::Full).or_else(|| all.max());
        Obstacle::of_plan(
            "stages that recompute differently",
            "one set of flags says what all stages recompute",
            Plan { recompute: most.unwrap_or_default(), ..plan.clone() },
        )
    }

    /// The nearest plan that the framework can express: each obstacle in turn is replaced by the plan without it. None where no
    /// plan removes an obstacle.
    pub fn nearest(&self, problem: &Problem, plan: &Plan) -> Option<Plan> {
        let mut near = plan.clone();
        for _ in 0..MOST_STEPS {
            match self.plan_obstacle(problem, &near) {
                None => return Some(canonical_order(near)),
                Some(obstacle) => near = obstacle.instead?,
            }
        }
        None
    }
}

/// Most obstacles that [`Limits::nearest`] removes: each step removes one.
const MOST_STEPS: usize = 16;

/// A plan with the default rank order where one stage or one replica leaves a single order.
fn canonical_order(plan: Plan) -> Plan {
    if plan.layout.pp == 1 || plan.layout.dp == 1 { Plan { order: RankOrder::default(), ..plan } } else { plan }
}
