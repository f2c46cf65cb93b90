//! Limits of llm-foundry: MPT decoders under PyTorch's FSDP, with copies of shard groups, or DDP.
//!
//! Source: [llm-foundry-code] `models/mpt/`, `models/layers/`, commit 8c8dd48f; [composer] `core/state.py`,
//! `distributed/dist_strategy.py`, `utils/parallelism.py`, release 0.32.1.

use crate::details::{Expressible, inexpressible};
use crate::rules::{self, bytes_are, lacking, lacks};
use crate::sizes::{Biases, SharedMixer, Sizes};
use meshwright_engine::model::{
    Activation, Attention, Model, Moe, Norm, OutputGate, RopeScalingKind, RouterScore, Span,
};
use meshwright_engine::plan::{Offload, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of llm-foundry.
pub const LIMITS: Limits = Limits {
    name: "llm-foundry",
    title: "llm-foundry",
    family: Family::Fsdp,
    also: &[],
    values: |_| {
        vec!["tp=1", "cp=1", "pp=1", "etp=1", "sp=off", "dispatcher=alltoall", "recompute=none,full", "zero=0,3"]
    },
    names_stages: |_| false, // it has no pipeline
    own_split: None,
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[no_tensor, no_context, rules::no_expert_tensor, rules::all_to_all_only, rules::recompute_all_or_none],
    plan: &[recompute, offload],
    optimizer_on_host: &[optimizer_on_host],
    sharding: &[rules::no_pipeline, sharding, shard_group, experts],
};

/// Keys of `MPTConfig` for settings of a model: scaling of frequencies is that of `rope_hf_config`.
const EXPRESSIBLE: Expressible = Expressible {
    rotary_share: false,
    scaling: |scaling, latent| match &scaling.kind {
        RopeScalingKind::Llama3 { .. } => !latent && scaling.original_positions.is_some(),
        RopeScalingKind::Linear => !latent,
        RopeScalingKind::Yarn { .. } | RopeScalingKind::Other(_) => false,
    },
    clamped_quick_gelu: false,
    norms_after: false,
    plain: &[Activation::Gelu, Activation::GeluTanh, Activation::Silu],
    softmax_bias: false,
    raw_sigmoid: false,
    balance_loss: true, // MegaBlocks' `moe_loss_weight`
    latent_experts: false,
    indexer: false,
};

/// Field of Hugging Face's configuration that caps queries, keys and values, and key of `attn_config`.
pub(super) const CAP: &str = "clip_qkv";

fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let model = problem.model();
    let mut found = Vec::new();
    if let Some(moe) = &sizes.moe {
        found.extend(of_experts(problem, sizes, moe));
    }
    match &sizes.mixer {
        SharedMixer::Mla(_) => {
            found.push(lacks(model, "latent attention", "its attention is multi-head or grouped"));
        }
        SharedMixer::Attention(attention) => found.extend(of_attention(model, attention, sizes)),
    }
    found.extend(end_obstacles(model, sizes));
    let lora = problem.workload().adaptation.is_lora();
    found.extend(lacking(model, [(lora, "LoRA", "an MPT trains all weights")]));
    let mut plain = model.clone();
    plain.details.others.retain(|(name, _)| name != CAP);
    found.extend(inexpressible(&plain, sizes, &EXPRESSIBLE));
    found.extend(rules::plain_mixed_precision(problem, &[4.0]));
    found
}

