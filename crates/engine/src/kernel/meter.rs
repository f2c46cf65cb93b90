//! Every kernel passes here on its way into a price: it can be noted, or its time replaced by a measured one.

use super::attention::Core;
use super::gemm::Shape;
use crate::gpu::{AttentionKernel, Format};
use crate::units::{Bytes, Seconds};

/// Which of a linear map's three products, or which direction of another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// y = x·w.
    Forward,
    /// dx = dy·wᵀ, and backward of what has no weights.
    Dgrad,
    /// dw = xᵀ·dy.
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

/// One priced kernel, or one batch of streaming kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// A matrix product.
    Product {
        /// Its sizes.
        shape: Shape,
        /// Format of its operands.
        format: Format,
        /// Which of the three.
        pass: Pass,
    },
    /// An attention core.
    Attention {
        /// Its sizes.
        core: Core,
        /// The kernel.
        kernel: AttentionKernel,
        /// Forward or `Dgrad`.
        pass: Pass,
    },
    /// Streaming kernels.
    Stream {
        /// Bytes that they move together, with the extra passes of the stack.
        traffic: Bytes,
        /// How many.
        kernels: f64,
    },
}

/// Sees each kernel with its predicted time, and says the time to use.
pub trait Meter: std::fmt::Debug + Sync {
    /// The time of `call`, which the model prices at `predicted`.
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds;
}
