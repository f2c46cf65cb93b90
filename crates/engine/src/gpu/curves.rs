//! Measured curves of a device: GEMM, attention and collectives.

use serde::{Deserialize, Serialize};

use super::format::Format;
use crate::sources::own_source;
use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Seconds};

/// Efficiency curve of GEMMs in one format (specification §2.1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GemmCurve {
    /// Share of the peak that the best large GEMM reaches (`e_max`).
    pub efficiency: f64,
    /// Inner dimension K at which half the time is start-up (`K0`).
    pub half_depth: f64,
    /// Loss of smaller tiles (ρ): exponent of their arithmetic intensity.
    pub intensity_exponent: f64,
    /// Loss of a partly filled last wave (γ): exponent of the filled share.
    pub wave_exponent: f64,
    /// Share of that rate that a whole training step sustains under power and heat limits (κ).
    pub sustained: f64,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Attention kernel of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKernel {
    /// Batched GEMMs with the scores written to memory (2021–22).
    Unfused,
    /// PyTorch's memory-efficient attention: no scores in memory, at the speed of GEMMs that write them.
    Efficient,
    /// `FlashAttention` version 1.
    Fa1,
    /// `FlashAttention` version 2.
    Fa2,
    /// Fused attention of cuDNN.
    Cudnn,
    /// `FlashAttention` version 3.
    Fa3,
}

impl AttentionKernel {
    /// Name in data files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unfused => "unfused",
            Self::Efficient => "efficient",
            Self::Fa1 => "fa1",
            Self::Fa2 => "fa2",
            Self::Cudnn => "cudnn",
            Self::Fa3 => "fa3",
        }
    }
}

/// Rates of one fused attention kernel (specification §2.3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionCurve {
    /// Asymptotic forward rate.
    pub forward: FlopsPerSec,
    /// Asymptotic backward rate.
    pub backward: FlopsPerSec,
    /// Sequence length at which half the rate is reached (`s0`).
    pub half_sequence: f64,
    /// Speed with head dimension 64 relative to 128.
    #[serde(default = "narrow_heads")]
    pub narrow_heads: f64,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Default of kernels that were not measured with head dimension 64. Source: specification §2.3 (`H_f`, `H_b`).
const fn narrow_heads() -> f64 {
    0.76
}

/// Number of thread blocks per processor at which attention reaches half its rate (χ of specification §2.3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionOccupancy {
    /// Value for forward.
    pub forward: f64,
    /// Value for backward.
    pub backward: f64,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Collective communication operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Sum of all buffers, to every rank.
    AllReduce,
    /// Concatenation of all shares, to every rank.
    AllGather,
    /// Sum of all buffers, one share to each rank.
    ReduceScatter,
    /// One share from each rank to each rank.
    AllToAll,
}

/// Figure of a device or its surroundings that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// GEMM curve of a format.
    Gemm(Format),
    /// Share of the GEMM rate that a whole step sustains (κ).
    Sustained(Format),
    /// Curve of an attention kernel.
    Attention(AttentionKernel),
    /// Efficiency of streaming kernels on HBM, and the gap between kernels.
    Hbm,
    /// Bandwidth of the link to the host.
    HostLink,
    /// Slow-down of compute by concurrent communication (σ).
    Contention,
    /// Host time of one kernel launch.
    Launch,
    /// Curve of a collective over this number of GPUs in one scale-up domain.
    Collective(Collective, u32),
    /// Efficiency of collectives on the network.
    Network,
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Gemm(format) => write!(f, "GEMMs in {format}"),
            Self::Sustained(format) => write!(f, "sustained clocks in {format}"),
            Self::Attention(kernel) => write!(f, "attention {}", kernel.name()),
            Self::Hbm => f.write_str("HBM"),
            Self::HostLink => f.write_str("host link"),
            Self::Contention => f.write_str("contention"),
            Self::Launch => f.write_str("kernel launch"),
            Self::Collective(op, ranks) => {
                let op = match op {
                    Collective::AllReduce => "all-reduce",
                    Collective::AllGather => "all-gather",
                    Collective::ReduceScatter => "reduce-scatter",
                    Collective::AllToAll => "all-to-all",
                };
                write!(f, "{op} over {ranks}")
            }
            Self::Network => f.write_str("network"),
        }
    }
}

/// Saturation curve of a collective over `ranks` GPUs of one scale-up domain (specification §3.2).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveCurve {
    /// Number of GPUs in the group.
    pub ranks: u32,
    /// Fixed latency (α).
    pub latency: Seconds,
    /// Bus bandwidth of very large buffers (B∞).
    pub bandwidth: BytesPerSec,
    /// Buffer size at which half of it is reached (S½).
    pub half_size: Bytes,
    /// Sharpness of the curve (β).
    pub exponent: f64,
}