/// MegaBlocks' experts that drop no token (`mb_dmoe`), in every block.
///
/// Source: [llm-foundry-code] `models/layers/ffn.py` (`build_mb_dmoe`), `models/utils/config_moe_args.py`; [megablocks]
/// `layers/{arguments,router,mlp,glu}.py`, commit 78eea65f.
fn of_experts(problem: &Problem, sizes: &Sizes, moe: &Moe) -> Vec<Obstacle> {
    let model = problem.model();
    let router = &model.details.router;
    let scaled = router.scale.is_some_and(|scale| !bytes_are(scale, 1.0));
    lacking(
        model,
        [
            (sizes.dense.is_some(), "experts in some layers", "`ffn_config` is that of all layers here"),
            (
                moe.bias || moe.router_bias || router.bias == Some(true),
                "biases of experts or of the router",
                "its router has none, and its experts one for all of them",
            ),
            (
                moe.shared_intermediate > 0 || moe.shared_gate || moe.dense_intermediate > 0,
                "shared experts, or a dense part beside the experts",
                "they are not written here",
            ),
            (moe.group_limit > 0, "routing that is limited to groups", "its router has no groups"),
            (scaled, "scaled scores of experts", "its router does not scale them"),
            (
                moe.router_score == Some(RouterScore::Sigmoid),
                "scores of experts by a sigmoid",
                "its router has a softmax",
            ),
            (problem.workload().drops_tokens, "--drop-tokens", "experts are written without a capacity (`mb_dmoe`)"),
        ],
    )
}

/// `models/layers/attention.py` (`GroupedQueryAttention`).
fn of_attention(model: &Model, attention: &Attention, sizes: &Sizes) -> Vec<Obstacle> {
    let Attention { heads, head_dim, sinks, output_gate, keys_are_values, .. } = attention;
    let windows = sizes.spans.iter().any(|span| *span != sizes.spans[0]) || matches!(sizes.spans[0], Span::Chunk(_));
    let rotary = sizes.rope[0];
    let rows: [(bool, String, &str); _] = [
        (heads * head_dim != model.hidden, format!("head_dim = {head_dim}"), "its heads are d_model / n_heads wide"),
        (
            *sinks || *output_gate != OutputGate::None || *keys_are_values,
            "attention sinks, gates or shared values".into(),
            "it has none",
        ),
        (windows, "windows in some layers, or chunks".into(), "`sliding_window_size` is that of all layers here"),
        (
            sizes.rope.iter().any(|rope| *rope != rotary),
            "rotary positions in some layers".into(),
            "`rope` is that of all layers here",
        ),
        (
            rotary && model.learned_positions > 0,
            "positions that are rotary and learned".into(),
            "`rope` switches `learned_pos_emb` off",
        ),
        (
            !rotary && model.learned_positions == 0,
            "positions that are neither rotary nor learned".into(),
            "they would be `alibi` or none, and the model does not say which",
        ),
    ];
    lacking(model, rows)
}

/// Obstacles of biases, norms, embedding and head: `no_bias` is for all but the queries, keys and values.
fn end_obstacles(model: &Model, sizes: &Sizes) -> Vec<Obstacle> {
    let Biases { out: of_out, mlp: of_mlp, .. } = sizes.biases();
    let theta = model.details.rope_theta.unwrap_or_default();
    let rows: [(bool, String, &str); _] = [
        (model.embedding_norm, "a norm on the embedding".into(), "it has none"),
        (model.head_bias, "a bias on the head".into(), "it has none"),
        (model.mtp_depth > 0, "multi-token prediction".into(), "it has none"),
        (model.norm == Norm::LayerPlain, "norms without parameters".into(), "its norms have weights"),
        (
            of_out != of_mlp,
            if of_out {
                "a bias of the attention's output, and none of the MLP".into()
            } else {
                "biases of the MLP, and none of the attention's output".into()
            },
            "`no_bias` is for both",
        ),
        (
            model.norm == Norm::Layer && !of_out || model.norm == Norm::LayerNoBias && of_out,
            if of_out {
                "biases of linear layers, and none of norms".into()
            } else {
                "biases of norms, and none of linear layers".into()
            },
            "`no_bias` is for both",
        ),
        (theta.fract() != 0.0, format!("rope_theta = {theta}"), "`rope_theta` is a whole number"),
    ];
    lacking(model, rows)
}

