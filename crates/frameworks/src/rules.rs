//! Rules that several frameworks share: each names a feature that a framework lacks, and the plan without it.

use meshwright_engine::gpu::{Format, Topology};
use meshwright_engine::model::{Attention, Layer, Mixer, Model};
use meshwright_engine::plan::{CpKind, Layout, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Dispatcher;
use meshwright_engine::workload::{Half, Optimizer, Recipe};
use meshwright_planner::limits::Obstacle;

/// Whether two counts of bytes per parameter, or other numbers that were written and not computed, are equal.
pub(crate) fn bytes_are(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// Whether a share on the host is nothing or all.
pub(crate) fn is_whole(share: f64) -> bool {
    share <= 0.0 || share >= 1.0
}

/// Obstacle of a model with a feature that a framework lacks.
pub(crate) fn lacks(model: &Model, what: &str, why: &'static str) -> Obstacle {
    Obstacle::of_model(format!("{}: {what}", model.name), why)
}

/// Obstacles of a model for each property that it has and a framework lacks. A row: whether the model has it, its name, the reason.
pub(crate) fn lacking<Name: AsRef<str>>(
    model: &Model,
    rows: impl IntoIterator<Item = (bool, Name, &'static str)>,
) -> Vec<Obstacle> {
    rows.into_iter().filter(|(has, ..)| *has).map(|(_, name, why)| lacks(model, name.as_ref(), why)).collect()
}

/// Attention of a model's layers that is not latent.
pub(crate) fn attentions(model: &Model) -> impl Iterator<Item = &Attention> {
    model.kinds.iter().filter_map(Layer::attention)
}

/// Plan whose pipeline ranks are replicas instead.
pub(crate) fn without_pipeline(plan: &Plan) -> Plan {
    let Layout { pp, dp, .. } = plan.layout;
    Plan { layout: Layout { pp: 1, dp: dp * pp, ..plan.layout }, ..plan.clone() }
}

/// Plan whose context-parallel ranks are replicas instead.
pub(crate) fn without_context(plan: &Plan) -> Plan {
    let Layout { cp, dp, .. } = plan.layout;
    Plan { layout: Layout { cp: 1, dp: dp * cp, ..plan.layout }, ..plan.clone() }
}

/// Plan whose tensor-parallel ranks are replicas instead.
pub(crate) fn without_tensor(plan: &Plan) -> Plan {
    let Layout { tp, dp, .. } = plan.layout;
    Plan { layout: Layout { tp: 1, etp: 1, dp: dp * tp, ..plan.layout }, sequence_parallel: false, ..plan.clone() }
}

/// Obstacle of a plan with a pipeline.
pub(crate) fn no_pipeline(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    (plan.layout.pp > 1).then(|| Obstacle {
        what: format!("pp={}", plan.layout.pp),
        why: "it has no pipeline parallelism".into(),
        instead: Some(without_pipeline(plan)),
    })
}

/// Obstacle of a plan with expert parallelism, or tensor parallelism inside experts.
pub(crate) fn no_experts(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { ep, etp, .. } = plan.layout;
    (ep > 1 || etp > 1).then(|| Obstacle {
        what: format!("ep={ep} etp={etp}"),
        why: "it has no expert parallelism".into(),
        instead: Some(Plan { layout: Layout { ep: 1, etp: 1, ..plan.layout }, ..plan.clone() }),
    })
}

/// Obstacle of a plan whose experts are split by tensor parallelism.
pub(crate) fn no_expert_tensor(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    (plan.layout.etp > 1).then(|| Obstacle {
        what: format!("etp={}", plan.layout.etp),
        why: "experts are whole on their rank".into(),
        instead: Some(Plan { layout: Layout { etp: 1, ..plan.layout }, ..plan.clone() }),
    })
}

/// Backend of a fused exchange of tokens with experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedExchange {
    /// DeepEP: nodes of 8 GPUs, joined by InfiniBand or RoCE.
    DeepEp,
    /// HybridEP: GPUs of racks, as those of GB200 NVL72 and GB300 NVL72.
    HybridEp,
    /// NCCL's exchange for experts, which is read and not written.
    Nccl,
}

impl FusedExchange {
    /// Backend of a cluster's GPUs; none before Ampere, from other vendors and without NVLink, where its kernels do not run.
    ///
    /// Source: [deepep], requirements; [megatron-bridge] `training/flex_dispatcher_backend.py` (compute capability 8
    /// and 9, B200 and B300 for DeepEP; GB200 and GB300 with NVL72 for HybridEP); [torchtitan]
    /// `models/common/config_utils.py`, release 0.3.0.
    pub fn of(problem: &Problem) -> Option<Self> {
        let cluster = problem.cluster();
        let without_nvlink = cluster.scale_up.topology == Topology::Pcie;
        if cluster.gpu.vendor != "NVIDIA" || !cluster.gpu.multiplies_bf16() || without_nvlink {
            return None;
        }
        Some(if cluster.gpu.fuses_by_hybrid_ep() { Self::HybridEp } else { Self::DeepEp })
    }

    /// Name on the command line of Megatron and in torchtitan's configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeepEp => "deepep",
            Self::HybridEp => "hybridep",
            Self::Nccl => "ncclep",
        }
    }

    /// The backend of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::DeepEp, Self::HybridEp, Self::Nccl].into_iter().find(|backend| backend.name() == name)
    }
}

