//! Software stack: the behaviour of a framework and release.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::gpu::{AttentionKernel, Format, Gpu, Host};
use crate::schedule::Schedule;
use crate::sources::own_source;
use crate::split::LayerSplit;
use crate::units::{Bytes, Seconds};

mod adapters;
mod core_release;
mod gather;
mod graph_scope;
mod launches;
mod memory;
mod overlap;
mod quirks;
mod ranges;
mod release_limit;

pub use adapters::AdapterTraffic;
pub use core_release::CoreRelease;
pub use gather::TpGather;
pub use graph_scope::GraphScope;
pub use launches::{Launches, ModuleHooks};
pub use memory::MemoryUse;
pub use overlap::Overlap;
pub use quirks::Quirks;
pub use release_limit::ReleaseLimit;

/// Token dispatcher of expert parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dispatcher {
    /// NCCL all-to-all: every copy of a token is sent separately (`--moe-token-dispatcher-type alltoall`).
    AllToAll,
    /// One copy per destination rank (`flex` with DeepEP or `HybridEP`).
    DeepEp,
}

/// Ranks that reduce the maxima of FP8 tensors with delayed scaling. Source: [megatron-lm] `parallel_state.py`,
/// `get_amax_reduction_group`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AmaxReduction {
    /// No ranks: the scaling needs no maxima of other ranks, or does not request them.
    #[default]
    None,
    /// Tensor- and context-parallel ranks (`--tp-only-amax-red`).
    Tp,
    /// Tensor-, context- and data-parallel ranks.
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

const fn one() -> f64 {
    1.0
}

