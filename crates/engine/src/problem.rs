//! Planning problem: model, cluster, workload and stack, validated together.

use serde::Serialize;

use crate::cluster::Cluster;
use crate::gpu::{Format, Gpu};
use crate::model::flops::AttentionConvention;
use crate::model::{Mixer, Model, ModelError};
use crate::stack::{CoreRelease, Stack};
use crate::units::{Bytes, Flops, thousands};
use crate::workload::{Adaptation, Workload};

/// Share of the memory that a plan may fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HbmProfile {
    /// At most 97 %: no other process uses the device.
    Tight,
    /// At most 92 %, the default.
    #[default]
    Normal,
    /// At most 75 %: the usual advice for a first launch.
    Conservative,
}

impl HbmProfile {
    /// Share of the memory that a plan's reserved peak may reach (specification §6.5).
    pub const fn share(self) -> f64 {
        match self {
            Self::Tight => 0.97,
            Self::Normal => 0.92,
            Self::Conservative => 0.75,
        }
    }
}

/// Planning problem: model, cluster, workload and stack. Every value is valid.
#[derive(Clone, Debug)]
pub struct Problem {
    model: Model,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    hbm_profile: HbmProfile,
    /// Largest share of the memory that a plan may fill, whatever the profile.
    memory_ceiling: f64,
}

/// Reason why no plan could solve a problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// The model is invalid.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The cluster is invalid.
    #[error("{0}")]
    Cluster(String),
    /// The stack is invalid.
    #[error("{0}")]
    Stack(String),
    /// The workload is invalid.
    #[error("{0}")]
    Workload(String),
    /// The device has no curve for the format.
    #[error("{gpu} has no {format} GEMMs\n\nhint: it has: {known}")]
    Format {
        /// Name of the device.
        gpu: String,
        /// Name of the format.
        format: String,
        /// Formats that the device has.
        known: String,
    },
    /// The stack or the device cannot run attention over the keys that an indexer chooses.
    #[error("{model} attends to the keys that an indexer chooses, and {why}\n\nhint: {hint}")]
    SparseAttention {
        /// Name of the model.
        model: String,
        /// Reason.
        why: String,
        /// Remedy.
        hint: &'static str,
    },
}

/// First Megatron core with fused kernels of sparse attention: 0.19.
const FIRST_SPARSE: CoreRelease = CoreRelease::new(19);
/// Rank of keys and values that those kernels take. Source: [megatron-lm] `_FLASH_MLA_REQUIRED_VALUE_DIM`.
const SPARSE_RANK: u32 = 512;
/// Bytes of the index scores of a micro-batch: fp32, of all keys, summed over heads.
#[derive(Clone, Copy, Debug)]
pub struct IndexScores;

impl IndexScores {
    /// Most that one fused kernel computes; above them, rows are scored one head at a time in fp32.
    ///
    /// Source: [megatron-lm] `dsa_cudnn_kernels.py`, `_INDEXER_SCORE_CHUNK_MAX_BYTES`.
    pub const MOST: Bytes = Bytes::new(1_073_741_824.0);

    /// Scores of a micro-batch: 4·b·s² bytes.
    pub fn of(micro_batch: u32, seq_len: u32) -> Bytes {
        Bytes::new(4.0 * f64::from(micro_batch) * f64::from(seq_len) * f64::from(seq_len))
    }
}

/// Option for a stack with those kernels.
const SPARSE_STACK: &str = "--stack nemo-26";

/// Model FLOPs of training adapters relative to full training: the forward pass and the input gradients, two passes of three.
const ADAPTER_PASSES: f64 = 2.0 / 3.0;

impl Problem {
    /// Model FLOPs of training one token.
    ///
    /// ```text
    /// F = F_model(s)          adapters: F = ⅔·F_model(s)
    /// ```
    ///
    /// Adapters on a frozen base leave out the base's weight gradients, one of the three passes that F_model counts
    /// (specification §1.4, §2.11).
    pub fn flops_per_token(&self, convention: AttentionConvention) -> Flops {
        let whole = self.model.flops_per_token(self.workload.seq_len, convention);
        match self.workload.adaptation {
            Adaptation::Full => whole,
            Adaptation::Lora | Adaptation::LoraAttention => whole * ADAPTER_PASSES,
        }
    }

    /// Description in one line: model, cluster, batch, precision and software stack.
    pub fn heading(&self) -> String {
        format!(
            "{} · {} × {} · {} × {} tokens · {} · {}",
            self.model.name,
            thousands(u64::from(self.cluster.gpus)),
            self.cluster.gpu.name,
            thousands(u64::from(self.workload.global_batch)),
            thousands(u64::from(self.workload.seq_len)),
            self.workload.precision(),
            self.stack.name,
        )
    }

