//! Limits of `MaxText` as it is written here: one stage, FSDP or copies, tensor, context and expert axes.
//!
//! Source: [maxtext] `src/maxtext/configs/base.yml`, `configs/types.py`, `layers/decoders.py`, commit e591f30c.

use crate::decoder::LlamaDecoder;
use crate::details::Expressible;
use crate::rules::{self, bytes_are, lacking};
use crate::sizes::Sizes;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::{Model, Moe, QkNorm, RopeScalingKind, RouterScore};
use meshwright_engine::plan::{Layout, Modules, Offload, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Optimizer, Recipe};
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of `MaxText`.
pub const LIMITS: Limits = Limits {
    name: "maxtext",
    title: "MaxText",
    family: Family::Jax,
    also: &[],
    values: |_| vec!["pp=1", "etp=1", "cp-kind=allgather", "zero=0,3", "dispatcher=alltoall"],
    names_stages: |_| false,
    own_split: None,
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[
        rules::gathered_context,
        rules::all_to_all_only,
        rules::key_value_heads,
        rules::no_expert_tensor,
        remat_policy,
    ],
    plan: &[offload],
    optimizer_on_host: &[optimizer_on_host],
    sharding: &[rules::no_pipeline, sharding, shard_group, expert_axis, slices, rules::reshard_only],
};

/// Its decoders of Llama 2, Mixtral and Qwen3. Of changes of the rotary frequencies, they have Llama 3.1's own.
const DECODER: LlamaDecoder =
    LlamaDecoder { qkv_bias: false, head_norms: true, latent_attention: false, expressible: EXPRESSIBLE };

/// Settings of a model that its files can express.
const EXPRESSIBLE: Expressible = Expressible {
    rotary_share: false,
    scaling: |scaling, latent| match &scaling.kind {
        RopeScalingKind::Llama3 { low, high } => {
            let own = bytes_are(*low, 1.0) && bytes_are(*high, 4.0) && bytes_are(scaling.factor, 8.0);
            !latent && own && scaling.original_positions == Some(8192)
        }
        RopeScalingKind::Yarn { .. } | RopeScalingKind::Linear | RopeScalingKind::Other(_) => false,
    },
    clamped_quick_gelu: false,
    norms_after: false,
    plain: &[],
    softmax_bias: false,
    raw_sigmoid: false,
    balance_loss: true,
    latent_experts: false,
    indexer: false,
};

/// Its decoders, in all layers with experts or in none; bf16 with AdamW on fp32 weights.
fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let mut found = DECODER.obstacles(problem, sizes);
    if let Some(moe) = &sizes.moe {
        found.extend(of_experts(problem.model(), sizes, moe));
    }
    found.extend(workload(problem));
    found
}

/// Mixtral's and Qwen3's experts: a softmax router, and routed experts only.
fn of_experts(model: &Model, sizes: &Sizes, moe: &Moe) -> Vec<Obstacle> {
    let router = &model.details.router;
    let beside = moe.shared_intermediate > 0 || moe.dense_intermediate > 0 || moe.group_limit > 0 || moe.router_bias;
    let scored = moe.router_score == Some(RouterScore::Sigmoid) || router.scale.is_some();
    let raw = router.normalized == Some(false) && sizes.qk_norm() != QkNorm::PerHead; // Qwen3's decoder keeps raw scores
    lacking(
        model,
        [
            (sizes.has_experts.contains(&false), "dense layers beside those with experts", "all layers have experts"),
            (beside, "shared experts, groups or a router's bias", "these decoders have none"),
            (scored, "scores by a sigmoid, or scaled", "its routers score by a softmax here"),
            (raw, "norm_topk_prob = false", "Mixtral's decoder divides the chosen scores by their sum"),
        ],
    )
}

/// Policy that keeps the tensors of `minimal` on the host.
pub(super) const OFFLOADED: &str = "minimal_offloaded";

/// Recomputations that its policies are, with their names. Source: [maxtext] `layers/decoders.py`, `get_remat_policy`, where `none`
/// recomputes everything.
pub(super) const POLICIES: &[(Recompute, &str)] = &[
    (Recompute::None, "minimal_with_context"),
    (Recompute::PerOp, "minimal"),
    (Recompute::Selective(Modules::ATTENTION_AND_MLP), "save_dot_except_mlp"),
    (Recompute::Full, "full"),
];

fn remat_policy(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if POLICIES.iter().any(|(recompute, _)| *recompute == plan.recompute) {
        return None;
    }
    Obstacle::of_plan(
        format!("recompute={}", plan.recompute),
        "its policies keep outputs of all matmuls, of all but the MLP's, or none",
        Plan { recompute: Recompute::PerOp, ..plan.clone() },
    )
}

fn optimizer_on_host(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let optimizer = plan.offload.optimizer;
    if optimizer <= 0.0 {
        return None;
    }
    let near = Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan.clone() };
    Obstacle::of_plan(
        format!("offload-optimizer={optimizer}"),
        "`optimizer_memory_host_offload` is not written here",
        near,
    )
}