/// Name of the backend that the fused exchange of tokens has on a problem's GPUs, as the written files name it; none
/// where they have none.
pub fn fused_exchange_backend(problem: &Problem) -> Option<&'static str> {
    FusedExchange::of(problem).map(FusedExchange::name)
}

/// GPUs of a node for DeepEP: those that its kernels within a node reach.
const DEEPEP_NODE: u32 = 8;

/// Numbers of nodes for which DeepEP's kernels between nodes are compiled.
const DEEPEP_NODES: [u32; 9] = [2, 3, 4, 6, 8, 12, 16, 18, 20];

/// Obstacle of a plan with a fused exchange of tokens, on GPUs that have none, or by DeepEP with a group that it refuses: within a node
/// 2, 4 or 8 ranks, across nodes eight on each of some numbers of nodes.
///
/// Source: [deepep] `csrc/deep_ep.cpp` (`Buffer`), `csrc/kernels/launch.cuh` (`SWITCH_RANKS`, `SWITCH_RDMA_RANKS`).
pub(crate) fn fused_exchange(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { ep, etp, .. } = plan.layout;
    if ep == 1 || plan.dispatcher != Dispatcher::DeepEp {
        return None;
    }
    let cluster = problem.cluster();
    let why = match FusedExchange::of(problem) {
        None => {
            let gpu = &cluster.gpu.name;
            format!("DeepEP and HybridEP run on NVIDIA's GPUs from Ampere on, joined by NVLink, not on {gpu}")
        }
        Some(FusedExchange::DeepEp) => {
            let (ranks, node) = (ep.saturating_mul(etp), cluster.scale_up.gpus.min(cluster.gpus_per_node));
            let within = ranks <= DEEPEP_NODE && ranks.is_power_of_two() && ranks <= node;
            let whole_nodes = ranks.is_multiple_of(DEEPEP_NODE) && node.is_multiple_of(DEEPEP_NODE);
            if within || whole_nodes && DEEPEP_NODES.contains(&(ranks / DEEPEP_NODE)) {
                return None;
            }
            format!(
                "DeepEP exchanges among 2, 4 or 8 ranks of one node or among 8 on each of several, 160 at most; the group has {ranks} \
                 ranks, nodes of {node} GPUs"
            )
        }
        Some(FusedExchange::HybridEp | FusedExchange::Nccl) => return None,
    };
    Some(Obstacle {
        what: "dispatcher=deepep".into(),
        why: why.into(),
        instead: Some(Plan { dispatcher: Dispatcher::AllToAll, ..plan.clone() }),
    })
}

/// Obstacle of a plan whose tokens reach experts by another dispatcher than all-to-all.
pub(crate) fn all_to_all_only(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    (plan.layout.ep > 1 && plan.dispatcher == Dispatcher::DeepEp).then(|| Obstacle {
        what: "dispatcher=deepep".into(),
        why: "tokens reach their experts by all-to-all".into(),
        instead: Some(Plan { dispatcher: Dispatcher::AllToAll, ..plan.clone() }),
    })
}

/// Obstacle of a plan with sequence parallelism. Experts beside tensor parallelism need it, so the nearest plan of a mixture has no
/// tensor parallelism.
pub(crate) fn no_sequence_parallel(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let near = || {
        if problem.model().is_moe() { without_tensor(plan) } else { Plan { sequence_parallel: false, ..plan.clone() } }
    };
    plan.sequence_parallel.then(|| Obstacle {
        what: "sp=on".into(),
        why: "its tensor parallelism does not split norms and residuals".into(),
        instead: Some(near()),
    })
}

/// Obstacle of a plan whose context parallelism exchanges otherwise than by one of `kinds`, of which the first is nearest to all
/// others.
pub(crate) fn only_context(plan: &Plan, kinds: &[CpKind], why: &'static str) -> Option<Obstacle> {
    if plan.layout.cp == 1 || kinds.contains(&plan.cp_kind) {
        return None;
    }
    let near = kinds.first().map_or_else(|| without_context(plan), |kind| Plan { cp_kind: *kind, ..plan.clone() });
    Obstacle::of_plan(format!("cp-kind={}", plan.cp_kind), why, near)
}

