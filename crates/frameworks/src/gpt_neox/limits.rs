//! Limits of GPT-NeoX: Megatron's tensor and sequence parallelism, DeepSpeed's pipeline engine and its ZeRO.
//!
//! Source: [gpt-neox] `megatron/neox_arguments/arguments.py`, `megatron/training.py` (`get_model`, `get_optimizer`),
//! `megatron/model/`, commit ea7aefd8; [deepspeed] `runtime/engine.py`, `runtime/pipe/`, of its fork of release 0.16.5.

use crate::details::{Expressible, inexpressible};
use crate::rules::{self, bytes_are, lacking, lacks};
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::model::{Activation, Attention, Model, Norm, OutputGate, QkNorm, Span};
use meshwright_engine::plan::{Offload, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::split::layers::{layers_of_chunks, plainest};
use meshwright_engine::stack::Family;
use meshwright_engine::workload::Half;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of GPT-NeoX.
pub const LIMITS: Limits = Limits {
    name: "gpt-neox",
    title: "GPT-NeoX",
    family: Family::MegatronDeepspeed,
    also: &[],
    values: |_| vec!["cp=1", "ep=1", "etp=1", "recompute=none,full", "order=tp-cp-ep-dp-pp"],
    names_stages: |_| false, // `pipe_partition_method` is a rule, not a list
    own_split: Some(own_split),
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[no_context, rules::key_value_heads, rules::no_experts, rules::recompute_all_or_none],
    plan: &[schedule, split, offload],
    optimizer_on_host: &[optimizer_on_host],
    sharding: &[sharding, replicated, gradients, rules::no_shard_group, rules::pipeline_outermost],
};

/// Field of Hugging Face's configuration that says that attention and MLP are added to one input: `gpt_j_residual` here.
pub(super) const PARALLEL: &str = "use_parallel_residual";

/// Its keys for settings of a model. `GELU` by the hyperbolic tangent is that of `bias_gelu_fusion`.
///
/// Source: [gpt-neox] `megatron/model/activations.py`, `positional_embeddings.py`.
const EXPRESSIBLE: Expressible = Expressible {
    rotary_share: true,
    scaling: |_, _| false,
    clamped_quick_gelu: false,
    norms_after: false,
    plain: &[Activation::Gelu, Activation::GeluTanh, Activation::Silu],
    softmax_bias: false,
    raw_sigmoid: false,
    balance_loss: false,
    latent_experts: false,
    indexer: false,
};

/// The stages that `pipe_partition_method: "type:transformer|mlp"`, its default, cuts: the first ones have one layer more where the
/// layers do not divide. None where a stage would have no layer.
///
/// Source: [deepspeed] `runtime/utils.py` (`partition_balanced`) over weights of 1 for layers and 0 for all else.
pub(crate) fn own_split(model: &Model, pp: u32) -> Option<LayerSplit> {
    let (layers, more) = (model.layers() / pp.max(1), model.layers() % pp.max(1));
    let counts: Vec<u32> = (0..pp).map(|stage| layers + u32::from(stage < more)).collect();
    let last = counts.len().checked_sub(1).filter(|_| layers > 0)?;
    Some(plainest(&counts, pp, 0, last))
}

fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let model = problem.model();
    let mut found = feed_forward(model, sizes);
    match &sizes.mixer {
        SharedMixer::Mla(_) => found.push(lacks(model, "latent attention", "its attention is multi-head or grouped")),
        SharedMixer::Attention(attention) => found.extend(of_attention(model, attention, sizes)),
    }
    found.extend(end_obstacles(model));
    let lora = problem.workload().adaptation.is_lora();
    found.extend(lacking(model, [(lora, "LoRA", "it trains all weights")]));
    let mut plain = model.clone();
    plain.details.others.retain(|(name, _)| name != PARALLEL);
    found.extend(inexpressible(&plain, sizes, &EXPRESSIBLE));
    found.extend(rules::plain_mixed_precision(problem, &[2.0, 4.0]));
    found
}

