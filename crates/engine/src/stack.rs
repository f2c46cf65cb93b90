//! What the training software does: one profile per framework and release.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::Host;
use crate::gpu::AttentionKernel;
use crate::schedule::Schedule;
use crate::sources::own_source;
use crate::split::LayerSplit;
use crate::units::{Bytes, Seconds};

/// How tokens reach their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dispatcher {
    /// NCCL all-to-all: every copy of a token crosses on its own (`--moe-token-dispatcher-type alltoall`).
    AllToAll,
    /// One copy per destination rank (`flex` with DeepEP or `HybridEP`).
    DeepEp,
}

/// Which ranks agree on the largest values of FP8 tensors that scale with delay. Source: [megatron-lm] `parallel_state.py`,
/// `get_amax_reduction_group`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AmaxReduction {
    /// None: its scaling needs no maxima of other ranks, or does not ask for them.
    #[default]
    None,
    /// Tensor and context parallel ranks (`--tp-only-amax-red`).
    Tp,
    /// Data parallel ranks too.
    All,
}

impl fmt::Display for AmaxReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Tp => "tp",
            Self::All => "all",
        })
    }
}

/// Kernel launches of one layer and micro-batch, and what the host pays for each (specification §2.9).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Launches {
    /// Forward.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
    /// Per local expert, forward, in bf16; twice that backward.
    #[serde(default)]
    pub per_expert_bf16: f64,
    /// The same in narrower formats.
    #[serde(default)]
    pub per_expert_narrow: f64,
    /// Launches of the experts count by themselves, times this: the host reads the token counts back before it can launch
    /// them, so none of them is queued while earlier kernels run. Zero lets the whole layer's launches run ahead.
    #[serde(default)]
    pub expert_wait: f64,
    /// Whether each of those launches costs the device its gap too: an expert's casts are kernels of their own.
    #[serde(default)]
    pub expert_gaps: bool,
    /// Host time of one launch on x86.
    pub x86: Seconds,
    /// Host time of one launch on Grace.
    pub grace: Seconds,
}

impl Launches {
    /// Host time of one launch.
    pub const fn host_time(&self, host: Host) -> Seconds {
        match host {
            Host::X86 => self.x86,
            Host::Grace => self.grace,
        }
    }
}

/// What communication hides behind compute (specification §5).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Hidden share of tensor-parallel collectives (θ_tp).
    pub tp: f64,
    /// Whether gradients and parameters move behind backward and forward.
    pub dp: bool,
    /// Whether that window spans the interleaved chunks (§5.2, version 1.1).
    #[serde(default)]
    pub dp_interleaved_window: bool,
    /// Whether stage-to-stage sends are asynchronous.
    pub pp: bool,
    /// Share of attention that hides the ring of context parallelism (ω_cp).
    pub cp: f64,
    /// Hidden share of expert all-to-alls (θ_ep): 1 with batch-level overlap.
    pub ep: f64,
    /// Whether FSDP prefetches the next layer.
    #[serde(default = "yes")]
    pub fsdp_prefetch: bool,
}

const fn yes() -> bool {
    true
}

const fn one() -> f64 {
    1.0
}

/// Costs that one framework has and others do not. Zero and one are "none".
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    /// Host synchronisation per layer and micro-batch, a third of it forward.
    pub sync_per_layer: Seconds,
    /// The same where routing drops no tokens and no CUDA graph runs: the host reads the token counts back.
    pub moe_sync_per_layer: Seconds,
    /// Floor of a layer's four tensor-parallel collectives when pp > 1, per doubling of tp (nanotron).
    pub tp_floor: Seconds,
    /// Extra latency of a tensor-parallel collective per scale-up domain it spans (nanotron).
    pub cross_domain_tp_latency: Seconds,
    /// Efficiency of tensor-parallel collectives that leave the scale-up domain (nanotron).
    pub cross_domain_tp_efficiency: f64,
    /// Multiplies the network's efficiency.
    pub network_efficiency: f64,
    /// ZeRO-1 broadcasts parameters owner by owner, each so long (`InternEvo`).
    pub broadcast_per_owner: Seconds,
    /// Gradients are synchronised after every micro-batch.
    pub sync_every_micro_batch: bool,
    /// What the host does once a step while the device waits: loading data, clipping, logging.
    pub step_overhead: Seconds,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            sync_per_layer: Seconds::ZERO,
            moe_sync_per_layer: Seconds::ZERO,
            tp_floor: Seconds::ZERO,
            cross_domain_tp_latency: Seconds::ZERO,
            cross_domain_tp_efficiency: 1.0,
            network_efficiency: 1.0,
            broadcast_per_owner: Seconds::ZERO,
            sync_every_micro_batch: false,
            step_overhead: Seconds::ZERO,
        }
    }
}

