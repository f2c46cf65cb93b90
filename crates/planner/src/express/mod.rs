//! What a training framework can express of a plan: one rule a function, each with its reason and the nearest plan without it.

mod accelerate;
mod deepspeed;
mod hybrid;
mod megatron;
mod megatron_bridge;
mod model;
mod nanotron;
mod rules;
mod torchtitan;

pub use hybrid::{Hybrid, is_hybrid};
pub use megatron::is as bytes_are;
pub use model::{SharedMixer, Sizes};

use std::borrow::Cow;
use std::fmt;

use meshwright_engine::plan::{Plan, RankOrder, Recompute};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Framework;
use meshwright_engine::stages::StagedPlan;

/// A framework that plans are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Megatron-LM's `pretrain_gpt.py`.
    Megatron,
    /// Megatron-Bridge (NeMo).
    MegatronBridge,
    /// DeepSpeed with a model of one's own.
    Deepspeed,
    /// torchtitan.
    Torchtitan,
    /// Hugging Face Accelerate: DDP and FSDP2.
    Accelerate,
    /// nanotron.
    Nanotron,
}

impl Target {
    /// All targets, with their names on the command line.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("megatron", Self::Megatron),
        ("megatron-bridge", Self::MegatronBridge),
        ("deepspeed", Self::Deepspeed),
        ("torchtitan", Self::Torchtitan),
        ("accelerate", Self::Accelerate),
        ("nanotron", Self::Nanotron),
    ];

    /// The target of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "bridge" | "nemo" => Some(Self::MegatronBridge),
            _ => Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, target)| *target),
        }
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::MegatronBridge => "megatron-bridge",
            Self::Deepspeed => "deepspeed",
            Self::Torchtitan => "torchtitan",
            Self::Accelerate => "accelerate",
            Self::Nanotron => "nanotron",
        }
    }

    /// Its name in prose.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Megatron => "Megatron-LM",
            Self::MegatronBridge => "Megatron-Bridge",
            Self::Deepspeed => "DeepSpeed",
            Self::Torchtitan => "torchtitan",
            Self::Accelerate => "Accelerate",
            Self::Nanotron => "nanotron",
        }
    }

    /// The family of software that it belongs to, as the cost model knows it.
    pub const fn framework(self) -> Framework {
        match self {
            Self::Megatron | Self::MegatronBridge => Framework::Megatron,
            Self::Deepspeed => Framework::Deepspeed,
            Self::Torchtitan => Framework::Torchtitan,
            Self::Accelerate => Framework::Fsdp,
            Self::Nanotron => Framework::Nanotron,
        }
    }

    /// The profile of its software that is priced where none is named.
    pub const fn stack(self) -> &'static str {
        match self {
            Self::Megatron | Self::MegatronBridge => "nemo-25",
            Self::Deepspeed => "deepspeed-zero3-2022",
            Self::Torchtitan => "torchtitan-2024",
            Self::Accelerate => "automodel-2025",
            Self::Nanotron => "nanotron-2025",
        }
    }

    /// Values of a plan's keys that it can express, as `--fix` writes them; keys that it can express whole are left out.
    pub fn values(self, dense: bool) -> Vec<&'static str> {
        match self {
            Self::Megatron | Self::MegatronBridge if dense => {
                vec!["recompute=none,mlp,layernorm,layernorm+mlp,core_attn,full"]
            }
            Self::Megatron | Self::MegatronBridge => Vec::new(),
            Self::Deepspeed => vec![
                "sp=off",
                "cp-kind=a2a",
                "etp=1",
                "dispatcher=alltoall",
                "recompute=none,full",
                "order=tp-cp-ep-dp-pp",
            ],
            Self::Torchtitan => {
                vec!["cp-kind=allgather", "etp=1", "recompute=none,per-op,full", "zero=0,3", "order=tp-cp-ep-dp-pp"]
            }
            Self::Accelerate => {
                vec!["pp=1", "ep=1", "etp=1", "sp=off", "cp-kind=allgather,p2p", "recompute=none,full", "zero=0,3"]
            }
            Self::Nanotron => {
                vec!["ep=1", "etp=1", "cp-kind=allgather", "recompute=none,full", "zero=0,1", "order=tp-cp-ep-dp-pp"]
            }
        }
    }

    /// Whether its files say which layers each stage of a pipeline holds.
    ///
    /// Source: [megatron-lm] `--pipeline-model-parallel-layout`; torchtitan `module_fqns_per_model_part`; DeepSpeed
    /// `PipelineModule` is cut by the model's code; nanotron cuts by its own costs.
    pub const fn names_stages(self) -> bool {
        match self {
            Self::Megatron | Self::MegatronBridge | Self::Torchtitan => true,
            Self::Deepspeed | Self::Accelerate | Self::Nanotron => false,
        }
    }

    const fn rules(self) -> Rules {
        match self {
            Self::Megatron => megatron::RULES,
            Self::MegatronBridge => megatron_bridge::RULES,
            Self::Deepspeed => deepspeed::RULES,
            Self::Torchtitan => torchtitan::RULES,
            Self::Accelerate => accelerate::RULES,
            Self::Nanotron => nanotron::RULES,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// One thing that a framework cannot express.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    /// What, as it stands in the plan or the model.
    pub what: String,
    /// Why not, in the framework's terms.
    pub why: Cow<'static, str>,
    /// The plan without it; none where no plan helps.
    pub instead: Option<Plan>,
}

impl Obstacle {
    #[allow(clippy::unnecessary_wraps)] // what a rule returns
    fn of_plan(what: impl Into<String>, why: impl Into<Cow<'static, str>>, instead: Plan) -> Option<Self> {
        Some(Self { what: what.into(), why: why.into(), instead: Some(instead) })
    }

    fn of_model(what: impl Into<String>, why: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), why: why.into(), instead: None }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

type Rule = fn(&Problem, &Plan) -> Option<Obstacle>;

/// The rules of one framework.
struct Rules {
    /// On the model and the workload: no plan helps.
    problem: fn(&Problem) -> Vec<Obstacle>,
    /// On what plans of one shape share: tensor, context and expert parallelism, micro-batch, recomputation.
    shape: &'static [Rule],
    /// On the whole plan.
    plan: &'static [Rule],
    /// On degrees, sharding and rank order, whatever else a plan is.
    sharding: &'static [Rule],
}

impl Rules {
    fn all(&self) -> impl Iterator<Item = &'static Rule> {
        self.shape.iter().chain(self.plan).chain(self.sharding)
    }
}