/// Obstacle of a plan whose context parallelism does not gather keys and values.
///
/// Source: [maxtext] `context_parallel_strategy` is `all_gather`; [torchtitan] `distributed/context_parallel.py`; [nanotron]
/// `llama3_ring_attention`.
pub(crate) fn gathered_context(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    only_context(plan, &[CpKind::AllGather], "it gathers keys and values")
}

/// Obstacle of a plan that recomputes neither all layers nor none.
pub(crate) fn recompute_all_or_none(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if matches!(plan.recompute, Recompute::None | Recompute::Full) {
        return None;
    }
    Obstacle::of_plan(
        format!("recompute={}", plan.recompute),
        "it recomputes whole layers, all or none",
        Plan { recompute: Recompute::Full, ..plan.clone() },
    )
}

/// 1F1B of `torch.distributed.pipelining` has a micro-batch for each stage. GPipe, which then runs the same passes, asks for none.
///
/// Source: PyTorch 2.15, `distributed/pipelining/schedules.py` (`Schedule1F1B.__init__` raises a `ValueError`; `ScheduleGPipe`,
/// `ScheduleLoopedBFS` and `ScheduleZBVZeroBubble` take any number). torchtitan 0.3.0 itself only warns of a bubble
/// (`distributed/pipeline_parallel.py`, `_build_pipeline_schedule`).
pub(crate) fn enough_micro_batches(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let pp = plan.layout.pp;
    let few = plan.micro_batches(problem.workload().global_batch) < f64::from(pp);
    if pp == 1 || plan.schedule != Schedule::OneFOneB || !few {
        return None;
    }
    let why = format!("its 1F1B refuses fewer micro-batches than its {pp} stages");
    Obstacle::of_plan("schedule=1f1b", why, Plan { schedule: Schedule::GPipe, ..plan.clone() })
}

/// Whether the interleaved schedule of `torch.distributed.pipelining` takes that many micro-batches: as many in each round.
///
/// Source: PyTorch 2.15, `distributed/pipelining/schedules.py` (`ScheduleInterleaved1F1B.__init__`: `max(1, n // pp)` rounds).
pub(crate) const fn torch_interleaves(micro_batches: u32, pp: u32) -> bool {
    let rounds = if micro_batches < pp { 1 } else { micro_batches / pp };
    micro_batches.is_multiple_of(rounds)
}

/// Obstacle of a plan that offloads to the host.
pub(crate) fn no_offload(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    (plan.offload != Offload::NONE).then(|| Obstacle {
        what: "offload".into(),
        why: "it cannot put a share of optimizer states or activations alone on the host".into(),
        instead: Some(Plan { offload: Offload::NONE, ..plan.clone() }),
    })
}

/// Obstacle of a plan whose activations on the host are not all inputs of recomputed layers, which `key` puts there.
pub(crate) fn only_checkpoints_on_host(plan: &Plan, key: &str) -> Option<Obstacle> {
    let activations = plan.offload.activations;
    if activations <= 0.0 || is_whole(activations) && plan.recompute == Recompute::Full {
        return None;
    }
    Obstacle::of_plan(
        format!("offload-activations={activations}"),
        format!("`{key}` puts all inputs of recomputed layers on the host, and nothing else"),
        Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan.clone() },
    )
}

/// Obstacle of a plan that shards over groups of replicas.
pub(crate) fn no_shard_group(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let group = plan.shard_group.filter(|group| *group < plan.layout.dense_replicas())?;
    Obstacle::of_plan(
        format!("shard={group}"),
        "it shards over all replicas",
        Plan { shard_group: None, ..plan.clone() },
    )
}

/// Obstacle of a plan whose replicas are outermost: the framework puts stages there.
pub(crate) fn pipeline_outermost(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    let differs = plan.layout.pp > 1 && plan.layout.dp > 1 && plan.order == RankOrder::DataOutermost;
    differs.then(|| Obstacle {
        what: format!("order={}", plan.order),
        why: "it numbers the ranks of a stage together".into(),
        instead: Some(Plan { order: RankOrder::PipelineOutermost, ..plan.clone() }),
    })
}

/// Obstacle of a plan that keeps gathered weights after the forward pass.
pub(crate) fn reshard_only(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    (plan.zero == ZeroStage::Three && !plan.reshard_after_forward).then(|| Obstacle {
        what: "reshard=off".into(),
        why: "it frees gathered weights after each pass".into(),
        instead: Some(Plan { reshard_after_forward: true, ..plan.clone() }),
    })
}

