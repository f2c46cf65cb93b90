//! Limits of torchtitan. Source: [torchtitan] `torchtitan/config/configs.py`, `distributed/parallel_dims.py`,
//! `distributed/pipeline_parallel.py`, `models/common/config_utils.py`, release 0.3.0.

use crate::decoder::LlamaDecoder;
use crate::details::Expressible;
use crate::rules::{self, lacking};
use crate::sizes::Sizes;
use meshwright_engine::model::{Ffn, RopeScalingKind};
use meshwright_engine::plan::{Layout, Modules, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of torchtitan.
pub const LIMITS: Limits = Limits {
    name: "torchtitan",
    title: "torchtitan",
    family: Family::Torchtitan,
    also: &[],
    values: |_| vec!["cp-kind=allgather", "etp=1", "recompute=none,per-op,full", "zero=0,3", "order=tp-cp-ep-dp-pp"],
    names_stages: |_| true, // `module_fqns_per_model_part`
    own_split: None,
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[
        rules::gathered_context,
        sequence,
        rules::fused_exchange,
        rules::key_value_heads,
        rules::no_expert_tensor,
        recompute,
    ],
    plan: &[tied_embeddings, schedule, rules::enough_micro_batches, rules::no_offload],
    optimizer_on_host: &[],
    sharding: &[sharding, shard_group, expert_grid, even_experts, rules::pipeline_outermost],
};

/// Its decoders of Llama 3 and Qwen3, and of DeepSeek-V3 with latent attention.
const DECODER: LlamaDecoder =
    LlamaDecoder { qkv_bias: false, head_norms: true, latent_attention: true, expressible: EXPRESSIBLE };

/// Its fields for settings of a model: Llama 3's change of frequencies with complex rotary embeddings, YaRN with both kinds.
///
/// Source: [torchtitan] `models/common/{rope,feed_forward,moe}.py`, release 0.3.0.
const EXPRESSIBLE: Expressible = Expressible {
    rotary_share: false,
    scaling: |scaling, latent| match &scaling.kind {
        RopeScalingKind::Llama3 { .. } => !latent,
        RopeScalingKind::Yarn { .. } | RopeScalingKind::Linear | RopeScalingKind::Other(_) => false,
    },
    clamped_quick_gelu: false,
    norms_after: false,
    plain: &[],
    softmax_bias: true,
    raw_sigmoid: true,
    balance_loss: false,
    latent_experts: false,
    indexer: false,
};

/// Its decoders with dense MLPs or experts.
fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let mut found = DECODER.obstacles(problem, sizes);
    let beside = sizes.moe.as_ref().is_some_and(|moe| moe.shared_gate || moe.dense_intermediate > 0);
    let why = "it has shared experts only";
    found.extend(lacking(problem.model(), [(beside, "a gated or dense part beside the experts", why)]));
    found.extend(rules::plain_mixed_precision(problem, &[4.0]));
    found
}

/// Rows of queries in a block of flex attention's masks.
const QUERY_BLOCK: u32 = 128;

/// Sequences split over context parallelism in whole blocks of the mask, and over tensor parallelism in equal parts.
///
/// Source: PyTorch, `torch/distributed/tensor/experimental/_context_parallel/_attention.py` (`create_cp_block_mask`:
/// "not divisible by CP mesh world size * Q_BLOCK_SIZE"), 128 by default; [torchtitan] `trainer.py`
/// (`seq_len_divisor`), release 0.3.0.
fn sequence(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let (cp, seq_len) = (plan.layout.cp, problem.workload().seq_len);
    if cp == 1 || seq_len.is_multiple_of(QUERY_BLOCK * cp) {
        return None;
    }
    let why = format!("sequences of {seq_len} are not split into {cp} parts of whole blocks of {QUERY_BLOCK}");
    Obstacle::of_plan(format!("cp={cp}"), why, rules::without_context(plan))
}

/// `models/common/decoder.py`, `update_from_config`: embeddings that are one with the head stay on one stage.
fn tied_embeddings(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 || !problem.model().tied_embeddings {
        return None;
    }
    Obstacle::of_plan(
        format!("pp={}", plan.layout.pp),
        "its pipelines do not split tied embeddings",
        rules::without_pipeline(plan),
    )
}

/// `distributed/activation_checkpoint.py`: `FullAC`, `SelectiveAC` (per GEMM) or none.
fn recompute(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let near = match plan.recompute {
        Recompute::None | Recompute::PerOp | Recompute::Full => return None,
        Recompute::EveryOther | Recompute::FirstLayers(_) => Recompute::Full,
        Recompute::Selective(modules) if modules == Modules::default() => Recompute::None,
        Recompute::Selective(_) => Recompute::PerOp,
    };
    Obstacle::of_plan(
        format!("recompute={}", plan.recompute),
        "it recomputes every second GEMM (per-op), whole layers (full), or nothing",
        Plan { recompute: near, ..plan.clone() },
    )
}

