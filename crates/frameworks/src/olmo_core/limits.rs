//! Limits of OLMo-core.
//!
//! Source: [olmo-core] `nn/transformer/{config,model,block}.py`, `nn/attention/`, `nn/moe/`, `train/train_module/transformer/`,
//! `distributed/parallel/`, release 2.5.0.

use crate::details::{Expressible, inexpressible};
use crate::rules::{self, bytes_are, lacking, lacks};
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::model::{Attention, Model, Moe, OutputGate, RopeScalingKind, Span};
use meshwright_engine::plan::{CpKind, Layout, Modules, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Optimizer, Recipe};
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of OLMo-core.
pub const LIMITS: Limits = Limits {
    name: "olmo-core",
    title: "OLMo-core",
    family: Family::Torchtitan,
    also: &[],
    values: |_| {
        vec![
            "etp=1",
            "cp-kind=p2p,a2a",
            "dispatcher=alltoall",
            "recompute=none,mlp,per-op,every-other,full",
            "zero=0,3",
            "order=tp-cp-ep-dp-pp",
        ]
    },
    names_stages: |_| true, // `split_points`
    own_split: None,
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[
        sequence_parallel,
        rules::key_value_heads,
        rules::no_expert_tensor,
        rules::all_to_all_only,
        context,
        parts,
        narrow_tensors,
        fused_loss,
        recompute,
    ],
    plan: &[tied_embeddings, schedule, rules::enough_micro_batches, rules::no_offload],
    optimizer_on_host: &[],
    sharding: &[tensor_in_pipeline, sharding, shard_group, expert_grid, reshard, rules::pipeline_outermost],
};

/// Its fields for settings of a model. Its stepwise scaling of frequencies gives the factors of Llama 3 as shares of the spectrum.
const EXPRESSIBLE: Expressible = Expressible {
    rotary_share: true,
    scaling: |scaling, latent| match &scaling.kind {
        RopeScalingKind::Llama3 { low, high } => {
            !latent && *low >= 1.0 && *high > *low && scaling.original_positions.is_some()
        }
        RopeScalingKind::Linear => !latent,
        // Its scale of scores follows from the factor, its betas are whole numbers, and its ramp is rounded.
        RopeScalingKind::Yarn { beta_fast, beta_slow, mscale, mscale_all_dim, truncate } => {
            !latent
                && *truncate
                && beta_fast.fract() == 0.0
                && beta_slow.fract() == 0.0
                && mscale.is_none()
                && mscale_all_dim.is_none()
                && scaling.original_positions.is_some()
        }
        RopeScalingKind::Other(_) => false,
    },
    clamped_quick_gelu: false,
    norms_after: true,
    plain: &[],
    softmax_bias: true,
    raw_sigmoid: true,
    balance_loss: true,
    latent_experts: false,
    indexer: false,
};

/// Its decoders: grouped-query attention with rotary positions or none, gated MLPs, or experts.
fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let model = problem.model();
    let mut found = Vec::new();
    match &sizes.mixer {
        SharedMixer::Mla(_) => found.push(lacks(model, "latent attention", "its attention is multi-head or grouped")),
        SharedMixer::Attention(attention) => found.extend(of_attention(model, attention, sizes)),
    }
    if let Some(moe) = &sizes.moe {
        found.extend(of_experts(problem, moe));
    }
    let theta = model.details.rope_theta.unwrap_or_default();
    let around = [
        (!sizes.gated(), "an MLP without a gate", "its MLPs are gated"),
        (model.learned_positions > 0, "learned positions", "positions are rotary or none"),
        (model.mtp_depth > 0, "multi-token prediction", "it has none: plan with --set model.mtp_depth=0"),
        (model.head_bias && model.tied_embeddings, "a bias on a tied head", "a tied head has none"),
        (theta.fract() != 0.0, "a rotary base that is no whole number", "`RoPEConfig.theta` is a whole number"),
        (problem.workload().adaptation.is_lora(), "LoRA", "it trains all weights"),
    ];
    found.extend(lacking(model, around));
    found.extend(inexpressible(model, sizes, &EXPRESSIBLE));
    found.extend(rules::no_float16(problem));
    found.extend(formats(problem, sizes.moe.is_some()));
    found
}