/// `model/transformer.py` (`ParallelMLP`), `model/moe.py` (`ParallelDroplessMoE`).
fn feed_forward(model: &Model, sizes: &Sizes) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if let Some(moe) = &sizes.moe {
        let why = if moe.gated {
            "its experts are two matrices without a gate (`ParallelGroupedMLP`)"
        } else {
            "its experts are spread over the ranks of tensor parallelism, which no plan says"
        };
        found.push(lacks(model, &format!("num_experts = {}", moe.experts), why));
    }
    if sizes.dense.as_ref().is_some_and(|mlp| !mlp.gated && !mlp.bias) {
        found.push(lacks(model, "mlp_bias = false", "an MLP without a gate adds a bias (`use_bias_in_mlp`)"));
    }
    found
}

/// `model/transformer.py` (`ParallelSelfAttention`).
fn of_attention(model: &Model, attention: &Attention, sizes: &Sizes) -> Vec<Obstacle> {
    let Attention { heads, head_dim, qkv_bias, out_bias, qk_norm, sinks, output_gate, keys_are_values, .. } = attention;
    let windows = sizes.spans.iter().any(|span| *span != sizes.spans[0]) || matches!(sizes.spans[0], Span::Chunk(_));
    let rows: [(bool, String, &str); _] = [
        (heads * head_dim != model.hidden, format!("head_dim = {head_dim}"), "its heads are hidden_size / heads wide"),
        (
            *qk_norm != QkNorm::None,
            "norms on queries and keys".into(),
            "`use_qk_layernorm` is one norm for both, with a weight for every head",
        ),
        (
            *sinks || *output_gate != OutputGate::None || *keys_are_values,
            "attention sinks, gates or shared values".into(),
            "it has none",
        ),
        (
            qkv_bias != out_bias,
            if *qkv_bias {
                "biases of queries, keys and values, and none of the output".into()
            } else {
                "a bias of the output, and none of queries, keys and values".into()
            },
            "`use_bias_in_attn_linear` is for all four",
        ),
        (windows, "windows in some layers, or chunks".into(), "`sliding_window_width` is that of all layers"),
        (
            sizes.rope.iter().any(|rope| *rope != sizes.rope[0]),
            "rotary positions in some layers".into(),
            "`pos_emb` is that of all layers",
        ),
        (
            !sizes.rope[0] && model.learned_positions == 0,
            "positions that are neither rotary nor learned".into(),
            "`pos_emb` would be `alibi` or `none`, and the model does not say which",
        ),
    ];
    lacking(model, rows)
}

/// Obstacles of embedding, head and norms.
fn end_obstacles(model: &Model) -> Vec<Obstacle> {
    let theta = model.details.rope_theta.unwrap_or_default();
    let rows: [(bool, String, &str); _] = [
        (model.embedding_norm, "a norm on the embedding".into(), "it has none"),
        (model.head_bias, "a bias on the head".into(), "it has none"),
        (model.mtp_depth > 0, "multi-token prediction".into(), "it has none"),
        (model.norm == Norm::LayerNoBias, "LayerNorm without a bias".into(), "its LayerNorm is PyTorch's, with a bias"),
        (theta.fract() != 0.0, format!("rope_theta = {theta}"), "`rotary_emb_base` is a whole number"),
    ];
    lacking(model, rows)
}

/// `NeoXArgsParallelism` has no such size.
fn no_context(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(plan, &[], "it has no context parallelism")
}

/// [deepspeed] `runtime/pipe/schedule.py`: `TrainSchedule` is 1F1B.
fn schedule(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 || plan.schedule == Schedule::OneFOneB {
        return None;
    }
    let near = Plan { schedule: Schedule::OneFOneB, ..plan.clone() };
    Obstacle::of_plan(format!("schedule={}", plan.schedule.name()), "DeepSpeed's pipeline engine runs 1F1B", near)
}