/// Framework at a release, with the parameters of the cost model.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name as printed.
    pub name: String,
    /// Family of the framework, which decides the plans that it can run.
    #[serde(rename = "framework")]
    pub family: Family,
    /// Release or period of the profile.
    pub release: String,
    /// Whether it prices code bases without a stack of their own, whose times spread more than those of one framework.
    #[serde(default)]
    pub generic: bool,
    /// Newest Megatron core that it stands for, whose features bound its plans; the newest of all if not stated.
    pub megatron_core: Option<CoreRelease>,
    /// Values of a plan's keys that bound its plans, where the release lacks features of later ones.
    #[serde(default)]
    pub limits: Vec<ReleaseLimit>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
    /// Traffic of streaming kernels relative to perfect fusion (EW).
    pub traffic: f64,
    /// Share of casts that are not fused into the producing kernel (QF).
    pub casts: f64,
    /// Extra memory passes of dynamic scaling (version 1.1, §2.5).
    #[serde(default = "one")]
    pub cast_passes: f64,
    /// Share of the experts' casts that are not fused, where it is not `casts`: grouped GEMMs quantize their inputs in kernels
    /// of their own. Source: [transformer-engine] `grouped_linear.py`.
    pub expert_casts: Option<f64>,
    /// Streams on which the GEMMs of experts run in turn, one launch each; zero for one grouped kernel, and the
    /// specification's ramp where not stated.
    pub expert_streams: Option<f64>,
    /// Whether norms, rotary embedding and residuals use Transformer Engine.
    pub transformer_engine: bool,
    /// Attention kernel of the stack.
    pub attention: AttentionKernel,
    /// Attention kernel on devices that do not run that one: PyTorch's `scaled_dot_product_attention` has a memory-efficient kernel for
    /// them, others compute attention by plain GEMMs.
    #[serde(default = "plain_attention")]
    pub older_attention: AttentionKernel,
    /// Keys that fused attention computes in addition to those in a window: blocks of keys at its edges are computed whole, and masked.
    #[serde(default)]
    pub window_edge: f64,
    /// Speed of fused attention with heads of 192 relative to heads of 128, forward.
    #[serde(default = "wide_heads_forward")]
    pub wide_heads_forward: f64,
    /// Speed of fused attention with heads of 192 relative to heads of 128, backward.
    #[serde(default = "wide_heads_backward")]
    pub wide_heads_backward: f64,
    /// Whether norms of queries and keys are kernels that cost time, which version 1.1 of the specification leaves out.
    #[serde(default)]
    pub qk_norm_kernels: bool,
    /// Whether RMSNorm and rotary embeddings run operator by operator, as in plain PyTorch (specification §2.4).
    #[serde(default)]
    pub eager_operators: bool,
    /// Whether RMSNorm is one kernel although other operators run one by one, such as FlashAttention's or Apex's.
    #[serde(default)]
    pub fused_norms: bool,
    /// Whether attention sinks have a fused kernel.
    #[serde(default)]
    pub fused_sinks: bool,
    /// Whether a checkpoint of core attention runs fused kernels again too, as Megatron-Core's does, although they keep no scores.
    #[serde(default)]
    pub checkpoints_fused_attention: bool,
    /// Whether attention over an indexer's keys alone has fused kernels. Source: [megatron-lm] `dsa_cudnn_kernels.py`.
    #[serde(default)]
    pub sparse_attention: bool,
    /// Whether weight gradients accumulate inside the GEMM.
    pub fused_wgrad: bool,
    /// Exposed share of the reads and writes of a weight gradient's fp32 sums.
    #[serde(default)]
    pub accumulate_exposed: f64,
    /// Whether cross-entropy is one kernel.
    pub fused_cross_entropy: bool,
    /// Whether the head has the model's own vocabulary, without padding.
    #[serde(default)]
    pub raw_vocabulary: bool,
    /// Whether CUDA graphs replay the layers' kernels.
    #[serde(default)]
    pub cuda_graphs: bool,
    /// Hosts beside which the release's recipes replay the layers of mixtures of experts from CUDA graphs, if any: the default of
    /// `cuda_graphs` for a mixture on such a machine.
    pub graphs_mixtures_beside: Option<Host>,
    /// Whether the CUDA graphs include the experts, as those of a whole iteration do. Source: [megatron-cuda-graphs].
    #[serde(default)]
    pub graphed_experts: bool,
    /// Modules that CUDA graphs hold where they hold modules.
    #[serde(default)]
    pub graph_scope: GraphScope,
    /// Traffic of permuting tokens to their experts and back, relative to one pass each way.
    #[serde(default = "one")]
    pub permute_traffic: f64,
    /// Traffic of experts with a bias beyond the fused activation, relative to the operators of Megatron-Core; zero
    /// where one kernel does it (specification §2.4).
    #[serde(default)]
    pub expert_bias: f64,
    /// Whether recomputation of a layer leaves out its last GEMM, whose output backward does not read (`torch.utils.checkpoint`
    /// without re-entry stops before it; JAX removes what nothing reads).
    #[serde(default)]
    pub checkpoint_early_stop: bool,
    /// Spread of step times between groups of eight GPUs, as a share of the step.
    #[serde(default = "jitter")]
    pub jitter: f64,
    /// Whether attention runs in FP8.
    #[serde(default)]
    pub fp8_attention: bool,
    /// Ranks that reduce maxima under per-tensor FP8.
    #[serde(default)]
    pub amax_reduction: AmaxReduction,
    /// Format in which tensor parallelism gathers activations.
    #[serde(default)]
    pub tp_gather: TpGather,
    /// Whether pipeline ranks send 1/tp of the activations each and gather them at the receiver (SC'21).
    #[serde(default)]
    pub scatter_gather: bool,
    /// Bytes of a gradient element on the wire.
    pub reduce_bytes: f64,
    /// Bytes of a parameter element on the wire.
    #[serde(default = "two")]
    pub gather_bytes: f64,
    /// Whether FSDP gathers parameters in 8 bits when GEMMs use narrow formats.
    #[serde(default)]
    pub fp8_all_gather: bool,
    /// Bytes of a gradient element in memory, if not `reduce_bytes`.
    pub gradient_bytes: Option<f64>,
    /// Size of a gradient bucket; by default Megatron's rule, max(40 M, 1 M·dp) elements.
    pub bucket: Option<Bytes>,
    /// Whether a collective in several messages approaches the network's bandwidth as each of them does. Version 1.1 of the
    /// specification takes the whole tensor.
    #[serde(default)]
    pub fills_by_message: bool,
    /// Whether attention over gathered keys and values merges one result a shard in fp32. Source: [pytorch-context-parallel].
    #[serde(default)]
    pub attends_by_shard: bool,
    /// Whether context parallelism exchanges keys and values for each head of queries. Source: [torchtitan] `repeat_kv`.
    #[serde(default)]
    pub repeats_keys: bool,
    /// Efficiency of FSDP's per-layer collectives.
    #[serde(default = "one")]
    pub fsdp_efficiency: f64,
    /// Activation memory relative to the formula of §6.3: 1.35 for unfused eager stacks.
    #[serde(default = "one")]
    pub activation_memory: f64,
    /// Bytes per logit of the loss head's working set, if not 6 fused and 12 unfused.
    pub logit_bytes: Option<f64>,
    /// Bytes per logit of a compiled loss, forward and backward; not that of tensor-parallel ranks.
    pub loss_traffic: Option<f64>,
    /// Share of a layer's activations that selective checkpointing by operator keeps.
    #[serde(default = "half")]
    pub per_op_kept: f64,
    /// Whether Transformer Engine keeps one weight-gradient buffer per weight shape (§6.5).
    #[serde(default)]
    pub wgrad_cache: bool,
    /// ZeRO stage of runs that do not state one.
    pub default_zero: Option<u8>,
    /// Default split of layers over stages.
    #[serde(default)]
    pub split: LayerSplit,
    /// Default token dispatcher.
    pub dispatcher: Dispatcher,
    /// Load of the busiest expert rank relative to the mean without balanced routing (ξ).
    #[serde(default = "imbalance")]
    pub expert_imbalance: f64,
    /// Whether only the all-to-all dispatcher can drop tokens.
    #[serde(default)]
    pub drops_by_all_to_all: bool,
    /// Whether tokens of tensor-parallel experts are sent in two hops: to one rank of the expert's group, then gathered
    /// within it. Source: [megatron-dispatcher].
    #[serde(default)]
    pub gathers_expert_tokens: bool,
    /// Whether the all-to-all dispatcher sorts the tokens of several local experts after dispatch, and back before combine.
    /// Source: [megatron-dispatcher].
    #[serde(default)]
    pub sorts_received_tokens: bool,
    /// Whether the all-to-all dispatcher sends the weights of tokens in an exchange of their own. Source: [megatron-dispatcher].
    #[serde(default)]
    pub sends_token_weights: bool,
    /// Whether state-space layers run `mamba_ssm`'s scan by chunks (specification §2.3). Source: [mamba-ssm].
    #[serde(default)]
    pub scans_by_chunk: bool,
    /// Memory that it frees, caches and reserves.
    #[serde(default)]
    pub memory: MemoryUse,
    /// Host time of the update of one parameter of an offloaded optimizer, copies included, while eight ranks of a node update.
    #[serde(default = "host_update")]
    pub host_update: Seconds,
    /// Operators of low-rank adapters; if not stated, adapters cost their share of weight gradients alone.
    pub adapters: Option<AdapterTraffic>,
    /// Kernel launches per layer.
    pub launches: Launches,
    /// Overlap of communication with compute.
    pub overlap: Overlap,
    /// Costs that only this framework has.
    #[serde(default)]
    pub quirks: Quirks,
}