/// Its one strategy of tensor parallelism, `ffn`, leaves attention whole.
fn no_tensor(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.tp == 1 {
        return None;
    }
    let why = "its one strategy of tensor parallelism splits MLPs alone";
    Obstacle::of_plan(format!("tp={}", plan.layout.tp), why, rules::without_tensor(plan))
}

/// `MPTConfig` refuses `seq_parallel_world_size`.
fn no_context(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(plan, &[], "it has no context parallelism")
}

/// Recomputation is a key of `fsdp_config`, without which Composer wraps by DDP.
fn recompute(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.recompute != Recompute::Full || plan.zero == ZeroStage::Three {
        return None;
    }
    let near = if plan.layout.dense_replicas() > 1 {
        Plan { zero: ZeroStage::Three, ..plan.clone() }
    } else {
        Plan { recompute: Recompute::None, ..plan.clone() }
    };
    Obstacle::of_plan("recompute=full", "only FSDP recomputes (`fsdp_config`)", near)
}

/// `cpu_offload` is refused.
fn optimizer_on_host(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let optimizer = plan.offload.optimizer;
    if optimizer <= 0.0 {
        return None;
    }
    let near = Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan.clone() };
    Obstacle::of_plan(format!("offload-optimizer={optimizer}"), "Composer refuses `cpu_offload`", near)
}

/// `activation_cpu_offload` keeps the activations of blocks on the host until backward.
fn offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let activations = plan.offload.activations;
    let share = |activations| Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
    if activations > 0.0 && plan.zero != ZeroStage::Three {
        let why = "only FSDP puts activations on the host (`fsdp_config`)";
        return Obstacle::of_plan(format!("offload-activations={activations}"), why, share(0.0));
    }
    if bytes_are(activations, 0.0) || bytes_are(activations, 1.0) {
        return None;
    }
    let why = "all that blocks keep waits on the host, or none";
    Obstacle::of_plan(format!("offload-activations={activations}"), why, share(1.0))
}

/// FSDP is ZeRO 3; without it, DDP.
fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let what = || format!("zero={}", u8::from(plan.zero));
    if plan.zero != ZeroStage::Zero && plan.layout.dense_replicas() == 1 {
        let near = Plan { zero: ZeroStage::Zero, ..plan.clone() };
        return Obstacle::of_plan(what(), "on one GPU llm-foundry trains without FSDP", near);
    }
    let sharded = Plan { zero: ZeroStage::Three, ..plan.clone() };
    match plan.zero {
        ZeroStage::Zero | ZeroStage::Three => None,
        ZeroStage::One => Obstacle::of_plan(what(), "FSDP shards weights too: DDP or ZeRO 3", sharded),
        ZeroStage::Two => {
            let near = Plan { reshard_after_forward: false, ..sharded };
            Obstacle::of_plan(what(), "FSDP shards weights too, and may keep them until backward", near)
        }
    }
}

/// Groups of one rank are copies, which are DDP's.
fn shard_group(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero != ZeroStage::Three || plan.shard_group != Some(1) {
        return None;
    }
    Obstacle::of_plan("shard=1", "a group of one GPU shards nothing", Plan { shard_group: None, ..plan.clone() })
}

/// `moe_world_size`: experts over as many ranks, and each shard of FSDP over all ranks with the same ones.
///
/// Source: [llm-foundry-code] `models/utils/config_moe_args.py` (`get_megablocks_device_mesh`: "must be length 1"),
/// `models/layers/ffn.py` (`set_ffn_device_mesh`: "HSDP + MoE is not supported").
fn experts(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let what = || format!("ep={}", plan.layout.ep);
    if plan.layout.ep == 1 {
        return None;
    }
    if plan.zero != ZeroStage::Three {
        let why = "DDP would average the experts of unlike ranks";
        return Obstacle::of_plan(what(), why, Plan { zero: ZeroStage::Three, ..plan.clone() });
    }
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    let why = "experts over several ranks (`moe_world_size`) beside copies are refused";
    Obstacle::of_plan(format!("shard={group}"), why, Plan { shard_group: None, ..plan.clone() })
}