/// `pipeline_parallel_schedule`: the schedules of torch.distributed.pipelining.
fn schedule(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 {
        return None;
    }
    let near = match plan.schedule {
        Schedule::OneFOneB
        | Schedule::GPipe
        | Schedule::Interleaved { .. }
        | Schedule::LoopedBfs { .. }
        | Schedule::ZbV
        | Schedule::DualPipeV => return None,
        Schedule::Naive => Schedule::GPipe,
        Schedule::ZbH1 | Schedule::ZbH2 => Schedule::ZbV,
        Schedule::DualPipe => Schedule::DualPipeV,
    };
    Obstacle::of_plan(
        format!("schedule={}", plan.schedule.name()),
        "its schedules are 1F1B, Interleaved1F1B, GPipe, LoopedBFS, ZBVZeroBubble and DualPipeV",
        Plan { schedule: near, ..plan.clone() },
    )
}

/// FSDP2 is ZeRO 3; without it, replicas are DDP, and context parallelism is always sharded over.
fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let why = match plan.zero {
        ZeroStage::One | ZeroStage::Two => "FSDP2 shards weights too, and may keep them until backward",
        ZeroStage::Zero if plan.layout.cp > 1 => "FSDP2 shards weights over context-parallel ranks",
        ZeroStage::Three if plan.layout.dense_replicas() == 1 => {
            return Obstacle::of_plan(
                "zero=3",
                "with one replica there is nothing to shard over",
                Plan { zero: ZeroStage::Zero, reshard_after_forward: true, ..plan.clone() },
            );
        }
        ZeroStage::Zero | ZeroStage::Three => return None,
    };
    Obstacle::of_plan(
        format!("zero={}", u8::from(plan.zero)),
        why,
        match plan.layout.dense_replicas() {
            1 => Plan { zero: ZeroStage::Zero, ..plan.clone() },
            _ => Plan { zero: ZeroStage::Three, reshard_after_forward: plan.zero == ZeroStage::Zero, ..plan.clone() },
        },
    )
}

/// Weights are sharded over `data_parallel_shard_degree` and cp together.
fn shard_group(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    if group.is_multiple_of(plan.layout.cp) {
        return None;
    }
    let why = format!("a shard group holds whole context-parallel groups of {}", plan.layout.cp);
    Obstacle::of_plan(format!("shard={group}"), why, Plan { shard_group: None, ..plan.clone() })
}

/// `parallel_dims.py`: `expert_parallel_degree` folds `data_parallel_shard_degree`, cp and tp.
fn expert_grid(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, ep, .. } = plan.layout;
    let shards = if plan.zero == ZeroStage::Zero { 1 } else { plan.dense_shards() };
    if ep == 1 || (shards * tp).is_multiple_of(ep) {
        return None;
    }
    let why = format!("experts lie on the {} ranks of one shard group and its tensor parallelism", shards * tp);
    Obstacle::of_plan(format!("ep={ep}"), why, Plan { zero: ZeroStage::Three, shard_group: None, ..plan.clone() })
}

/// `distributed/fsdp.py`: weights on more ranks than there are experts are cut along their second dimension, and evenly; without
/// expert parallelism the copies of a shard group count as ranks too, for the mesh holds both.
fn even_experts(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let moe =
        problem.model().kinds.iter().find_map(|layer| if let Ffn::Moe(moe) = &layer.ffn { Some(moe) } else { None })?;
    let Layout { tp, ep, .. } = plan.layout;
    let (shards, all) = (plan.dense_shards(), plan.layout.dense_replicas());
    let even = |shards: u32| {
        let (ranks, each) = if ep > 1 { (shards * tp, shards * tp / ep) } else { (all, shards) };
        let width = if ep > 1 { moe.intermediate } else { moe.intermediate / tp };
        ranks <= moe.experts || (problem.model().hidden.is_multiple_of(each) && width.is_multiple_of(each))
    };
    if plan.zero == ZeroStage::Zero || even(shards) {
        return None;
    }
    let fewer =
        (2..shards).rev().find(|fewer| all.is_multiple_of(*fewer) && (fewer * tp).is_multiple_of(ep) && even(*fewer));
    let near = match fewer {
        Some(fewer) => Plan { shard_group: Some(fewer), ..plan.clone() },
        None => Plan { zero: ZeroStage::Zero, shard_group: None, reshard_after_forward: true, ..plan.clone() },
    };
    let why = format!(
        "weights of {} experts on more ranks are cut along {} and {}, which must divide",
        moe.experts,
        problem.model().hidden,
        moe.intermediate
    );
    Obstacle::of_plan(
        if shards == all { format!("zero={}", u8::from(plan.zero)) } else { format!("shard={shards}") },
        why,
        near,
    )
}