/// `AttentionConfig`; kernels are flash-attn's, of version 2 or 3, or Transformer Engine's.
fn of_attention(model: &Model, attention: &Attention, sizes: &Sizes) -> Vec<Obstacle> {
    let Attention { qkv_bias, out_bias, sinks, output_gate, keys_are_values, .. } = attention;
    let chunks = sizes.spans.iter().any(|span| matches!(span, Span::Chunk(_)));
    lacking(
        model,
        [
            (
                qkv_bias != out_bias,
                "biases of queries, keys and values alone",
                "`AttentionConfig.bias` is for all four",
            ),
            (*sinks || *keys_are_values, "attention sinks or shared values", "it has none"),
            (*output_gate != OutputGate::None, "a gate on attention", "it is not written here"),
            (chunks, "chunks", "its windows slide"),
        ],
    )
}

/// `MoEConfig`; what its shared MLP gives is averaged with the experts' results.
fn of_experts(problem: &Problem, moe: &Moe) -> Vec<Obstacle> {
    let model = problem.model();
    let router = &model.details.router;
    let scaled = router.scale.is_some_and(|scale| !bytes_are(scale, 1.0));
    let bias = moe.router_bias && router.bias != Some(true);
    lacking(
        model,
        [
            (moe.bias || bias, "biases of experts or of the router's projection", "they have none"),
            (
                moe.shared_intermediate > 0 || moe.shared_gate,
                "shared experts",
                "its shared MLP is averaged with the experts, not added to them",
            ),
            (moe.dense_intermediate > 0, "a dense part beside the experts", "it is not written here"),
            (moe.group_limit > 0, "routing that is limited to groups", "its router has no groups"),
            (scaled, "scaled scores of experts", "its router does not scale them"),
            (
                problem.workload().drops_tokens,
                "--drop-tokens",
                "experts are written without a capacity (`MoEType.dropless`)",
            ),
        ],
    )
}

/// bf16, or 8 bits with one scale a tensor or by blocks of 32 in all linear layers but the head; experts' weights are
/// no linear layers.
fn formats(problem: &Problem, has_experts: bool) -> Vec<Obstacle> {
    let workload = problem.workload();
    let what = format!("--precision {}", workload.format);
    let mut found = Vec::new();
    match workload.format {
        Format::Fp8 | Format::Mxfp8 if has_experts => {
            found.push(Obstacle::of_model(what, "`Float8Config` leaves experts in bf16"));
        }
        Format::Bf16 | Format::Fp8 | Format::Mxfp8 => {}
        Format::Fp8Block | Format::Nvfp4 => {
            found.push(Obstacle::of_model(what, "`Float8Config` scales a tensor, or blocks of 32 (mxfp8)"));
        }
    }
    found.extend(rules::bf16_units(problem));
    let Recipe { weight, gradient, master, state } = workload.recipe;
    let known = [weight, gradient, master, state].into_iter().zip([2.0, 4.0, 4.0, 8.0]).all(|(a, b)| bytes_are(a, b));
    if !known || workload.optimizer != Optimizer::Elementwise {
        found.push(Obstacle::of_model(
            format!("{weight} + {gradient} + {master} + {state} B of weight, gradient, master and moments"),
            "it is 2 + 4 + 4 + 8: bf16 with Adam in fp32",
        ));
    }
    let attention = problem.stack().attention;
    if matches!(attention, AttentionKernel::Unfused | AttentionKernel::Fa1) {
        found.push(Obstacle::of_model(
            "an attention kernel before flash-attn 2",
            "its kernels are flash-attn 2 and 3 and cuDNN's: --set stack.attention=fa2",
        ));
    }
    found
}

/// `Transformer.apply_tp`: norms and residuals are split along the sequence.
fn sequence_parallel(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.tp == 1 || plan.sequence_parallel {
        return None;
    }
    let near = Plan { sequence_parallel: true, ..plan.clone() };
    Obstacle::of_plan("sp=off", "its tensor parallelism splits norms and residuals along the sequence", near)
}

/// `TransformerContextParallelConfig`: a ring of zig-zag parts, by flash-attn 2 and without windows, or heads for tokens.
fn context(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, .. } = plan.layout;
    if cp == 1 {
        return None;
    }
    let model = problem.model();
    let kv_heads = rules::attentions(model).next()?.kv_heads;
    let windows = rules::attentions(model).any(|attention| attention.span != Span::Full);
    let ring = !windows && problem.stack().attention == AttentionKernel::Fa2;
    let heads = (kv_heads / tp).is_multiple_of(cp) && kv_heads >= tp * cp;
    let why = match plan.cp_kind {
        CpKind::Ring if ring => return None,
        CpKind::AllToAll if heads => return None,
        CpKind::Ring => "its ring is flash-attn 2's, without windows",
        CpKind::AllToAll => "each rank takes whole key-value heads",
        CpKind::AllGather | CpKind::Hierarchical => "it passes keys and values round a ring, or exchanges heads",
    };
    let near = match (ring, heads) {
        (true, _) => Plan { cp_kind: CpKind::Ring, ..plan.clone() },
        (false, true) => Plan { cp_kind: CpKind::AllToAll, ..plan.clone() },
        (false, false) => rules::without_context(plan),
    };
    Obstacle::of_plan(format!("cp-kind={}", plan.cp_kind), why, near)
}

