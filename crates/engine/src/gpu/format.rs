//! Number formats and the peak rates that they select.

use serde::{Deserialize, Serialize};

/// Number format of most GEMMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// bfloat16, and fp16, which runs at the same rate.
    Bf16,
    /// 8-bit floats with one scale per tensor.
    Fp8,
    /// 8-bit floats with a scale per 1×128 block (DeepSeek).
    Fp8Block,
    /// 8-bit floats with a shared exponent per 32 elements.
    Mxfp8,
    /// 4-bit floats with an E4M3 scale per 16 elements.
    Nvfp4,
}

impl Format {
    /// All formats, widest first.
    pub const ALL: [Self; 5] = [Self::Bf16, Self::Fp8, Self::Fp8Block, Self::Mxfp8, Self::Nvfp4];

    /// Bytes of one operand element in a GEMM.
    ///
    /// Source: specification §1.5 (NVFP4: 0.5 + 1/16; the scales of the 8-bit formats are below 4 % and left out).
    pub const fn element_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Fp8Block | Self::Mxfp8 => 1.0,
            Self::Nvfp4 => 0.5625,
        }
    }

    /// Whether recipes hold weights in this format alone: those of FP8 and MXFP8 do, those of scaled blocks of FP8 and of NVFP4
    /// hold them in 16 bits.
    ///
    /// Source: [megatron-bridge] `training/mixed_precision.py`, `fp8_param_gather`.
    pub(crate) const fn replaces_weights(self) -> bool {
        match self {
            Self::Fp8 | Self::Mxfp8 => true,
            Self::Bf16 | Self::Fp8Block | Self::Nvfp4 => false,
        }
    }

    /// Bytes moved to cast one element to this format: read, write, and transposed write.
    ///
    /// Source: specification §2.5.
    pub(crate) const fn cast_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 0.0,
            Self::Fp8 => 4.0,
            Self::Fp8Block | Self::Mxfp8 => 4.5,
            Self::Nvfp4 => 5.0,
        }
    }

    /// Peak that this format's curve and MFU refer to.
    pub const fn peak(self) -> PeakKind {
        match self {
            Self::Bf16 => PeakKind::Bf16,
            Self::Fp8 | Self::Fp8Block | Self::Mxfp8 => PeakKind::Fp8,
            Self::Nvfp4 => PeakKind::Fp4,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8-block",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        })
    }
}

/// Kind of tensor-core peak in a datasheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PeakKind {
    /// 16-bit peak (bf16, fp16).
    Bf16,
    /// 8-bit peak (FP8).
    Fp8,
    /// 4-bit peak (FP4).
    Fp4,
}