fn offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let activations = plan.offload.activations;
    if activations <= 0.0 || activations >= 1.0 && plan.recompute == Recompute::PerOp {
        return None;
    }
    let near = Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan.clone() };
    let why = "it offloads all outputs of matmuls (recompute=per-op offload-activations=1), or nothing";
    Obstacle::of_plan(format!("offload-activations={activations}"), why, near)
}

/// bf16 GEMMs, fp32 weights, gradients and moments. The plan's bf16 weight is the copy that XLA casts for them.
fn workload(problem: &Problem) -> Vec<Obstacle> {
    let workload = problem.workload();
    let Recipe { weight, gradient, master, state } = workload.recipe;
    let mut found = Vec::new();
    if workload.format != Format::Bf16 {
        let what = format!("--precision {}", workload.format);
        found.push(Obstacle::of_model(what, "its quantized GEMMs are not written here"));
    }
    found.extend(rules::bf16_units(problem));
    let known = [weight, gradient, master, state].into_iter().zip([2.0, 4.0, 4.0, 8.0]).all(|(a, b)| bytes_are(a, b));
    if !known || workload.optimizer != Optimizer::Elementwise {
        let what = format!("{weight} + {gradient} + {master} + {state} B of weight, gradient, master and moments");
        found.push(Obstacle::of_model(what, "it is 2 + 4 + 4 + 8 here: AdamW on fp32 weights"));
    }
    found
}

/// Weights lie along `fsdp`, `context` and `expert` (`logical_axis_rules`): they are copied only where none of them is used.
fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { cp, ep, .. } = plan.layout;
    let alone = plan.layout.dense_replicas() == 1;
    let (why, zero) = match plan.zero {
        ZeroStage::Zero if cp > 1 || ep > 1 => ("weights lie along its context and expert axes too", ZeroStage::Three),
        ZeroStage::One | ZeroStage::Two if alone => {
            ("with one replica there is nothing to shard over", ZeroStage::Zero)
        }
        ZeroStage::One | ZeroStage::Two => ("its FSDP shards weights too", ZeroStage::Three),
        ZeroStage::Three if alone => ("with one replica there is nothing to shard over", ZeroStage::Zero),
        ZeroStage::Zero | ZeroStage::Three => return None,
    };
    Obstacle::of_plan(
        format!("zero={}", u8::from(plan.zero)),
        why,
        Plan { zero, shard_group: None, reshard_after_forward: true, ..plan.clone() },
    )
}

/// A shard group is the whole of the `context` and `expert` axes, and some of `fsdp`.
fn shard_group(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    let Layout { cp, ep, .. } = plan.layout;
    if group.is_multiple_of(cp * ep) {
        return None;
    }
    let why = format!("a shard group holds whole context and expert axes of {cp} and {ep}");
    Obstacle::of_plan(format!("shard={group}"), why, Plan { shard_group: None, ..plan.clone() })
}

/// The `expert` axis is a part of the replicas.
fn expert_axis(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { dp, ep, .. } = plan.layout;
    if dp.is_multiple_of(ep) {
        return None;
    }
    let near = (1..=ep).rev().find(|near| dp.is_multiple_of(*near) && ep.is_multiple_of(*near)).unwrap_or(1);
    let layout = Layout { ep: near, ..plan.layout };
    let why = format!("its expert axis divides the {dp} replicas");
    Obstacle::of_plan(format!("ep={ep}"), why, Plan { layout, ..plan.clone() })
}

/// Axes of the mesh with their sizes, the innermost first: tensor, context, expert, FSDP, data.
pub(crate) fn axes(plan: &Plan) -> [(&'static str, u32); 5] {
    let Layout { tp, cp, ep, dp, .. } = plan.layout;
    let fsdp = if plan.zero == ZeroStage::Zero { 1 } else { (plan.dense_shards() / (cp * ep)).max(1) };
    let tensor = if plan.sequence_parallel { "tensor_sequence" } else { "tensor" };
    [(tensor, tp), ("context", cp), ("expert", ep), ("fsdp", fsdp), ("data", (dp / (ep * fsdp)).max(1))]
}

/// Sizes of the axes inside a slice and across slices; none where they do not fill slices.
pub(crate) fn inside_and_across(plan: &Plan, domain: u32) -> Option<Vec<(&'static str, u32, u32)>> {
    let axes = axes(plan);
    let world: u32 = axes.iter().map(|(_, size)| size).product();
    let mut free = if world > domain { domain } else { world };
    let split = axes.map(|(name, size)| {
        let inside = common_divisor(size, free);
        free /= inside;
        (name, inside, size / inside)
    });
    (free == 1).then(|| split.to_vec())
}

const fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Inside a scale-up domain the axes multiply to its devices.
fn slices(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let domain = problem.cluster().scale_up.gpus;
    if inside_and_across(plan, domain).is_some() {
        return None;
    }
    let Layout { tp, cp, dp, .. } = plan.layout;
    let layout = Layout { tp: 1, cp: 1, ep: 1, dp: dp * tp * cp, ..plan.layout };
    let near = Plan { layout, sequence_parallel: false, zero: ZeroStage::Three, shard_group: None, ..plan.clone() };
    let why = format!("its axes must multiply to the {domain} devices of a slice");
    Obstacle::of_plan(format!("tp={tp} cp={cp} ep={}", plan.layout.ep), why, near)
}