    /// Validates the parts and combines them.
    ///
    /// # Errors
    ///
    /// The batch or sequence is empty, the device lacks the format, or the model or cluster is invalid.
    pub fn new(
        model: Model,
        cluster: Cluster,
        workload: Workload,
        stack: Stack,
        hbm_profile: HbmProfile,
    ) -> Result<Self, ProblemError> {
        model.check()?;
        cluster.check().map_err(ProblemError::Cluster)?;
        workload.check_ranges().map_err(|why| ProblemError::Workload(why.to_string()))?;
        stack.check().map_err(ProblemError::Stack)?;
        if model.learned_positions > 0 && workload.seq_len > model.learned_positions {
            return Err(ProblemError::Workload(format!(
                "a sequence of {} tokens is over the {} learned positions of {}",
                workload.seq_len, model.learned_positions, model.name
            )));
        }
        if !cluster.gpu.gemm.contains_key(&workload.format) {
            return Err(ProblemError::Format {
                gpu: cluster.gpu.name.clone(),
                format: workload.format.to_string(),
                known: cluster.gpu.gemm.keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            });
        }
        sparse_attention(&model, &cluster.gpu, &stack, workload.seq_len)?;
        Ok(Self { model, cluster, workload, stack, hbm_profile, memory_ceiling: 1.0 })
    }

    /// Model to train.
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// Cluster to train on.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Workload of one step.
    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Software stack in use.
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Share of the memory that a plan may fill.
    pub const fn hbm_profile(&self) -> HbmProfile {
        self.hbm_profile
    }

    /// Problem whose plans fill at most `share` of the memory; the profile's share holds beside it.
    #[must_use]
    pub fn under_ceiling(self, share: f64) -> Self {
        Self { memory_ceiling: share, ..self }
    }

    /// Problem with another global batch.
    #[must_use]
    pub fn with_global_batch(&self, global_batch: u32) -> Self {
        let mut problem = self.clone();
        problem.workload.global_batch = global_batch;
        problem
    }

    /// Problem with a changed cluster, workload or stack.
    ///
    /// # Errors
    ///
    /// As for [`Problem::new`].
    pub fn changed(&self, change: impl FnOnce(&mut Cluster, &mut Workload, &mut Stack)) -> Result<Self, ProblemError> {
        let Self { model, mut cluster, mut workload, mut stack, hbm_profile, memory_ceiling } = self.clone();
        change(&mut cluster, &mut workload, &mut stack);
        Ok(Self::new(model, cluster, workload, stack, hbm_profile)?.under_ceiling(memory_ceiling))
    }

    /// Memory budget of a plan on one device.
    pub fn hbm_budget(&self) -> Bytes {
        self.cluster.gpu.hbm.value * self.hbm_profile.share().min(self.memory_ceiling)
    }
}

/// Checks that a stack and a device run the sparse attention of a model, if it has any.
///
/// Source: [megatron-lm] `dsa.py` and `dsa_cudnn_kernels.py`: 0.16 to 0.18 write the fp32 scores of all keys and heads to memory, as 0.19
/// does without `--dsa-kernel-backend`; its kernels need Hopper or Blackwell, and values of 512, and their backward waits for the host
/// (`torch.nonzero`).
fn sparse_attention(model: &Model, gpu: &Gpu, stack: &Stack, seq_len: u32) -> Result<(), ProblemError> {
    let latent = model.kinds.iter().find_map(|layer| match &layer.mixer {
        Mixer::Mla(mla) if mla.indexer.is_some() => Some(mla),
        Mixer::Attention(_) | Mixer::Mla(_) | Mixer::Mamba(_) | Mixer::DeltaNet(_) | Mixer::None => None,
    });
    let Some(mla) = latent else { return Ok(()) };
    let refuse = |why: String, hint| Err(ProblemError::SparseAttention { model: model.name.clone(), why, hint });
    let blocks = [Format::Fp8Block, Format::Mxfp8].iter().any(|format| gpu.gemm.contains_key(format));
    if gpu.vendor != "NVIDIA" || !blocks {
        let why = format!("the kernels for that run on Hopper and Blackwell, not on {}", gpu.name);
        return refuse(why, "a cluster of H100, H200, B200, GB200 or the like");
    }
    if !stack.sparse_attention {
        return refuse(format!("{} has no fused kernels for that", stack.name), SPARSE_STACK);
    }
    if let Some(core) = stack.megatron_core.filter(|core| *core < FIRST_SPARSE) {
        let why = format!(
            "Megatron core {core} writes the scores of all keys to memory, in fp32: no rate of that is known; {FIRST_SPARSE} has fused kernels"
        );
        return refuse(why, SPARSE_STACK);
    }
    if stack.cuda_graphs {
        let why = "CUDA graphs cannot hold its backward, which asks the GPU which rows have keys".to_owned();
        return refuse(why, "--set stack.cuda_graphs=false");
    }
    let scores = IndexScores::of(1, seq_len);
    if scores > IndexScores::MOST {
        let why = format!(
            "the index scores of a sequence of {} tokens take {scores}: above {} no fused kernel computes them, unless sequences are packed",
            thousands(u64::from(seq_len)),
            IndexScores::MOST
        );
        return refuse(why, "--seq-len 16384 or less");
    }
    if mla.kv_rank != SPARSE_RANK {
        return refuse(
            format!("the kernels for that take a kv_rank of {SPARSE_RANK}, not {}", mla.kv_rank),
            "kv_rank = 512",
        );
    }
    Ok(())
}