/// `Float8ColwiseParallel` of torchao, which takes linear layers with one scale a tensor.
fn narrow_tensors(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.tp == 1 || problem.workload().format != Format::Mxfp8 {
        return None;
    }
    let why = "its tensor parallelism does not split layers in mxfp8";
    Obstacle::of_plan(format!("tp={}", plan.layout.tp), why, rules::without_tensor(plan))
}

/// Sequences split in equal parts over tensor parallelism, and over a ring in two parts a rank.
fn parts(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, .. } = plan.layout;
    let seq_len = problem.workload().seq_len;
    let of_ring = if cp > 1 && plan.cp_kind == CpKind::Ring { 2 * cp } else { cp };
    if !seq_len.is_multiple_of(of_ring) {
        let why = format!("sequences of {seq_len} are not split into {of_ring} equal parts");
        return Obstacle::of_plan(format!("cp={cp}"), why, rules::without_context(plan));
    }
    if (seq_len / cp).is_multiple_of(tp) {
        return None;
    }
    let why = format!("{} tokens are not split into {tp} equal parts", seq_len / cp);
    Obstacle::of_plan(format!("tp={tp}"), why, rules::without_tensor(plan))
}

/// `LMHead.apply_tp`: the loss that never holds all logits (`LMLossImplementation.fused_linear`) has the whole head on each rank.
fn fused_loss(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if problem.stack().memory.loss_chunks <= 1 || plan.layout.tp == 1 {
        return None;
    }
    let why = "its loss by parts keeps the head whole on each rank of tensor parallelism";
    Obstacle::of_plan(format!("tp={}", plan.layout.tp), why, rules::without_tensor(plan))
}

/// `TransformerActivationCheckpointingMode`; blocks with experts are not wrapped.
fn recompute(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let mlp = Modules { mlp: true, ..Modules::default() };
    let (near, why) = match plan.recompute {
        Recompute::None => return None,
        Recompute::Selective(modules) if modules == Modules::default() || modules == mlp => return None,
        Recompute::PerOp | Recompute::EveryOther if !problem.model().is_moe() && plan.layout.pp > 1 => {
            (Recompute::Full, "in pipelines it recomputes all blocks, or MLPs")
        }
        Recompute::PerOp | Recompute::EveryOther | Recompute::Full if !problem.model().is_moe() => return None,
        Recompute::PerOp | Recompute::EveryOther | Recompute::Full => {
            (Recompute::None, "it does not recompute blocks with experts")
        }
        Recompute::FirstLayers(_) if !problem.model().is_moe() => {
            (Recompute::Full, "it recomputes all blocks, every second one, every second GEMM, or MLPs")
        }
        Recompute::Selective(_) | Recompute::FirstLayers(_) => {
            (Recompute::None, "of a block's parts it recomputes MLPs alone")
        }
    };
    Obstacle::of_plan(format!("recompute={}", plan.recompute), why, Plan { recompute: near, ..plan.clone() })
}

/// `TransformerPipelineParallelConfig.split_model`.
fn tied_embeddings(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 || !problem.model().tied_embeddings {
        return None;
    }
    let why = "its pipelines do not split tied embeddings";
    Obstacle::of_plan(format!("pp={}", plan.layout.pp), why, rules::without_pipeline(plan))
}

/// `PipelineScheduleType`, whose zero-bubble schedules do not run compiled blocks.
fn schedule(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 {
        return None;
    }
    let compiled = problem.stack().transformer_engine;
    let (near, why) = match plan.schedule {
        Schedule::OneFOneB | Schedule::GPipe | Schedule::Interleaved { .. } | Schedule::LoopedBfs { .. } => {
            return None;
        }
        Schedule::ZbV if !compiled => return None,
        Schedule::ZbV => {
            (Schedule::Interleaved { virtual_stages: 2 }, "its zero-bubble schedules run without torch.compile")
        }
        Schedule::Naive => (Schedule::GPipe, "it has GPipe"),
        Schedule::ZbH1 | Schedule::ZbH2 | Schedule::DualPipe | Schedule::DualPipeV => (
            Schedule::Interleaved { virtual_stages: 2 },
            "its schedules are 1F1B, Interleaved1F1B, GPipe, LoopedBFS and ZBVZeroBubble",
        ),
    };
    Obstacle::of_plan(format!("schedule={}", plan.schedule.name()), why, Plan { schedule: near, ..plan.clone() })
}

