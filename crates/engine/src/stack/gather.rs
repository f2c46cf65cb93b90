//! Formats in which tensor parallelism gathers.

use serde::{Deserialize, Serialize};

use crate::gpu::Format;

/// Format in which tensor parallelism gathers activations under sequence parallelism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TpGather {
    /// 16 bits: a GEMM casts its gathered input.
    #[default]
    Bf16,
    /// The format of the GEMM where one scale serves a whole tensor, else 16 bits. Source: [torchao]
    /// `float8_tensor_parallel.py`.
    Fp8,
    /// The format of the GEMM, whatever its scales. Source: [transformer-engine] `gather_along_first_dim`.
    Quantized,
}

/// Bytes that tensor parallelism gathers of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GatheredBytes {
    /// Forward.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
}

impl TpGather {
    /// Bytes gathered of one element for GEMMs of `format`.
    ///
    /// ```text
    /// forward    x of the column-parallel GEMMs, by rows: y
    /// backward   dy of the row-parallel GEMMs: y; 2·y where blocks have their own scales
    /// ```
    ///
    /// Scales of blocks lie along one dimension, so the GEMM of the weight's gradient cannot use what that of the input's
    /// gradient takes. Source: [transformer-engine] `_all_gather_mxfp8`.
    pub(crate) fn bytes(self, format: Format) -> GatheredBytes {
        let element = format.element_bytes();
        let (forward, backward) = match (self, format) {
            (Self::Fp8 | Self::Quantized, Format::Fp8) => (element, element),
            (Self::Quantized, Format::Fp8Block | Format::Mxfp8 | Format::Nvfp4) => (element, 2.0 * element),
            (Self::Bf16 | Self::Fp8, _) | (_, Format::Bf16) => (2.0, 2.0),
        };
        GatheredBytes { forward, backward }
    }
}