/// Stages are cut by [`own_split`], which no list of layers changes.
fn split(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let (model, pp) = (problem.model(), plan.layout.pp);
    if pp == 1 {
        return None;
    }
    let Some(own) = own_split(model, pp) else {
        return Obstacle::of_plan(format!("pp={pp}"), "a stage would have no layer", rules::without_pipeline(plan));
    };
    let layers = |split: &LayerSplit| layers_of_chunks(split, model.layers(), pp, pp, 0.0);
    if plan.split != LayerSplit::CostBalanced && layers(&plan.split) == layers(&own) {
        return None;
    }
    let why = "it cuts stages of as many layers each, the first with one more where they do not divide";
    Obstacle::of_plan(format!("split={}", plan.split), why, Plan { split: own, ..*plan })
}

/// `zero_optimization.offload_optimizer` beside `CPU_Adam`.
fn optimizer_on_host(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let optimizer = plan.offload.optimizer;
    if optimizer > 0.0 && plan.layout.pp > 1 {
        let near = Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan.clone() };
        return Obstacle::of_plan(
            format!("offload-optimizer={optimizer}"),
            "no configuration of its has that beside a pipeline",
            near,
        );
    }
    if !rules::is_whole(optimizer) {
        let near = Plan { offload: Offload { optimizer: 1.0, ..plan.offload }, ..plan.clone() };
        return Obstacle::of_plan(
            format!("offload-optimizer={optimizer}"),
            "all of it waits on the host, or none",
            near,
        );
    }
    if optimizer > 0.0 && plan.zero == ZeroStage::Zero {
        let near = Plan { zero: ZeroStage::One, ..plan.clone() };
        return Obstacle::of_plan(format!("offload-optimizer={optimizer}"), "it needs ZeRO 1 or more", near);
    }
    None
}

/// `checkpoint_in_cpu` keeps checkpoints only.
fn offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_checkpoints_on_host(plan, "checkpoint_in_cpu")
}

/// `training.py` (`get_model`): ZeRO 2 and 3 exclude a pipeline and tensor parallelism.
fn sharding(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero > ZeroStage::One && (plan.layout.pp > 1 || plan.layout.tp > 1) {
        let near = Plan { zero: ZeroStage::One, reshard_after_forward: true, ..plan.clone() };
        let why = "ZeRO 1 is the most beside tensor parallelism or a pipeline";
        return Obstacle::of_plan(format!("zero={}", u8::from(plan.zero)), why, near);
    }
    rules::reshard_only(problem, plan)
}

/// [deepspeed] `runtime/engine.py` (`_do_optimizer_sanity_check`): without ZeRO, bf16 takes the optimizer that shards
/// its states over the replicas, or stops; fp16 adds gradients in fp16.
fn replicated(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero != ZeroStage::Zero {
        return None;
    }
    let wide = bytes_are(problem.workload().recipe.gradient, 4.0);
    let why = match problem.workload().half {
        Half::Bf16 if wide && plan.layout.dense_replicas() == 1 => return None,
        Half::Bf16 if wide => "with bf16 its optimizer shards its states like ZeRO 1",
        Half::Bf16 => "gradients of bf16 are added in bf16 with ZeRO alone",
        Half::Fp16 if wide => "gradients of fp16 are added in fp32 with ZeRO alone",
        Half::Fp16 => return None,
    };
    Obstacle::of_plan("zero=0", why, Plan { zero: ZeroStage::One, ..plan.clone() })
}

/// `arguments.py` (`calculate_derived`) warns that a pipeline breaks with bf16, ZeRO 1 and gradients in bf16.
fn gradients(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let workload = problem.workload();
    let narrow = workload.half == Half::Bf16 && bytes_are(workload.recipe.gradient, 2.0);
    if !narrow || plan.layout.pp == 1 {
        return None;
    }
    let why =
        "it warns that gradients in bf16 break beside a pipeline and ZeRO 1: --optimizer megatron has them in fp32";
    Obstacle::of_plan(format!("pp={}", plan.layout.pp), why, rules::without_pipeline(plan))
}
