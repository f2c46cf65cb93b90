//! Limits by release: features of plans that the stack's release of Megatron core lacks.
//!
//! Source: [megatron-lm] the first tag whose `arguments.py`, `transformer_config.py` or `parallel_state.py` has the option.
//! Megatron-LM before core: [narayanan21] for 0.0, [korthikanti22] for 0.1.

use crate::rules::without_context;
use meshwright_engine::plan::{CpKind, Layout, Modules, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::{CoreRelease, Dispatcher};
use meshwright_planner::limits::Obstacle;

/// Feature of plans that came with a release.
struct Feature {
    /// The first release that has it, by its number.
    first: u32,
    /// Name in prose.
    name: &'static str,
    /// Values of its key without it; `None` where they depend on other keys.
    without: Option<&'static str>,
    /// Use of it by a plan; `None` where the plan does not use it.
    used: fn(&Problem, &Plan) -> Option<Use>,
}

/// Use of a feature by a plan.
struct Use {
    /// Text `key=value` of the setting by which the plan uses it.
    setting: String,
    /// The nearest plan without it.
    nearest: Plan,
}

/// Features of tensor, context and expert parallelism and of recomputation.
const SHAPE: &[Feature] = &[
    Feature { first: 1, name: "sequence parallelism", without: Some("sp=off"), used: sequence_parallel },
    Feature {
        first: 1,
        name: "recomputation of attention's core",
        without: Some("recompute=none,full"),
        used: recomputed_core,
    },
    Feature { first: 4, name: "context parallelism", without: Some("cp=1"), used: context },
    Feature { first: 4, name: "expert parallelism", without: Some("ep=1"), used: experts },
    Feature { first: 10, name: "`--cp-comm-type`", without: Some("cp-kind=p2p"), used: context_kind },
    Feature { first: 12, name: "`--recompute-modules`", without: Some("recompute=none,core_attn,full"), used: modules },
    Feature { first: 12, name: "DeepEP", without: Some("dispatcher=alltoall"), used: fused_exchange },
];

/// Features of the whole plan.
const PLAN: &[Feature] = &[
    Feature { first: 5, name: "`cpu_offloading`", without: Some("offload-activations=0"), used: activations_on_host },
    Feature { first: 9, name: "other layers on the first and the last rank", without: Some("split=even"), used: ends },
    Feature {
        first: LISTED_STAGES,
        name: "`--pipeline-model-parallel-layout`",
        without: Some("split!=cost-balanced"),
        used: stages,
    },
];

/// Features of optimizer states on the host.
const ON_HOST: &[Feature] = &[Feature {
    first: 12,
    name: "`--optimizer-cpu-offload`",
    without: Some("offload-optimizer=0"),
    used: optimizer_on_host,
}];

/// Features of sharding and rank order.
const SHARDING: &[Feature] = &[
    Feature { first: 1, name: "the distributed optimizer", without: Some("zero=0"), used: distributed_optimizer },
    Feature { first: 7, name: "`--use-tp-pp-dp-mapping`", without: Some("order=tp-cp-ep-dp-pp"), used: data_outermost },
    Feature { first: 10, name: "another tensor parallelism of experts", without: None, used: expert_tensor },
    Feature { first: 10, name: "`--num-distributed-optimizer-instances`", without: None, used: optimizer_instances },
    Feature { first: 14, name: "Megatron-FSDP", without: Some("zero!=2,3"), used: fsdp },
];

/// First release whose files list the layers of each stage, by its number.
const LISTED_STAGES: u32 = 13;

/// Values of a plan's keys that the stack's release has, as [`Limits::values`](meshwright_planner::limits::Limits) has
/// them; of two for one key the first is the narrower.
pub(super) fn values(problem: &Problem) -> impl Iterator<Item = &'static str> {
    let all = [SHAPE, PLAN, ON_HOST, SHARDING].into_iter().flatten();
    all.filter(|feature| release_before(problem, feature.first).is_some()).filter_map(|feature| feature.without)
}

/// Whether files of the stack's release list the layers of each stage.
pub(crate) fn lists_stages(problem: &Problem) -> bool {
    release_before(problem, LISTED_STAGES).is_none()
}

/// First release whose experts may work in a latent space (`moe_latent_size`), by its number. Source: [megatron-lm] core 0.15, 0.16.
const LATENT_EXPERTS: u32 = 16;

/// Whether experts of the stack's release may work in a latent space.
pub(super) fn has_latent_experts(problem: &Problem) -> bool {
    release_before(problem, LATENT_EXPERTS).is_none()
}

/// First obstacle by the features of [`SHAPE`].
pub(super) fn shape(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    obstacle(SHAPE, problem, plan)
}

/// First obstacle by the features of [`PLAN`].
pub(super) fn plan(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    obstacle(PLAN, problem, plan)
}

/// First obstacle by the features of [`ON_HOST`].
pub(super) fn on_host(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    obstacle(ON_HOST, problem, plan)
}

/// First obstacle by the features of [`SHARDING`].
pub(super) fn sharding(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    obstacle(SHARDING, problem, plan)
}

/// Release of the stack if it is before release 0.`first`.
fn release_before(problem: &Problem, first: u32) -> Option<CoreRelease> {
    problem.stack().megatron_core.filter(|release| *release < CoreRelease::new(first))
}

/// First feature that a plan uses and the stack's release lacks, as an obstacle.
fn obstacle(features: &[Feature], problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    features.iter().find_map(|feature| {
        let release = release_before(problem, feature.first)?;
        let Use { setting, nearest } = (feature.used)(problem, plan)?;
        let first = CoreRelease::new(feature.first);
        let why = format!("{} came with Megatron core {first}; {} has {release}", feature.name, problem.stack().name);
        Obstacle::of_plan(setting, why, nearest)
    })
}

