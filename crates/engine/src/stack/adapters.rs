//! Operators of low-rank adapters.

use serde::{Deserialize, Serialize};

/// Memory traffic of the operators of one low-rank adapter: bytes for each element of the input, and of the output, of
/// the projection that it adapts (specification §2.11). Sources: [peft], [automodel-lora].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterTraffic {
    /// Bytes for an element of the input, forward.
    pub input_forward: f64,
    /// Bytes for an element of the input, backward.
    pub input_backward: f64,
    /// Bytes for an element of the output, forward.
    pub output_forward: f64,
    /// Bytes for an element of the output, backward.
    pub output_backward: f64,
    /// Number of kernels in forward.
    pub kernels_forward: f64,
    /// Number of kernels in backward.
    pub kernels_backward: f64,
}
