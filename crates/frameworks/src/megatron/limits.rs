//! Limits of Megatron-LM. Source: [megatron-lm] `megatron/training/arguments.py` (`validate_args`),
//! `megatron/core/transformer/transformer_config.py` (`__post_init__`), `megatron/core/parallel_state.py`, release 0.19.2.

use super::graphs;
use super::hybrid::{self, Hybrid};
use super::offload;
use super::release;
use super::sparse;
use crate::details::{self, Expressible, inexpressible};
use crate::rules::{attentions, bf16_units, bytes_are, fused_exchange, fused_exchange_backend, lacks, no_adapters};
use crate::scaling;
use crate::sizes::{Biases, SharedMixer, Sizes};
use meshwright_engine::cost::context_inside;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::{Attention, Mixer, Norm, OutputGate, QkNorm, RopeScaling, Span};
use meshwright_engine::plan::{CpKind, Layout, Modules, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Half, Optimizer, Recipe};
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of Megatron-LM.
pub const LIMITS: Limits = Limits {
    name: "megatron",
    title: "Megatron-LM",
    family: Family::Megatron,
    also: &[],
    values,
    names_stages: release::lists_stages, // `--pipeline-model-parallel-layout`
    own_split: None,
    problem: |problem| of_container(problem, &details::MEGATRON).into_iter().chain(no_adapters(problem)).collect(),
    shape: &[
        context_kind,
        fused_exchange,
        hierarchy,
        recompute,
        sparse::recompute,
        hybrid::groups,
        hybrid::recompute,
        graphs::first_layers,
        release::shape,
    ],
    plan: &[schedule, prediction_stage, offload::activations, graphs::activations, release::plan],
    optimizer_on_host: &[offload::optimizer, release::on_host],
    sharding: &[sharding, graphs::fsdp, shard_group, optimizer_state, expert_biases, rank_order, release::sharding],
};

fn values(problem: &Problem) -> Vec<&'static str> {
    let of_dense = (!problem.model().is_moe()).then_some("recompute=none,mlp,layernorm,layernorm+mlp,core_attn,full");
    let exchange = fused_exchange_backend(problem).is_none().then_some("dispatcher=alltoall");
    release::values(problem).chain(of_dense).chain(exchange).collect()
}

/// Obstacles of the model: `GPTModel` has one set of sizes, and one flag for all biases; `expressible` is what the
/// files can express of its other settings.
pub(crate) fn of_container(problem: &Problem, expressible: &Expressible) -> Vec<Obstacle> {
    let model = problem.model();
    let hybrid = hybrid::is_hybrid(model);
    let sizes = match if hybrid { Hybrid::of(model).map(|hybrid| hybrid.sizes) } else { Sizes::of(model) } {
        Ok(sizes) => sizes,
        Err(found) => return found,
    };
    let Biases { qkv: qkv_bias, out: out_bias, mlp: mlp_bias } = sizes.biases();
    let mut found = Vec::new();
    let mut refuse = |when: bool, what: &str, why: &'static str| {
        if when {
            found.push(lacks(model, what, why));
        }
    };
    refuse(model.norm == Norm::LayerNoBias, "LayerNorm without a bias", "its LayerNorm has a bias");
    refuse(model.norm == Norm::LayerPlain, "LayerNorm without parameters", "its LayerNorm has a weight and a bias");
    refuse(model.embedding_norm, "a norm on the embedding", "it has none");
    refuse(model.head_bias, "a bias on the output head", "its output layer has none");
    refuse(sizes.qk_norm() == QkNorm::Full, "a norm over all heads", "`--qk-layernorm` norms each head");
    let mixed = (out_bias || mlp_bias) && !(qkv_bias && out_bias && mlp_bias);
    refuse(mixed, "some biases", "all linear layers have biases, or none, or only queries, keys and values");
    let windows: Vec<Span> = sizes.spans.iter().copied().filter(|span| *span != Span::Full).collect();
    refuse(windows.iter().any(|span| matches!(span, Span::Chunk(_))), "chunked attention", "it has windows only");
    refuse(
        windows.windows(2).any(|pair| pair[0] != pair[1]),
        "windows of several sizes",
        "`--window-size` is one size",
    );
    let rotary = sizes.rope.iter().filter(|rope| **rope).count();
    let alibi = rotary == 0 && model.learned_positions == 0 && !hybrid;
    refuse(alibi, "positions neither rotary nor learned", "ALiBi is not among its position embeddings");
    let predicts = model.mtp_depth > 0 && model.learned_positions > 0;
    refuse(
        predicts,
        "multi-token prediction with learned positions",
        "it predicts several tokens with rotary ones or none",
    );
    let stretched = !model.has_mla() && model.details.rope_scaling.as_ref().is_some_and(RopeScaling::is_yarn);
    refuse(
        model.mtp_depth > 0 && stretched,
        "multi-token prediction with YaRN",
        "it predicts several tokens with plain rotary positions or none",
    );
    if let SharedMixer::Attention(a) = &sizes.mixer {
        refuse(a.keys_are_values, "keys that serve as values", "keys and values have a projection each");
        refuse(a.output_gate == OutputGate::PerHead, "a gate for each head", "its gate is for each element");
    }
    if let Some(moe) = &sizes.moe {
        refuse(moe.dense_intermediate > 0, "a dense MLP beside the experts", "it has shared experts only");
        refuse(
            moe.latent > 0 && !release::has_latent_experts(problem),
            "experts in a latent space",
            "they came with Megatron core 0.16: --stack nemo-26",
        );
        refuse(moe.bias && moe.shared_intermediate > 0, "biases beside shared experts", "its shared experts have none");
    }
    found.extend(sparse::obstacles(problem, &sizes, hybrid));
    found.extend(inexpressible(model, &sizes, expressible));
    found.extend(bf16_units(problem));
    let recipe = scaling::words(problem.workload().format, problem.stack().amax_reduction);
    let unrunnable = recipe.and_then(|(_, recipe)| scaling::unrunnable(&problem.cluster().gpu, recipe));
    found.extend(unrunnable.map(|(what, instead)| Obstacle::of_model(what, instead)));
    found.extend(workload(problem));
    found.extend(hybrid::formats(problem));
    found
}