fn sequence_parallel(_: &Problem, plan: &Plan) -> Option<Use> {
    let used = plan.layout.tp > 1 && plan.sequence_parallel;
    used.then(|| Use { setting: "sp=on".into(), nearest: Plan { sequence_parallel: false, ..plan.clone() } })
}

/// Modules that a plan recomputes.
const fn recomputed(plan: &Plan) -> Option<Modules> {
    match plan.recompute {
        Recompute::Selective(modules) => Some(modules),
        Recompute::None | Recompute::PerOp | Recompute::EveryOther | Recompute::FirstLayers(_) | Recompute::Full => {
            None
        }
    }
}

fn recomputed_core(_: &Problem, plan: &Plan) -> Option<Use> {
    let setting = format!("recompute={}", plan.recompute);
    recomputed(plan).map(|_| Use { setting, nearest: Plan { recompute: Recompute::Full, ..plan.clone() } })
}

fn modules(_: &Problem, plan: &Plan) -> Option<Use> {
    let core = Modules { core_attn: true, ..Modules::default() };
    let nearest = || Plan { recompute: Recompute::Selective(core), ..plan.clone() };
    recomputed(plan)
        .filter(|modules| *modules != core)
        .map(|_| Use { setting: format!("recompute={}", plan.recompute), nearest: nearest() })
}

fn context(_: &Problem, plan: &Plan) -> Option<Use> {
    let cp = plan.layout.cp;
    (cp > 1).then(|| Use { setting: format!("cp={cp}"), nearest: without_context(plan) })
}

fn context_kind(_: &Problem, plan: &Plan) -> Option<Use> {
    let used = plan.layout.cp > 1 && plan.cp_kind != CpKind::Ring;
    used.then(|| Use {
        setting: format!("cp-kind={}", plan.cp_kind),
        nearest: Plan { cp_kind: CpKind::Ring, ..plan.clone() },
    })
}

fn experts(_: &Problem, plan: &Plan) -> Option<Use> {
    let ep = plan.layout.ep;
    (ep > 1).then(|| Use {
        setting: format!("ep={ep}"),
        nearest: Plan { layout: Layout { ep: 1, ..plan.layout }, ..plan.clone() },
    })
}

fn expert_tensor(problem: &Problem, plan: &Plan) -> Option<Use> {
    let Layout { tp, etp, .. } = plan.layout;
    let used = problem.model().is_moe() && etp != tp;
    used.then(|| Use {
        setting: format!("etp={etp}"),
        nearest: Plan { layout: Layout { etp: tp, ..plan.layout }, ..plan.clone() },
    })
}

fn fused_exchange(_: &Problem, plan: &Plan) -> Option<Use> {
    let used = plan.layout.ep * plan.layout.etp > 1 && plan.dispatcher == Dispatcher::DeepEp;
    used.then(|| Use {
        setting: "dispatcher=deepep".into(),
        nearest: Plan { dispatcher: Dispatcher::AllToAll, ..plan.clone() },
    })
}

fn activations_on_host(_: &Problem, plan: &Plan) -> Option<Use> {
    let share = plan.offload.activations;
    let nearest = || Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan.clone() };
    (share > 0.0).then(|| Use { setting: format!("offload-activations={share}"), nearest: nearest() })
}

fn optimizer_on_host(_: &Problem, plan: &Plan) -> Option<Use> {
    let share = plan.offload.optimizer;
    let nearest = || Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan.clone() };
    (share > 0.0).then(|| Use { setting: format!("offload-optimizer={share}"), nearest: nearest() })
}

fn evenly(plan: &Plan) -> Use {
    Use { setting: format!("split={}", plan.split), nearest: Plan { split: LayerSplit::Even, ..plan.clone() } }
}

fn ends(_: &Problem, plan: &Plan) -> Option<Use> {
    (plan.layout.pp > 1 && matches!(plan.split, LayerSplit::Ends { .. })).then(|| evenly(plan))
}

fn stages(_: &Problem, plan: &Plan) -> Option<Use> {
    let listed = matches!(plan.split, LayerSplit::Stages(_) | LayerSplit::CostBalanced);
    (plan.layout.pp > 1 && listed).then(|| evenly(plan))
}

fn distributed_optimizer(_: &Problem, plan: &Plan) -> Option<Use> {
    let nearest = || Plan { zero: ZeroStage::Zero, shard_group: None, reshard_after_forward: true, ..plan.clone() };
    (plan.zero >= ZeroStage::One).then(|| Use { setting: format!("zero={}", u8::from(plan.zero)), nearest: nearest() })
}

fn data_outermost(_: &Problem, plan: &Plan) -> Option<Use> {
    let used = plan.layout.pp > 1 && plan.layout.dp > 1 && plan.order == RankOrder::DataOutermost;
    used.then(|| Use {
        setting: format!("order={}", plan.order),
        nearest: Plan { order: RankOrder::PipelineOutermost, ..plan.clone() },
    })
}

fn optimizer_instances(_: &Problem, plan: &Plan) -> Option<Use> {
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    Some(Use { setting: format!("shard={group}"), nearest: Plan { shard_group: None, ..plan.clone() } })
}

fn fsdp(_: &Problem, plan: &Plan) -> Option<Use> {
    let nearest = || Plan { zero: ZeroStage::One, shard_group: None, reshard_after_forward: true, ..plan.clone() };
    (plan.zero >= ZeroStage::Two).then(|| Use { setting: format!("zero={}", u8::from(plan.zero)), nearest: nearest() })
}