/// Pipelines of PyTorch 2.15 ask for the mesh of tensors that stages send, which tensor parallelism splits; `PipelineStage` is made
/// without, and stops before the first step. It has no example and no test of the two together.
///
/// Source: [olmo-core] `train/train_module/transformer/config.py` (`split_model`), release 2.5.0; PyTorch 2.15,
/// `distributed/pipelining/_utils.py` (`get_mesh`).
fn tensor_in_pipeline(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, pp, .. } = plan.layout;
    if tp == 1 || pp == 1 {
        return None;
    }
    let why = "its pipelines stop at what tensor parallelism splits, with PyTorch 2.15";
    Obstacle::of_plan(format!("tp={tp} pp={pp}"), why, rules::without_pipeline(plan))
}

/// FSDP2 is ZeRO 3; DDP is for copies alone.
fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, pp, .. } = plan.layout;
    let replicas = plan.layout.dense_replicas();
    let why = match plan.zero {
        ZeroStage::One | ZeroStage::Two => "FSDP2 shards weights too",
        ZeroStage::Zero if replicas > 1 && tp * cp * pp > 1 => "DDP is for copies of whole models here",
        ZeroStage::Three if replicas == 1 => "with one replica there is nothing to shard over",
        ZeroStage::Zero | ZeroStage::Three => return None,
    };
    let zero = if replicas == 1 { ZeroStage::Zero } else { ZeroStage::Three };
    let near = Plan { zero, reshard_after_forward: zero == ZeroStage::Zero || pp == 1, ..plan.clone() };
    Obstacle::of_plan(format!("zero={}", u8::from(plan.zero)), why, near)
}

/// Weights are sharded over `shard_degree` and cp together, and over more than one rank.
fn shard_group(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    if group > 1 && group.is_multiple_of(plan.layout.cp) {
        return None;
    }
    let why = format!("a shard group holds whole context-parallel groups of {}", plan.layout.cp);
    Obstacle::of_plan(format!("shard={group}"), why, Plan { shard_group: None, ..plan.clone() })
}

/// Experts lie on the ranks of tensor parallelism, or on those of one shard group, and not on those of both.
///
/// Source: [olmo-core] `distributed/parallel/__init__.py` (`build_world_mesh`), `nn/moe/mlp.py` (`_shard_experts`).
fn expert_grid(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, ep, .. } = plan.layout;
    if !problem.model().is_moe() {
        return None;
    }
    let with_ep = |ep: u32| Plan { layout: Layout { ep, ..plan.layout }, ..plan.clone() };
    if tp > 1 {
        let why = "experts lie on the ranks of tensor parallelism, and `ep_config` beside `tp_config` is refused";
        return if ep == tp { None } else { Obstacle::of_plan(format!("ep={ep}"), why, with_ep(tp)) };
    }
    if ep == 1 {
        return None;
    }
    if cp > 1 {
        let why = "gradients of experts are not reduced over context-parallel ranks";
        return Obstacle::of_plan(format!("ep={ep}"), why, with_ep(1));
    }
    if plan.zero == ZeroStage::Three && plan.dense_shards() == ep {
        return None;
    }
    let why = "experts lie on the ranks of one shard group (`ep_config.degree` is HSDP's `shard_degree`)";
    let near = Plan { zero: ZeroStage::Three, shard_group: Some(ep), ..plan.clone() };
    Obstacle::of_plan(format!("ep={ep}"), why, near)
}

/// `Transformer.apply_fsdp`: weights stay gathered for backward in pipelines, and nowhere else.
fn reshard(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let own = plan.layout.pp == 1;
    if plan.zero != ZeroStage::Three || plan.reshard_after_forward == own {
        return None;
    }
    let why = "gathered weights are freed after forward, but in pipelines they stay";
    let what = if own { "reshard=off" } else { "reshard=on" };
    Obstacle::of_plan(what, why, Plan { reshard_after_forward: own, ..plan.clone() })
}