fn workload(problem: &Problem) -> Vec<Obstacle> {
    let (format, recipe) = (problem.workload().format, problem.workload().recipe);
    let Recipe { weight, gradient, master, state } = recipe;
    let mut found = Vec::new();
    let mut refuse = |when: bool, what: String, why: &'static str| {
        if when {
            found.push(Obstacle::of_model(what, why));
        }
    };
    let narrow = !matches!(format, Format::Bf16);
    refuse(
        !(bytes_are(weight, 2.0) || bytes_are(weight, 1.0) && narrow),
        format!("{weight} B of weight"),
        "weights are bf16, or 8-bit with `--fp8-param-gather`",
    );
    refuse(
        !bytes_are(gradient, 4.0) && !bytes_are(gradient, 2.0),
        format!("{gradient} B of gradient"),
        "gradients are fp32 or bf16",
    );
    refuse(
        !bytes_are(master, 4.0),
        format!("{master} B of master weight"),
        "master weights are fp32 (`--main-params-dtype`)",
    );
    refuse(
        ![8.0, 4.0, 2.0].iter().any(|known| bytes_are(state, *known)),
        format!("{state} B of optimizer state"),
        "moments are fp32, bf16 or fp8 (`--exp-avg-dtype`)",
    );
    let scaled_muon = problem.workload().optimizer == Optimizer::Muon && problem.workload().half == Half::Fp16;
    refuse(scaled_muon, "Muon with --precision fp16".into(), "its Muon steps without a scaled loss: bf16");
    found
}

/// Source: [megatron-lm] `core/extensions/transformer_engine.py`; [transformer-engine] `context_parallel.py`: a window needs
/// `all_gather` or `a2a`; attention sinks need `a2a`.
fn context_kind(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.cp == 1 {
        return None;
    }
    let any = |is: fn(&Attention) -> bool| attentions(problem.model()).any(is);
    let (sinks, windows) = (any(|attention| attention.sinks), any(|attention| attention.span != Span::Full));
    let what = || format!("cp-kind={}", plan.cp_kind);
    if sinks && plan.cp_kind != CpKind::AllToAll {
        return Obstacle::of_plan(
            what(),
            "attention sinks under context parallelism need a2a",
            Plan { cp_kind: CpKind::AllToAll, ..plan.clone() },
        );
    }
    if windows && matches!(plan.cp_kind, CpKind::Ring | CpKind::Hierarchical) {
        return Obstacle::of_plan(
            what(),
            "sliding windows under context parallelism need all_gather or a2a",
            Plan { cp_kind: CpKind::AllGather, ..plan.clone() },
        );
    }
    None
}