/// A framework at a release, as the cost model sees it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name as printed.
    pub name: String,
    /// Family of software, which decides what plans it runs.
    #[serde(rename = "framework")]
    pub family: Family,
    /// Release or period that it describes.
    pub release: String,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
    /// Traffic of streaming kernels against perfectly fused ones (EW).
    pub traffic: f64,
    /// Share of casts that no producer does on the way (QF).
    pub casts: f64,
    /// Extra traffic of dynamic scaling (version 1.1, §2.5).
    #[serde(default = "one")]
    pub cast_passes: f64,
    /// Whether norms, rotary embedding and residuals are Transformer Engine's.
    pub transformer_engine: bool,
    /// Attention kernel.
    pub attention: AttentionKernel,
    /// Whether attention sinks have a fused kernel.
    #[serde(default)]
    pub fused_sinks: bool,
    /// Whether weight gradients accumulate inside the product.
    pub fused_wgrad: bool,
    /// Share of a weight gradient's reading and writing of its fp32 sums that no mathematics hides.
    #[serde(default)]
    pub accumulate_exposed: f64,
    /// Whether cross-entropy is one kernel.
    pub fused_cross_entropy: bool,
    /// Whether CUDA graphs replay the layers.
    #[serde(default)]
    pub cuda_graphs: bool,
    /// Whether the graphs hold the experts too: those of a whole iteration do, those of modules do not.
    /// Source: [megatron-cuda-graphs].
    #[serde(default)]
    pub graphed_experts: bool,
    /// Traffic of permuting tokens to their experts and back, against one pass each way.
    #[serde(default = "one")]
    pub permute_traffic: f64,
    /// Whether recomputation of a layer stops once backward has all it needs: before the layer's last product
    /// (`torch.utils.checkpoint` without re-entry).
    #[serde(default)]
    pub checkpoint_early_stop: bool,
    /// Spread of step times between groups of eight GPUs, as a share of the step.
    #[serde(default = "jitter")]
    pub jitter: f64,
    /// FP8 attention.
    #[serde(default)]
    pub fp8_attention: bool,
    /// Which ranks agree on maxima under per-tensor FP8.
    #[serde(default)]
    pub amax_reduction: AmaxReduction,
    /// Whether stages send 1/tp each and gather at the receiver (SC'21).
    #[serde(default)]
    pub scatter_gather: bool,
    /// Bytes of a gradient element on the wire.
    pub reduce_bytes: f64,
    /// Bytes of a parameter element on the wire.
    #[serde(default = "two")]
    pub gather_bytes: f64,
    /// FSDP gathers parameters in 8 bits when products are narrow.
    #[serde(default)]
    pub fp8_all_gather: bool,
    /// Bytes of a gradient element in memory, where not `reduce_bytes`.
    pub gradient_bytes: Option<f64>,
    /// Size of a gradient bucket; absent is Megatron's rule, max(40 M, 1 M·dp) elements.
    pub bucket: Option<Bytes>,
    /// Whether attention over gathered keys and values still runs shard by shard, each result merged into the last in fp32
    /// (PyTorch's context parallelism). Source: [pytorch-context-parallel].
    #[serde(default)]
    pub attends_by_shard: bool,
    /// Efficiency of FSDP's per-layer collectives.
    #[serde(default = "one")]
    pub fsdp_efficiency: f64,
    /// Activations against the formula of §6.3: 1.35 for un-fused eager stacks.
    #[serde(default = "one")]
    pub activation_memory: f64,
    /// Bytes per logit of the loss head's working set, where not 6 fused and 12 unfused.
    pub logit_bytes: Option<f64>,
    /// Share of a layer's activations that selective checkpointing by operator keeps.
    #[serde(default = "half")]
    pub per_op_kept: f64,
    /// Whether Transformer Engine keeps one weight-gradient buffer per weight shape (§6.5).
    #[serde(default)]
    pub wgrad_cache: bool,
    /// ZeRO stage of a run that states none.
    pub default_zero: Option<u8>,
    /// Default split of layers over stages.
    #[serde(default)]
    pub split: LayerSplit,
    /// Dispatcher it uses by default.
    pub dispatcher: Dispatcher,
    /// Load of the busiest expert rank where nothing balances routing (ξ).
    #[serde(default = "imbalance")]
    pub expert_imbalance: f64,
    /// Whether only the all-to-all dispatcher can drop tokens.
    #[serde(default)]
    pub drops_by_all_to_all: bool,
    /// Whether tokens of tensor-parallel experts cross in two hops: to one rank of the expert's group, then gathered within it.
    /// Source: [megatron-dispatcher].
    #[serde(default)]
    pub gathers_expert_tokens: bool,
    /// Launches.
    pub launches: Launches,
    /// Overlap.
    pub overlap: Overlap,
    /// What only this framework pays.
    #[serde(default)]
    pub quirks: Quirks,
}

