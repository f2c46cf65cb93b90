//! Reasons why a plan cannot run: values with their numbers.

use meshwright_engine::schedule::Schedule;
use meshwright_engine::schedule::ops::MOST_PASSES;
use meshwright_engine::units::{Bytes, apart};

/// Reason why a plan cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The product of the degrees is not the number of GPUs.
    #[error("tp·cp·pp·dp = {world} is not the {gpus} GPUs of the cluster")]
    WorldSize {
        /// Product of the degrees.
        world: u64,
        /// Number of GPUs of the cluster.
        gpus: u32,
    },
    /// Tensor parallelism does not divide the attention heads.
    #[error("tp={tp} does not divide the {heads} heads")]
    Heads {
        /// Tensor-parallel size.
        tp: u32,
        /// Number of attention heads.
        heads: u32,
    },
    /// Tensor parallelism does not divide the intermediate size.
    #[error("tp={tp} does not divide the intermediate size {width}")]
    FfnWidth {
        /// Tensor-parallel size.
        tp: u32,
        /// Intermediate size.
        width: u32,
    },
    /// Tensor parallelism neither divides nor multiplies the key-value heads.
    #[error("tp={tp} neither divides the {kv_heads} key-value heads nor is a multiple of them")]
    KvHeads {
        /// Tensor-parallel size.
        tp: u32,
        /// Number of key-value heads.
        kv_heads: u32,
    },
    /// The model has fewer layers than the pipeline has chunks.
    #[error("pp={pp} with {virtual_stages} chunks per rank needs at least {chunks} layers; the model has {layers}")]
    TooFewLayers {
        /// Pipeline-parallel size.
        pp: u32,
        /// Chunks per rank.
        virtual_stages: u32,
        /// Number of chunks of the pipeline.
        chunks: u32,
        /// Number of layers, with embedding and loss where they count as layers.
        layers: u32,
    },
    /// A split that spells out layers does not fit the model or the pipeline.
    #[error("split={split}: {why}")]
    Split {
        /// The split as text.
        split: String,
        /// Reason, with its numbers.
        why: String,
    },
    /// The schedule does not fit the number of pipeline ranks.
    #[error("schedule {schedule} does not run on pp={pp}: {why}")]
    Schedule {
        /// The schedule.
        schedule: Schedule,
        /// Pipeline-parallel size.
        pp: u32,
        /// Requirement of the schedule.
        why: &'static str,
    },
    /// The global batch does not divide into micro-batches of all replicas.
    #[error("a global batch of {global_batch} is not a multiple of dp·micro-batch = {dp}·{micro_batch}")]
    Batch {
        /// Sequences of one step.
        global_batch: u32,
        /// Data-parallel size.
        dp: u32,
        /// Sequences per micro-batch.
        micro_batch: u32,
    },
    /// Interleaving needs whole groups of pp micro-batches.
    #[error("interleaving needs the {micro_batches} micro-batches to be a multiple of pp={pp}")]
    InterleavedBatch {
        /// Micro-batches per replica.
        micro_batches: u32,
        /// Pipeline-parallel size.
        pp: u32,
    },
    /// A step has more passes than are simulated.
    #[error(
        "{micro_batches} micro-batches through {chunks} virtual stages are {passes} passes, and {MOST_PASSES} can be \
         simulated: a larger micro-batch, a larger dp or a smaller pp has fewer"
    )]
    TooManyPasses {
        /// Micro-batches per replica.
        micro_batches: u32,
        /// Virtual stages of the pipeline.
        chunks: u32,
        /// Passes in one direction.
        passes: u64,
    },
    /// The sequence length is no multiple of the number that tp, sp or cp require.
    #[error("a sequence of {seq_len} tokens does not divide by {by} ({why})")]
    Sequence {
        /// Sequence length in tokens.
        seq_len: u32,
        /// Required divisor.
        by: u32,
        /// Setting that requires it.
        why: &'static str,
    },
    /// Ulysses attention needs a key-value head for each context-parallel rank.
    #[error("cp={cp} by all-to-all needs {cp} key-value heads on each tensor-parallel rank; there are {heads}")]
    UlyssesHeads {
        /// Context-parallel size.
        cp: u32,
        /// Key-value heads of one tensor-parallel rank.
        heads: u32,
    },
    /// The groups of a Mamba-2 block beside attention do not divide by the tensor-parallel size.
    #[error("tp={tp} does not divide the {groups} groups of Mamba beside attention, whose B and C stay on one rank")]
    MambaGroups {
        /// Tensor-parallel size.
        tp: u32,
        /// Groups of the Mamba-2 block.
        groups: u32,
    },
    /// Attention over chosen keys has no fused kernels where ranks share a sequence.
    #[error(
        "cp={cp}: ranks that share a sequence have no fused kernel for the scores of an indexer, unless it is packed"
    )]
    SharedSequence {
        /// Context-parallel size.
        cp: u32,
    },
    /// Heads of a rank neither fill a block of the kernels of sparse attention nor divide it.
    #[error(
        "{heads} heads on a rank neither divide the {block} that kernels of sparse attention compute together nor are a multiple"
    )]
    HeadBlock {
        /// Heads of one tensor-parallel rank.
        heads: u32,
        /// Heads of a block.
        block: u32,
    },
    /// The index scores of a micro-batch exceed those of one kernel.
    #[error("index scores of {micro_batch} sequences take {needed}, and a fused kernel computes {most} at the most")]
    IndexScores {
        /// Sequences per micro-batch.
        micro_batch: u32,
        /// Bytes of the scores.
        needed: Bytes,
        /// Most bytes of one kernel.
        most: Bytes,
    },
    /// The experts do not divide by the expert-parallel size.
    #[error("ep={ep} does not divide the {experts} experts")]
    Experts {
        /// Expert-parallel size.
        ep: u32,
        /// Number of experts.
        experts: u32,
    },
    /// The expert grid does not divide the ranks of a stage.
    #[error("ep·etp = {ep}·{etp} does not divide the tp·cp·dp = {ranks} ranks of a stage")]
    ExpertGrid {
        /// Expert-parallel size.
        ep: u32,
        /// Expert tensor-parallel size.
        etp: u32,
        /// Number of ranks of a stage.
        ranks: u32,
    },
    /// The groups do not divide a scale-up domain, and the cluster has fewer domains than the plan then needs.
    #[error(
        "its groups fill {filled} of the {domain} GPUs of a scale-up domain, so it needs {needed} such domains, and the cluster has {had}: \
         --gpus {} fills those",
        filled * had
    )]
    Domains {
        /// GPUs that the plan fills of each domain.
        filled: u32,
        /// GPUs of a domain.
        domain: u32,
        /// Domains that the plan needs.
        needed: u32,
        /// Domains that the cluster has.
        had: u32,
    },
    /// A dense model has an expert-parallel setting.
    #[error("{what} is for mixtures of experts, and the model is dense")]
    Dense {
        /// Name of the setting.
        what: &'static str,
    },
    /// Frameworks refuse this combination of settings.
    #[error("{0}")]
    Combination(&'static str),
    /// The plan is forbidden by the restrictions, or lies outside of them.
    #[error("{0} was forbidden, or other values were fixed")]
    Restricted(String),
    /// The requested framework has no such setting.
    #[error("{framework} cannot express {what}: {why}")]
    Inexpressible {
        /// Name of the framework.
        framework: &'static str,
        /// The setting, as text of a plan.
        what: String,
        /// Reason, in the framework's terms.
        why: String,
    },
    /// The fullest rank exceeds the memory budget.
    #[error("needs {} on pipeline rank {rank}, and {} may be filled", apart(*needed, *available)[0], apart(*needed, *available)[1])]
    OutOfMemory {
        /// Memory of the fullest rank.
        needed: Bytes,
        /// Memory budget of a device.
        available: Bytes,
        /// Pipeline rank with that memory.
        rank: u32,
    },
    /// Weights and gradients alone, split over all GPUs, exceed the memory budget.
    #[error(
        "weights and gradients alone need {} on each of {gpus} GPUs, and {} may be filled: at least {least} GPUs",
        apart(*needed, *available)[0], apart(*needed, *available)[1]
    )]
    TooFewGpus {
        /// Bytes of weights and gradients of one GPU, if they are split over all.
        needed: Bytes,
        /// Memory budget of a device.
        available: Bytes,
        /// Number of GPUs.
        gpus: u32,
        /// Fewest GPUs that hold them.
        least: u64,
    },
    /// Offloaded data exceed the memory of a host.
    #[error("offloads {} to a host that has {}", apart(*needed, *available)[0], apart(*needed, *available)[1])]
    HostMemory {
        /// Bytes offloaded by the ranks of the fullest host.
        needed: Bytes,
        /// Memory of one host.
        available: Bytes,
    },
}

