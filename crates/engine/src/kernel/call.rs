//! Kernel calls of the cost model, and a meter that records them or replaces their times by measured ones.

use crate::gpu::{AttentionKernel, Format, Pass};
use crate::units::{Bytes, Flops, Seconds};

/// Numbers of a forward and of its backward pass: bytes, kernels or factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPass {
    /// Forward.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
}

impl PerPass {
    /// Numbers of the two passes.
    pub const fn new(forward: f64, backward: f64) -> Self {
        Self { forward, backward }
    }

    /// One number for either pass.
    pub const fn same(number: f64) -> Self {
        Self::new(number, number)
    }
}

/// Times of a forward and of its backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassTimes {
    /// Forward.
    pub forward: Seconds,
    /// Backward.
    pub backward: Seconds,
}

impl PassTimes {
    /// Forward and backward together.
    pub fn sum(self) -> Seconds {
        self.forward + self.backward
    }

    /// Times that are `factor` times as long.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { forward: self.forward * factor, backward: self.backward * factor }
    }
}

/// Shape of a GEMM C[m,n] = A[m,k]·B[k,n], `batch` times in one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmShape {
    /// Rows of the output.
    pub m: f64,
    /// Columns of the output.
    pub n: f64,
    /// Inner dimension of the GEMM.
    pub k: f64,
    /// Independent GEMMs in one launch.
    pub batch: f64,
    /// Bytes moved per output element: 2 written; 8 accumulated into fp32, 4 into bf16.
    pub output_bytes: f64,
}

/// Shape of the attention of one layer on one rank for one micro-batch: scores, softmax and context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Number of sequences.
    pub sequences: f64,
    /// Number of query heads on this tensor-parallel rank.
    pub heads: f64,
    /// Number of key and value heads on this rank, shared by the query heads; the predicted times do not depend on them.
    pub kv_heads: f64,
    /// Tokens per sequence over all context-parallel ranks.
    pub seq_len: f64,
    /// Mean share of the sequence that a query attends to: 1/2 is causal.
    pub attended: f64,
    /// Head dimension of queries and keys.
    pub qk_dim: f64,
    /// Head dimension of values.
    pub v_dim: f64,
    /// Whether attention weights have dropout.
    pub dropout: bool,
    /// Split over context-parallel ranks.
    pub context_split: ContextSplit,
}

/// Split of one layer's attention over context-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextSplit {
    /// Number of context-parallel ranks.
    pub ranks: f64,
    /// Ranks that each have a share of the heads (all-to-all).
    pub by_heads: f64,
    /// Ranks that each have a share of the queries.
    pub by_queries: f64,
    /// Ranks that pass keys and values around in chunks (ring).
    pub by_chunks: f64,
}

impl ContextSplit {
    /// No context parallelism.
    pub const WHOLE: Self = Self { ranks: 1.0, by_heads: 1.0, by_queries: 1.0, by_chunks: 1.0 };
}

/// Call of one kernel, or of a batch of streaming kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// GEMM of a linear map.
    Gemm {
        /// Shape of the GEMM.
        shape: GemmShape,
        /// Format of its operands.
        format: Format,
        /// Pass of the linear map.
        pass: Pass,
    },
    /// Attention core of a layer.
    Attention {
        /// Shape of the core.
        core: AttentionShape,
        /// Kernel that computes it.
        kernel: AttentionKernel,
        /// Pass: forward or `Dgrad`.
        pass: Pass,
    },
    /// Kernel of attention over chosen keys, or of the indexer that chooses them.
    Sparse {
        /// Operations of the kernel.
        work: Flops,
        /// Pass: forward or `Dgrad`.
        pass: Pass,
    },
    /// Streaming kernels, bound by memory.
    Stream {
        /// Bytes that they move together, with the extra passes of the stack.
        traffic: Bytes,
        /// Number of kernels.
        kernels: f64,
    },
}

/// Observer of kernel calls, which may replace their predicted times.
pub trait Meter: std::fmt::Debug + Sync {
    /// Time to use for `call`, whose predicted time is `predicted`.
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds;
}
