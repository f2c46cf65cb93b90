//! Why a plan cannot run: a value with its numbers.

use meshwright_engine::units::Bytes;

/// Why a plan cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The degrees do not multiply to the GPUs.
    #[error("tp·cp·pp·dp = {world} is not the {gpus} GPUs of the cluster")]
    WorldSize {
        /// Product of the degrees.
        world: u64,
        /// GPUs there are.
        gpus: u32,
    },
    /// Megatron splits attention by heads.
    #[error("tp={tp} does not divide the {heads} heads")]
    Heads {
        /// Tensor-parallel size.
        tp: u32,
        /// Heads.
        heads: u32,
    },
    /// Tensor parallelism splits the intermediate size.
    #[error("tp={tp} does not divide the intermediate size {width}")]
    FfnWidth {
        /// Tensor-parallel size.
        tp: u32,
        /// Intermediate size.
        width: u32,
    },
    /// Key-value heads are either shared out or repeated.
    #[error("tp={tp} neither divides the {kv_heads} key-value heads nor is a multiple of them")]
    KvHeads {
        /// Tensor-parallel size.
        tp: u32,
        /// Key-value heads.
        kv_heads: u32,
    },
    /// A pipeline needs a layer for each chunk.
    #[error("pp={pp} with {virtual_stages} chunks a rank needs {chunks} layers or more; the model has {layers}")]
    TooFewLayers {
        /// Pipeline-parallel size.
        pp: u32,
        /// Chunks per rank.
        virtual_stages: u32,
        /// Chunks in all.
        chunks: u32,
        /// Layers, with those that embedding and loss stand for.
        layers: u32,
    },
    /// A split that names layers of stages does not fit.
    #[error("split={split}: {why}")]
    Split {
        /// The split.
        split: String,
        /// What does not fit.
        why: String,
    },
    /// A schedule of several ranks on one, or of one on several.
    #[error("schedule {schedule} does not run on pp={pp}: {why}")]
    Schedule {
        /// The schedule.
        schedule: String,
        /// Pipeline-parallel size.
        pp: u32,
        /// What it asks for.
        why: &'static str,
    },
    /// The batch does not divide.
    #[error("a global batch of {global_batch} is no multiple of dp·micro-batch = {dp}·{micro_batch}")]
    Batch {
        /// Sequences per step.
        global_batch: u32,
        /// Data-parallel size.
        dp: u32,
        /// Sequences per micro-batch.
        micro_batch: u32,
    },
    /// Interleaving walks the micro-batches in groups of pp.
    #[error("interleaving needs the {micro_batches} micro-batches to be a multiple of pp={pp}")]
    InterleavedBatch {
        /// Micro-batches per replica.
        micro_batches: u32,
        /// Pipeline-parallel size.
        pp: u32,
    },
    /// The sequence does not divide.
    #[error("a sequence of {seq_len} tokens does not divide by {by} ({why})")]
    Sequence {
        /// Tokens.
        seq_len: u32,
        /// What it must divide by.
        by: u32,
        /// Who asks for it.
        why: &'static str,
    },
    /// Heads-for-tokens needs a key-value head for each rank.
    #[error("cp={cp} by all-to-all needs {cp} key-value heads on each tensor-parallel rank; there are {heads}")]
    UlyssesHeads {
        /// Context-parallel size.
        cp: u32,
        /// Heads on a rank.
        heads: u32,
    },
    /// Experts do not share out.
    #[error("ep={ep} does not divide the {experts} experts")]
    Experts {
        /// Expert-parallel size.
        ep: u32,
        /// Experts.
        experts: u32,
    },
    /// The expert grid does not fit the ranks of a stage.
    #[error("ep·etp = {ep}·{etp} does not divide the tp·cp·dp = {ranks} ranks of a stage")]
    ExpertGrid {
        /// Expert-parallel size.
        ep: u32,
        /// Expert tensor-parallel size.
        etp: u32,
        /// Ranks of a stage.
        ranks: u32,
    },
    /// Expert degrees without experts.
    #[error("{what} is for mixtures of experts, and the model is dense")]
    Dense {
        /// The setting.
        what: &'static str,
    },
    /// A combination that frameworks refuse.
    #[error("{0}")]
    Combination(&'static str),
    /// Forbidden, or outside of what was fixed.
    #[error("{0} was forbidden, or other values were fixed")]
    Restricted(String),
    /// The framework that was asked for has no such setting.
    #[error("{framework} cannot express {what}: {why}")]
    Inexpressible {
        /// The framework.
        framework: &'static str,
        /// What, as it stands in the plan.
        what: String,
        /// Why not, in the framework's terms.
        why: String,
    },
    /// The footprint is over the ceiling.
    #[error("needs {needed} on pipeline rank {rank}, and {available} may be filled")]
    OutOfMemory {
        /// Needed by the fullest rank.
        needed: Bytes,
        /// Allowed by the profile.
        available: Bytes,
        /// That rank.
        rank: u32,
    },
    /// What ranks leave on their host is over its memory.
    #[error("leaves {needed} on a host, and a host has {available}")]
    HostMemory {
        /// Left by the ranks of the fullest host.
        needed: Bytes,
        /// Memory of a host.
        available: Bytes,
    },
}

impl Rejection {
    /// Whether the plan runs but for memory, and has a price.
    pub const fn is_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::HostMemory { .. })
    }

    /// Short name for counts.
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
            Self::Sequence { .. } => "sequence",
            Self::UlyssesHeads { .. } => "ulysses-heads",
            Self::Experts { .. } => "experts",
            Self::ExpertGrid { .. } => "expert-grid",
            Self::Dense { .. } => "dense-model",
            Self::Combination(_) => "combination",
            Self::Restricted(_) => "restricted",
            Self::Inexpressible { .. } => "framework",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::HostMemory { .. } => "host-memory",
        }
    }
}