/// Source: specification §2.8, version 1.1 [P].
const fn imbalance() -> f64 {
    1.05
}

/// Source: specification §6.3, version 1.1.
const fn half() -> f64 {
    0.5
}

/// Source: specification §7.5.
const fn jitter() -> f64 {
    0.01 / 3.0
}

const fn two() -> f64 {
    2.0
}

impl Stack {
    /// The byte recipe that is taken where none is named.
    pub fn usual_recipe(&self) -> &'static str {
        if self.reduce_bytes <= 2.0 { "megatron-bf16-grads" } else { "megatron" }
    }

    /// Checks what every plan would trip over.
    ///
    /// # Errors
    /// Names the field that is zero or out of its range.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("traffic", self.traffic),
            ("cast_passes", self.cast_passes),
            ("reduce_bytes", self.reduce_bytes),
            ("gather_bytes", self.gather_bytes),
            ("fsdp_efficiency", self.fsdp_efficiency),
            ("activation_memory", self.activation_memory),
            ("permute_traffic", self.permute_traffic),
            ("bucket", self.bucket.map_or(1.0, Bytes::get)),
            ("quirks.network_efficiency", self.quirks.network_efficiency),
            ("quirks.cross_domain_tp_efficiency", self.quirks.cross_domain_tp_efficiency),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value <= 0.0) {
            return Err(format!("`{name}` must be above 0"));
        }
        if self.expert_imbalance < 1.0 {
            return Err("`expert_imbalance` must be 1 or more".into());
        }
        let shares = [
            ("overlap.tp", self.overlap.tp),
            ("overlap.cp", self.overlap.cp),
            ("overlap.ep", self.overlap.ep),
            ("accumulate_exposed", self.accumulate_exposed),
        ];
        if let Some((name, share)) = shares.iter().find(|(_, share)| *share > 1.0) {
            return Err(format!("`{name}` is {share}, and a share is at most 1"));
        }
        Ok(())
    }
}

/// A family of training software: frameworks that run the same schedules and shard alike, priced by the same terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Megatron-LM, `NeMo`, Megatron-Bridge: all on Megatron-Core.
    Megatron,
    /// Megatron-DeepSpeed (BLOOM, vTrain).
    MegatronDeepspeed,
    /// DeepSpeed with a model of one's own.
    Deepspeed,
    /// torchtitan and other FSDP2 with `torch.compile`.
    Torchtitan,
    /// Eager PyTorch FSDP: llm-foundry, `NeMo` Automodel, Accelerate.
    Fsdp,
    /// nanotron.
    Nanotron,
    /// `InternEvo`.
    Internevo,
    /// JAX: `MaxText`, Paxml.
    Jax,
    /// DeepSeek's own HAI-LLM, and Meta's: published, not to be had.
    Internal,
}

impl Family {
    /// Whether it runs a schedule.
    ///
    /// Source: [megatron-lm] (1F1B and interleaved; no zero-bubble or `DualPipe` in core), [torchtitan]
    /// `pipeline_parallel_schedule`, [deepspeed] pipeline engine (1F1B), [nanotron] `pp_engine` (1f1b, afab).
    pub const fn runs(self, schedule: Schedule) -> bool {
        match self {
            Self::Internal => true,
            Self::Megatron | Self::MegatronDeepspeed | Self::Internevo => {
                matches!(schedule, Schedule::OneFOneB | Schedule::Interleaved { .. })
            }
            Self::Torchtitan | Self::Jax => !matches!(schedule, Schedule::DualPipe | Schedule::Naive | Schedule::ZbH2),
            Self::Deepspeed => matches!(schedule, Schedule::OneFOneB),
            Self::Nanotron => matches!(schedule, Schedule::OneFOneB | Schedule::GPipe),
            Self::Fsdp => matches!(schedule, Schedule::OneFOneB | Schedule::GPipe | Schedule::Interleaved { .. }),
        }
    }
}