const fn plain_attention() -> AttentionKernel {
    AttentionKernel::Unfused
}

/// Default imbalance. Source: specification §2.8, version 1.1 [P].
const fn imbalance() -> f64 {
    1.05
}

/// `H_f` of 192. Source: specification §2.3.
const fn wide_heads_forward() -> f64 {
    0.90
}

/// `H_b` of 192. Source: specification §2.3.
const fn wide_heads_backward() -> f64 {
    0.80
}

/// Default host time of the update of one parameter: 1.5 to 1.8 ns. Source: specification §6.8 ([megatron-bridge-offload]).
fn host_update() -> Seconds {
    Seconds::micros(1.65e-3)
}

/// Default share kept by checkpointing per operator. Source: specification §6.3, version 1.1.
const fn half() -> f64 {
    0.5
}

/// Default jitter. Source: specification §7.5.
const fn jitter() -> f64 {
    0.01 / 3.0
}

const fn two() -> f64 {
    2.0
}

impl Stack {
    /// Name of the default byte recipe where most GEMMs are in `format`.
    pub fn usual_recipe(&self, format: Format) -> &str {
        let narrow = self.memory.narrow_recipe.as_deref().filter(|_| format.replaces_weights());
        let by_gradients = if self.reduce_bytes <= 2.0 { "megatron-bf16-grads" } else { "megatron" };
        narrow.or(self.memory.recipe.as_deref()).unwrap_or(by_gradients)
    }

