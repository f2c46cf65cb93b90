//! Meter of kernels: records each kernel call of the cost model, or replaces its time by a measured one.

use super::attention::Core;
use super::gemm::GemmShape;
use crate::gpu::{AttentionKernel, Format};
use crate::units::{Bytes, Seconds};

/// Pass of a linear map, or direction of another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Forward, y = x·w.
    Forward,
    /// Input gradients, dx = dy·wᵀ, and backward of kernels without weights.
    Dgrad,
    /// Weight gradients, dw = xᵀ·dy.
    Wgrad,
}

impl std::fmt::Display for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Dgrad => "dgrad",
            Self::Wgrad => "wgrad",
        })
    }
}

/// Call of one kernel, or of a batch of streaming kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// GEMM of a linear map.
    Product {
        /// GemmShape of the GEMM.
        shape: GemmShape,
        /// Format of its operands.
        format: Format,
        /// Pass of the linear map.
        pass: Pass,
    },
    /// Attention core of a layer.
    Attention {
        /// GemmShape of the core.
        core: Core,
        /// Kernel that computes it.
        kernel: AttentionKernel,
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
