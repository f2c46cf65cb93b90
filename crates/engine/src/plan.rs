//! Plan: degrees, schedule, sharding, recomputation and the other choices of one layout.

pub mod text;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::schedule::{PipelineShape, Schedule};
use crate::split::LayerSplit;
use crate::stack::Dispatcher;

/// Degrees of parallelism. Expert-parallel ranks are the (tp, cp, dp) ranks of a stage, folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Tensor-parallel size (`--tensor-model-parallel-size`).
    pub tp: u32,
    /// Context-parallel size (`--context-parallel-size`).
    pub cp: u32,
    /// Pipeline-parallel size (`--pipeline-model-parallel-size`).
    pub pp: u32,
    /// Data-parallel size, derived: world / (tp·cp·pp).
    pub dp: u32,
    /// Expert-parallel size (`--expert-model-parallel-size`).
    pub ep: u32,
    /// Expert tensor-parallel size (`--expert-tensor-parallel-size`).
    pub etp: u32,
}

impl Layout {
    /// Layout with data parallelism alone.
    pub const fn data_parallel(dp: u32) -> Self {
        Self { tp: 1, cp: 1, pp: 1, dp, ep: 1, etp: 1 }
    }
    /// Number of GPUs in use.
    pub const fn world_size(&self) -> u32 {
        self.tp * self.cp * self.pp * self.dp
    }
    /// Number of ranks with identical dense weights: dp·cp.
    pub const fn dense_replicas(&self) -> u32 {
        self.dp * self.cp
    }
    /// Number of ranks with identical experts: world / (pp·ep·etp).
    pub const fn expert_replicas(&self) -> u32 {
        let ranks = self.tp * self.cp * self.dp;
        let experts = self.ep * self.etp;
        if experts >= ranks { 1 } else { ranks / experts }
    }
}

/// Exchange of keys and values in a context-parallel group (`--cp-comm-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpKind {
    /// `p2p`: a ring of key-value blocks.
    #[default]
    Ring,
    /// `allgather`: all keys and values at once.
    AllGather,
    /// `a2a`: heads for tokens (Ulysses).
    AllToAll,
    /// `a2a+p2p`: heads inside the scale-up domain, a ring across.
    Hierarchical,
}

/// ZeRO stage: tensors that data-parallel ranks shard instead of replicating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum ZeroStage {
    /// No sharding (DDP).
    #[default]
    Zero,
    /// Shards optimizer states (`--use-distributed-optimizer`).
    One,
    /// Shards optimizer states and gradients.
    Two,
    /// Shards optimizer states, gradients and weights (FSDP).
    Three,
}

impl From<ZeroStage> for u8 {
    fn from(stage: ZeroStage) -> Self {
        stage as Self
    }
}

impl TryFrom<u8> for ZeroStage {
    type Error = String;
    fn try_from(stage: u8) -> Result<Self, String> {
        match stage {
            0 => Ok(Self::Zero),
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            3 => Ok(Self::Three),
            _ => Err(format!("ZeRO stage {stage} is not 0, 1, 2 or 3")),
        }
    }
}

/// Modules that selective recomputation covers (`--recompute-modules`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // a set of six flags that Megatron names one by one
pub struct Modules {
    /// `core_attn`: scores, softmax and context of unfused attention.
    pub core_attn: bool,
    /// `layernorm`: the norms of a layer.
    pub layernorm: bool,
    /// `moe_act` (and the MLP's activation).
    pub act: bool,
    /// `mla_up_proj`: up-projections of latent attention.
    pub mla_up_proj: bool,
    /// `mlp`: the dense MLP.
    pub mlp: bool,
    /// `moe`: router, dispatch and experts.
    pub moe: bool,
}

impl Modules {
    /// Attention and the MLP, which MaxText's policy `save_dot_except_mlp` recomputes. Source: [maxtext].
    pub const ATTENTION_AND_MLP: Self =
        Self { core_attn: true, layernorm: false, act: false, mla_up_proj: false, mlp: true, moe: false };

    /// All modules with their Megatron names.
    pub const fn named(self) -> [(&'static str, bool); 6] {
        let Self { core_attn, layernorm, act, mla_up_proj, mlp, moe } = self;
        [
            ("core_attn", core_attn),
            ("layernorm", layernorm),
            ("act", act),
            ("mla_up_proj", mla_up_proj),
            ("mlp", mlp),
            ("moe", moe),
        ]
    }
}

/// Activations that backward recomputes instead of keeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// No recomputation.
    #[default]
    None,
    /// Named modules of every layer.
    Selective(Modules),
    /// Every second GEMM (torch's selective checkpointing per operation).
    PerOp,
    /// Every other layer.
    EveryOther,
    /// The first `n` layers of each chunk, whole (`--recompute-method block`).
    FirstLayers(u32),
    /// Every layer, whole (`--recompute-granularity full`).
    Full,
}