/// Heads are exchanged inside the scale-up domain and keys and values across: the inner group divides cp, and a rank's key-value
/// heads divide by it.
///
/// Source: [transformer-engine] `context_parallel.py`; [megatron-lm] `arguments.py`: the two sizes multiply to cp.
fn hierarchy(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, .. } = plan.layout;
    if cp == 1 || plan.cp_kind != CpKind::Hierarchical {
        return None;
    }
    let inside = context_inside(plan, problem.cluster().scale_up.gpus);
    let heads = problem.model().kinds.iter().find_map(|layer| match &layer.mixer {
        Mixer::Attention(a) => Some((a.kv_heads / tp).max(1)),
        Mixer::Mla(m) => Some(m.heads / tp),
        Mixer::Mamba(_)
        | Mixer::DeltaNet(_)
        | Mixer::KimiDelta(_)
        | Mixer::ShortConv(_)
        | Mixer::AttentionMamba(_)
        | Mixer::None => None,
    })?;
    if inside > 1 && inside < cp && cp.is_multiple_of(inside) && heads.is_multiple_of(inside) {
        return None;
    }
    let why = format!("{inside} of {cp} ranks lie in one scale-up domain, and each has {heads} key-value heads");
    let near = if inside == cp && heads.is_multiple_of(cp) { CpKind::AllToAll } else { CpKind::Ring };
    Obstacle::of_plan("cp-kind=a2a+p2p", why, Plan { cp_kind: near, ..plan.clone() })
}

/// Source: [megatron-lm] `transformer_config.py`: modules `core_attn`, `layernorm`, `moe_act`, `mla_up_proj`, `mlp`, `moe`.
fn recompute(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let (model, none) = (problem.model(), Modules::default());
    let what = || format!("recompute={}", plan.recompute);
    let instead = |recompute| Plan { recompute, ..plan.clone() };
    match plan.recompute {
        Recompute::PerOp => Obstacle::of_plan(
            what(),
            "it recomputes modules or layers, not single GEMMs",
            instead(Recompute::Selective(Modules { layernorm: true, ..none })),
        ),
        Recompute::EveryOther => {
            let chunks = plan.pipeline().chunks();
            let half = (model.layers().div_ceil(chunks.max(1)) / 2).max(1);
            Obstacle::of_plan(
                what(),
                "it recomputes the first layers of a chunk",
                instead(Recompute::FirstLayers(half)),
            )
        }
        Recompute::Selective(modules) if modules.act && !model.is_moe() => Obstacle::of_plan(
            what(),
            "`moe_act` is the activation of experts; a dense MLP is recomputed whole (`mlp`) or not",
            instead(selective(Modules { act: false, ..modules })),
        ),
        Recompute::Selective(modules) if modules.mla_up_proj && !model.has_mla() => Obstacle::of_plan(
            what(),
            "`mla_up_proj` needs latent attention",
            instead(selective(Modules { mla_up_proj: false, ..modules })),
        ),
        Recompute::Selective(_) | Recompute::None | Recompute::FirstLayers(_) | Recompute::Full => None,
    }
}

/// Modules, or nothing where none is left.
fn selective(modules: Modules) -> Recompute {
    if modules == Modules::default() { Recompute::None } else { Recompute::Selective(modules) }
}

/// Source: [megatron-lm] `core/pipeline_parallel/schedules.py`: 1F1B and interleaved 1F1B.
pub(crate) fn schedule(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 {
        return None;
    }
    let virtual_stages = plan.schedule.virtual_stages();
    let near = if virtual_stages > 1 { Schedule::Interleaved { virtual_stages } } else { Schedule::OneFOneB };
    match plan.schedule {
        Schedule::OneFOneB | Schedule::Interleaved { .. } => None,
        Schedule::Naive
        | Schedule::GPipe
        | Schedule::ZbH1
        | Schedule::ZbH2
        | Schedule::ZbV
        | Schedule::DualPipe
        | Schedule::DualPipeV
        | Schedule::LoopedBfs { .. } => Obstacle::of_plan(
            format!("schedule={}", plan.schedule.name()),
            "its pipelines are 1F1B and interleaved 1F1B",
            Plan { schedule: near, ..plan.clone() },
        ),
    }
}

/// Source: [megatron-lm] `pipeline_parallel_layer_layout.py`: multi-token prediction lies in the last virtual stage of its rank.
pub(crate) fn prediction_stage(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let LayerSplit::Stages(list) = &plan.split else { return None };
    let (pp, v) = (plan.layout.pp as usize, plan.schedule.virtual_stages() as usize);
    if list.mtp() == 0 || list.mtp_stage() >= pp * (v - 1) {
        return None;
    }
    Obstacle::of_plan(
        format!("split={}", plan.split),
        "multi-token prediction (`m`) lies in the last chunk of its rank",
        Plan { split: LayerSplit::stages(list.layers(), list.mtp(), pp * v - 1), ..*plan },
    )
}