impl Rejection {
    /// Rule of a plan that exceeds the memory of a device.
    pub const OUT_OF_MEMORY: &'static str = "out-of-memory";

    /// Whether only memory prevents the plan from running, so that its cost is defined.
    pub const fn is_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::HostMemory { .. })
    }

    /// Short name of the rule, as used in counts.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::WorldSize { .. } => "world-size",
            Self::Heads { .. } => "heads",
            Self::FfnWidth { .. } => "ffn-width",
            Self::KvHeads { .. } => "kv-heads",
            Self::TooFewLayers { .. } => "too-few-layers",
            Self::Split { .. } => "split",
            Self::Schedule { .. } => "schedule",
            Self::Batch { .. } => "batch",
            Self::InterleavedBatch { .. } => "interleaved-batch",
            Self::TooManyPasses { .. } => "too-many-passes",
            Self::Sequence { .. } => "sequence",
            Self::UlyssesHeads { .. } => "ulysses-heads",
            Self::MambaGroups { .. } => "mamba-groups",
            Self::SharedSequence { .. } => "shared-sequence",
            Self::HeadBlock { .. } => "head-block",
            Self::IndexScores { .. } => "index-scores",
            Self::Experts { .. } => "experts",
            Self::ExpertGrid { .. } => "expert-grid",
            Self::Domains { .. } => "domains",
            Self::Dense { .. } => "dense-model",
            Self::Combination(_) => "combination",
            Self::Restricted(_) => "restricted",
            Self::Inexpressible { .. } => "framework",
            Self::OutOfMemory { .. } | Self::TooFewGpus { .. } => Self::OUT_OF_MEMORY,
            Self::HostMemory { .. } => "host-memory",
        }
    }
}