/// Shares of tensors that are offloaded to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offload {
    /// Share of the optimizer states, with their update, on the host.
    pub optimizer: f64,
    /// Share of the activations offloaded between forward and backward.
    pub activations: f64,
}

impl Offload {
    /// No offload to the host.
    pub const NONE: Self = Self { optimizer: 0.0, activations: 0.0 };
}

/// Order in which ranks are numbered, innermost dimension first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RankOrder {
    /// `tp-cp-ep-dp-pp`, Megatron's default: stages are far apart.
    #[default]
    #[serde(rename = "tp-cp-ep-dp-pp")]
    PipelineOutermost,
    /// `tp-cp-ep-pp-dp` (`--use-tp-pp-dp-mapping`): replicas are far apart.
    #[serde(rename = "tp-cp-ep-pp-dp")]
    DataOutermost,
}

/// Plan: one way to run a problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Degrees of parallelism.
    #[serde(flatten)]
    pub layout: Layout,
    /// Megatron's sequence parallelism (`--sequence-parallel`).
    pub sequence_parallel: bool,
    /// Exchange of keys and values in context parallelism.
    pub cp_kind: CpKind,
    /// Pipeline schedule.
    pub schedule: Schedule,
    /// Split of the layers into chunks.
    pub split: LayerSplit,
    /// ZeRO stage of the data-parallel ranks.
    pub zero: ZeroStage,
    /// Number of ranks that share one copy (HSDP, partial distributed optimizer); all dp·cp ranks if `None`.
    pub shard_group: Option<u32>,
    /// Whether FSDP frees a layer's gathered weights after its forward pass.
    pub reshard_after_forward: bool,
    /// Sequences of one micro-batch.
    pub micro_batch: u32,
    /// Activations that backward recomputes.
    pub recompute: Recompute,
    /// Tensors offloaded to the host.
    pub offload: Offload,
    /// Token dispatcher of expert parallelism.
    pub dispatcher: Dispatcher,
    /// Order in which ranks are numbered.
    pub order: RankOrder,
}

impl Plan {
    /// Plan of a layout with 1F1B over even stages, ZeRO 1, micro-batches of one sequence, and nothing recomputed or offloaded.
    pub fn of_layout(layout: Layout) -> Self {
        Self {
            layout,
            sequence_parallel: false,
            cp_kind: CpKind::Ring,
            schedule: Schedule::OneFOneB,
            split: LayerSplit::Even,
            zero: ZeroStage::One,
            shard_group: None,
            reshard_after_forward: true,
            micro_batch: 1,
            recompute: Recompute::None,
            offload: Offload::NONE,
            dispatcher: Dispatcher::AllToAll,
            order: RankOrder::default(),
        }
    }

    /// The plan with another recomputation.
    pub(crate) fn recomputing(&self, recompute: Recompute) -> Cow<'_, Self> {
        if recompute == self.recompute { Cow::Borrowed(self) } else { Cow::Owned(Self { recompute, ..self.clone() }) }
    }

    /// The plan with another offload.
    pub(crate) fn offloading(&self, offload: Offload) -> Cow<'_, Self> {
        if offload == self.offload { Cow::Borrowed(self) } else { Cow::Owned(Self { offload, ..self.clone() }) }
    }

    /// The schedule on the pipeline ranks.
    pub const fn pipeline(&self) -> PipelineShape {
        self.schedule.on(self.layout.pp)
    }

    /// Micro-batches per step of each replica; fractional if a published batch does not divide.
    pub fn micro_batches(&self, global_batch: u32) -> f64 {
        f64::from(global_batch) / (f64::from(self.layout.dp) * f64::from(self.micro_batch))
    }

    /// Tokens of one micro-batch on one context-parallel rank.
    pub fn tokens(&self, seq_len: u32) -> f64 {
        f64::from(self.micro_batch) * f64::from(seq_len) / f64::from(self.layout.cp)
    }

    /// Number of ranks that divide the tokens of norms and residuals: tp under sequence parallelism, else 1.
    pub fn sequence_shards(&self) -> f64 {
        if self.sequence_parallel { f64::from(self.layout.tp) } else { 1.0 }
    }

    /// Number of ranks over which ZeRO shards dense weights.
    pub fn dense_shards(&self) -> u32 {
        let all = self.layout.dense_replicas();
        match self.shard_group {
            Some(group) if group > 1 && group < all && self.zero >= ZeroStage::One => group,
            Some(_) | None => all,
        }
    }

    /// Parameters whose optimizer states a rank holds, of its dense and expert parameters: under ZeRO 1 and above its
    /// share over dp·cp, or over the replicas of the experts.
    pub(crate) fn optimizer_shard(&self, dense: f64, experts: f64) -> f64 {
        if self.zero == ZeroStage::Zero {
            return dense + experts;
        }
        dense / f64::from(self.dense_shards()) + experts / f64::from(self.layout.expert_replicas())
    }
}