/// ZeRO 2 and 3 are Megatron-FSDP, which is written for one pipeline stage here and frees weights after each pass.
///
/// Source: [megatron-lm] `arguments.py`: `--use-megatron-fsdp` with `--data-parallel-sharding-strategy`.
fn sharding(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero < ZeroStage::Two {
        return None;
    }
    let what = || format!("zero={}", u8::from(plan.zero));
    if plan.layout.pp > 1 {
        return Obstacle::of_plan(
            what(),
            "Megatron-FSDP is not combined with a pipeline",
            Plan { zero: ZeroStage::One, shard_group: None, reshard_after_forward: true, ..plan.clone() },
        );
    }
    if problem.workload().optimizer == Optimizer::Muon {
        return Obstacle::of_plan(
            what(),
            "Megatron-FSDP runs Adam and SGD only",
            Plan { zero: ZeroStage::One, reshard_after_forward: true, ..plan.clone() },
        );
    }
    if plan.zero == ZeroStage::Three && !plan.reshard_after_forward {
        return Obstacle::of_plan(
            "reshard=off",
            "Megatron-FSDP frees weights after the forward pass",
            Plan { reshard_after_forward: true, ..plan.clone() },
        );
    }
    None
}

/// Source: [megatron-lm] `parallel_state.py`: `--num-distributed-optimizer-instances` divides dp·cp, and the expert replicas.
fn shard_group(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let replicas = plan.layout.dense_replicas();
    let group = plan.shard_group.filter(|group| *group < replicas)?;
    let whole = Plan { shard_group: None, ..plan.clone() };
    if problem.workload().optimizer == Optimizer::Muon {
        return Obstacle::of_plan(
            format!("shard={group}"),
            "Muon's optimizer is sharded by layer over all ranks",
            whole,
        );
    }
    let instances = replicas / group.max(1);
    let experts = plan.layout.expert_replicas();
    if problem.model().is_moe() && !experts.is_multiple_of(instances) {
        let why = format!("{instances} distributed-optimizer instances do not divide the {experts} expert replicas");
        return Obstacle::of_plan(format!("shard={group}"), why, whole);
    }
    None
}

/// Source: [megatron-lm] `core/optimizer/optimizer_config.py`: moments below fp32 and offloading need the precision-aware
/// optimizer, and that the distributed one; `arguments.py`: so does `--fp8-param-gather`.
fn optimizer_state(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.zero >= ZeroStage::One {
        return None;
    }
    let workload = problem.workload();
    let narrow_moments = workload.recipe.state < 8.0 && workload.optimizer == Optimizer::Elementwise;
    if narrow_moments || bytes_are(workload.recipe.weight, 1.0) {
        return Obstacle::of_plan(
            "zero=0",
            "moments below fp32 and 8-bit weights need the distributed optimizer",
            Plan { zero: ZeroStage::One, ..plan.clone() },
        );
    }
    None
}

/// Source: [megatron-lm] `transformer_config.py`: biases of experts are whole on their rank.
fn expert_biases(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let biased = || problem.model().kinds.iter().any(|layer| layer.moe().is_some_and(|moe| moe.bias));
    (plan.layout.etp > 1 && biased()).then(|| Obstacle {
        what: format!("etp={}", plan.layout.etp),
        why: "experts with biases are not split".into(),
        instead: Some(Plan { layout: Layout { etp: 1, ..plan.layout }, ..plan.clone() }),
    })
}

/// Obstacle of a plan with replicas outermost whose dense and expert weights have different replicas. They have the same where
/// ep·etp = tp·cp, and in a dense model, whose expert groups are its tensor groups, without context parallelism.
///
/// Source: [megatron-lm] `parallel_state.py`, `initialize_model_parallel`.
fn rank_order(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, cp, pp, dp, ep, etp } = plan.layout;
    if pp == 1 || dp == 1 || plan.order != RankOrder::DataOutermost {
        return None;
    }
    let experts = if problem.model().is_moe() { ep * etp } else { tp };
    (experts != tp * cp).then(|| Obstacle {
        what: format!("order={}", plan.order),
        why: format!(
            "dense weights have {dp} replicas and expert groups {}, and other orders than pp-last want as many",
            tp * cp * dp / experts
        )
        .into(),
        instead: Some(Plan { order: RankOrder::PipelineOutermost, ..plan.clone() }),
    })
}