    /// Attention kernel on a device: its own where the device runs it, else that of older devices.
    pub(crate) fn attention_on(&self, gpu: &Gpu) -> AttentionKernel {
        match self.attention {
            kernel if gpu.runs(kernel) => kernel,
            AttentionKernel::Fa3 if gpu.runs(AttentionKernel::Cudnn) => AttentionKernel::Cudnn,
            _ => self.older_attention,
        }
    }

    /// Validates the stack.
    ///
    /// # Errors
    ///
    /// Names the field that is zero or out of its range.
    pub fn check(&self) -> Result<(), String> {
        self.check_ranges().map_err(|why| why.to_string())
    }
}

/// Training framework, or family of frameworks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Megatron-LM, `NeMo` and Megatron-Bridge, all on Megatron-Core.
    Megatron,
    /// Megatron-DeepSpeed (BLOOM, vTrain).
    MegatronDeepspeed,
    /// DeepSpeed with the user's own model code.
    Deepspeed,
    /// torchtitan and other FSDP2 with `torch.compile`.
    Torchtitan,
    /// Eager PyTorch FSDP: llm-foundry, `NeMo` Automodel, Accelerate.
    Fsdp,
    /// nanotron, by Hugging Face.
    Nanotron,
    /// `InternEvo`, by Shanghai AI Laboratory.
    Internevo,
    /// JAX frameworks: `MaxText`, Paxml.
    Jax,
    /// In-house frameworks, such as DeepSeek's HAI-LLM and Meta's: published, but not available.
    Internal,
}

impl Family {
    /// Whether it runs a schedule.
    ///
    /// Source: [megatron-lm] (1F1B and interleaved; no zero-bubble or `DualPipe` in core), [torchtitan]
    /// `pipeline_parallel_schedule`, [deepspeed] pipeline engine (1F1B), [nanotron] `pp_engine` (1f1b, afab), [maxtext]
    /// `pipeline.py`: all micro-batches forward before any backward, `num_pipeline_repeats` chunks a rank in a circle.
    pub const fn runs(self, schedule: Schedule) -> bool {
        if matches!(self, Self::Internal) {
            return true;
        }
        match schedule {
            Schedule::OneFOneB => !matches!(self, Self::Jax),
            Schedule::GPipe => matches!(self, Self::Torchtitan | Self::Jax | Self::Nanotron | Self::Fsdp),
            Schedule::Interleaved { .. } => !matches!(self, Self::Jax | Self::Deepspeed | Self::Nanotron),
            Schedule::LoopedBfs { .. } => matches!(self, Self::Torchtitan | Self::Jax),
            Schedule::ZbH1 | Schedule::ZbV | Schedule::DualPipeV => matches!(self, Self::Torchtitan),
            Schedule::Naive | Schedule::ZbH2 | Schedule::DualPipe => false,
        }
    }
}
