//! Planning problem: model, cluster, workload and stack, validated together.

mod sparse;

use serde::Serialize;

use crate::cluster::Cluster;
use crate::model::flops::AttentionConvention;
use crate::model::{Model, ModelError};
use crate::stack::Stack;
use crate::units::{Bytes, Flops, thousands};
use crate::workload::{Adaptation, Workload};
use sparse::SparseRefusal;

pub use sparse::IndexScores;

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

/// Model FLOPs of training adapters relative to full training: the forward pass and the input gradients, two passes of three.
const ADAPTER_PASSES: f64 = 2.0 / 3.0;

impl Problem {
    /// Model FLOPs of training one token.
    ///
    /// ```text
    /// F = F_model(s)          adapters: F = ⅔·F_model(s)
    /// ```
    ///
    /// s = tokens over which attention spans: those of a document where documents are packed.
    /// Adapters on a frozen base leave out the base's weight gradients, one of the three passes that F_model counts
    /// (specification §1.4, §2.11).
    pub fn flops_per_token(&self, convention: AttentionConvention) -> Flops {
        let whole = self.model.flops_per_token(self.workload.attention_len(), convention);
        match self.workload.adaptation {
            Adaptation::Full => whole,
            Adaptation::Lora | Adaptation::LoraAttention => whole * ADAPTER_PASSES,
        }
    }

    /// Description in one line: model, cluster, batch, precision and software stack.
    pub fn heading(&self) -> String {
        format!(
            "{} · {} × {} · {} × {} tokens{} · {}{} · {}{}",
            self.model.name,
            thousands(u64::from(self.cluster.gpus)),
            self.cluster.gpu.name,
            thousands(u64::from(self.workload.global_batch)),
            thousands(u64::from(self.workload.seq_len)),
            match self.workload.attention_len() {
                length if length < self.workload.seq_len =>
                    format!(" in documents of {}", thousands(u64::from(length))),
                _ => String::new(),
            },
            self.workload.precision(),
            match self.workload.adaptation {
                Adaptation::Full => "",
                Adaptation::Lora => " · LoRA",
                Adaptation::LoraAttention => " · LoRA of attention",
            },
            self.stack.name,
            if self.stack.cuda_graphs { " · CUDA graphs" } else { "" },
        )
    }

    /// Validates the parts and combines them; attention is by the kernel of the stack that the device runs.
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
        if model.indexer().is_some() && workload.attention_len() < workload.seq_len {
            return Err(ProblemError::Workload(format!(
                "{} attends to the keys that an indexer chooses, which is priced over whole sequences alone\n\nhint: leave out \
                 --document-len",
                model.name
            )));
        }
        if let Some(SparseRefusal { why, hint }) = sparse::refusal(&model, &cluster.gpu, &stack, workload.seq_len) {
            return Err(ProblemError::SparseAttention { model: model.name, why, hint });
        }
        let stack = Stack { attention: stack.attention_on(&cluster.gpu), ..stack };
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

    /// Memory that a rank which peaks at `peak` leaves of the budget; negative where it does not fit.
    pub fn headroom(&self, peak: Bytes) -> Bytes {
        self.hbm_budget() - peak
    }

    /// Whether a rank which peaks at `peak` is within the budget.
    pub fn fits(&self, peak: Bytes) -> bool {
        peak <= self.hbm_budget()
    }
}