/// What of the model and the workload a framework cannot express, whatever the plan.
pub fn problem_obstacles(target: Target, problem: &Problem) -> Vec<Obstacle> {
    let gpu = &problem.cluster().gpu;
    let runs = ["NVIDIA", "AMD"].contains(&gpu.vendor.as_str());
    let device = (!runs).then(|| Obstacle::of_model(gpu.name.clone(), "its launcher starts PyTorch on CUDA or ROCm"));
    device.into_iter().chain((target.rules().problem)(problem)).collect()
}

/// What of a plan a framework cannot express.
pub fn plan_obstacles(target: Target, problem: &Problem, plan: &Plan) -> Vec<Obstacle> {
    target.rules().all().filter_map(|rule| rule(problem, plan)).collect()
}

/// The first thing of a plan that a framework cannot express.
pub fn plan_obstacle(target: Target, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    target.rules().all().find_map(|rule| rule(problem, plan))
}

/// The first thing of a plan's degrees, sharding and rank order that a framework cannot express.
pub fn sharding_obstacle(target: Target, problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    target.rules().sharding.iter().find_map(|rule| rule(problem, plan))
}

/// What of stages that were chosen one by one a framework cannot express.
pub fn stages_obstacle(target: Target, staged: &StagedPlan) -> Option<Obstacle> {
    let plan = &staged.plan;
    if !target.names_stages() {
        let why = "its files do not say which layers a stage holds";
        return Obstacle::of_plan(format!("stages {}", staged.megatron_layout()), why, *plan);
    }
    if staged.shared_recompute().is_some() {
        return None;
    }
    let all = staged.stages.iter().flat_map(|stage| &stage.mixes).map(|mix| mix.recompute);
    let again = all.clone().find(|recompute| *recompute == Recompute::Full).or_else(|| all.max());
    Obstacle::of_plan(
        "stages that recompute differently",
        "one set of flags says what all stages recompute",
        Plan { recompute: again.unwrap_or_default(), ..*plan },
    )
}

/// Times that the nearest plan is looked for: each step removes one obstacle.
const MOST_STEPS: usize = 16;

/// With one stage or one replica there is one order of ranks.
fn plainly_ordered(plan: Plan) -> Plan {
    if plan.layout.pp == 1 || plan.layout.dp == 1 { Plan { order: RankOrder::default(), ..plan } } else { plan }
}

/// The plan that a framework can express and that differs least: each obstacle is replaced by what stands nearest.
pub fn nearest(target: Target, problem: &Problem, plan: &Plan) -> Option<Plan> {
    let mut near = *plan;
    for _ in 0..MOST_STEPS {
        match plan_obstacle(target, problem, &near) {
            None => return Some(plainly_ordered(near)),
            Some(obstacle) => near = obstacle.instead?,
        }
    }
    None
}