/// Obstacle of a plan whose tensor parallelism does not divide the key-value heads, where the framework copies none.
///
/// Source: [torchtitan] `models/common/decoder.py`, `update_from_config`; [nanotron] `config/config.py`: as many as tp or more.
pub(crate) fn key_value_heads(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Layout { tp, dp, .. } = plan.layout;
    let mut heads = attentions(problem.model()).map(|attention| attention.kv_heads);
    let heads = heads.find(|heads| !heads.is_multiple_of(tp))?;
    let near = (1..=tp).rev().find(|near| tp.is_multiple_of(*near) && heads.is_multiple_of(*near))?;
    let layout = Layout { tp: near, dp: dp * (tp / near), ..plan.layout };
    let why = format!("tensor parallelism divides the {heads} key-value heads");
    Obstacle::of_plan(
        format!("tp={tp}"),
        why,
        Plan { layout, sequence_parallel: plan.sequence_parallel && near > 1, ..plan.clone() },
    )
}

/// Obstacle of a plan that splits layers which the framework takes from a class of transformers without a plan for it:
/// a recurrence runs whole on each rank, over whole sequences.
///
/// Source: [transformers] 5.23: `base_model_tp_plan` of `configuration_qwen3_next.py` gathers what it cuts of the delta
/// rule, that of `configuration_nemotron_h.py` and `configuration_granitemoehybrid.py` cuts experts alone;
/// `configuration_bamba.py`, `configuration_mamba2.py` and `configuration_falcon_h1.py` have none.
pub(crate) fn whole_classes(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let what = problem.model().kinds.iter().find_map(|layer: &Layer| match layer.mixer {
        Mixer::AttentionMamba(_) => Some("attention beside Mamba"),
        Mixer::Mamba(_) => Some("Mamba"),
        Mixer::DeltaNet(_) | Mixer::KimiDelta(_) => Some("the delta rule"),
        // No framework at all splits a short convolution.
        Mixer::Attention(_) | Mixer::Mla(_) | Mixer::ShortConv(_) | Mixer::None => None,
    })?;
    let Layout { tp, cp, .. } = plan.layout;
    if cp > 1 {
        let why = format!("{what} runs over whole sequences in its class of transformers");
        return Obstacle::of_plan(format!("cp={cp}"), why, without_context(plan));
    }
    let why = format!("{what} has no plan for tensor parallelism in its class of transformers");
    if tp > 1 { Obstacle::of_plan(format!("tp={tp}"), why, without_tensor(plan)) } else { None }
}

/// Obstacle of a problem in fp16.
///
/// Source: [torchtitan] `config/configs.py`: `mixed_precision_param` is bfloat16 or float32; [nanotron] scales no loss.
pub(crate) fn no_float16(problem: &Problem) -> Option<Obstacle> {
    (problem.workload().half == Half::Fp16)
        .then(|| Obstacle::of_model("--precision fp16", "it scales no loss: plan with --precision bf16"))
}

/// Obstacle of a problem in bf16, on a device that does not multiply it.
pub(crate) fn bf16_units(problem: &Problem) -> Option<Obstacle> {
    let (workload, gpu) = (problem.workload(), &problem.cluster().gpu);
    let wanted = workload.format == Format::Bf16 && workload.half == Half::Bf16;
    (wanted && !gpu.multiplies_bf16()).then(|| {
        Obstacle::of_model(
            format!("bf16 on {}", gpu.name),
            "its tensor cores multiply fp16 alone, and bf16 falls to a fraction of the rate: --precision fp16",
        )
    })
}

/// Obstacles of a problem without bf16 GEMMs, bf16 weights, gradients of one of these numbers of bytes, fp32 master
/// weights and Adam's two moments in fp32.
pub(crate) fn plain_mixed_precision(problem: &Problem, gradients: &[f64]) -> Vec<Obstacle> {
    let workload = problem.workload();
    let Recipe { weight, gradient, master, state } = workload.recipe;
    let mut found = Vec::new();
    if workload.format != Format::Bf16 {
        found.push(Obstacle::of_model(
            format!("--precision {}", workload.format),
            "GEMMs below 16 bits are the model code's own",
        ));
    }
    found.extend(bf16_units(problem));
    let known = gradients.iter().any(|bytes| bytes_are(gradient, *bytes));
    let adam = workload.optimizer == Optimizer::Elementwise && bytes_are(state, 8.0);
    if !bytes_are(weight, 2.0) || !bytes_are(master, 4.0) || !known || !adam {
        let gradients: Vec<String> = gradients.iter().map(ToString::to_string).collect();
        found.push(Obstacle::of_model(
            format!("{weight} + {gradient} + {master} + {state} B of weight, gradient, master and moments"),
            format!("it is 2 + {} + 4 + 8: bf16 with Adam in fp32", gradients.join(" or ")),
        ));
    }
    found
}

/// Obstacle of a problem with adapters: `pretrain_gpt.py` of Megatron-LM trains all weights.
pub(crate) fn no_adapters(problem: &Problem) -> Option<Obstacle> {
    let adapts = problem.workload().adaptation.is_lora();
    adapts.then(|| Obstacle::of_model("LoRA", "`pretrain_gpt.py` trains all weights"))
}
