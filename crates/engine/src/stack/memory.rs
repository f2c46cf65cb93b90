//! Memory behaviour of a framework: what it frees, caches and reserves.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Memory behaviour of a framework and its allocator (specification §6.9).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryUse {
    /// Name of the default byte recipe (`--optimizer`), if the framework has one of its own.
    pub recipe: Option<String>,
    /// Whether the input of a virtual stage is freed once the stage has read it.
    pub frees_stage_inputs: bool,
    /// Whether outputs of experts are kept for the weighted sum. They are not where the router's probabilities multiply the
    /// input of the second matmul.
    pub keeps_expert_outputs: bool,
    /// Bytes of a kept element of the input of an activation function.
    pub activation_input_bytes: f64,
    /// Bytes of a kept element of the output of attention.
    pub attention_output_bytes: f64,
    /// Whether checkpointing by operator keeps the outputs of all matmuls (JAX's policy for dots without batch dimensions),
    /// where others keep a share of all activations.
    pub keeps_matmul_outputs: bool,
    /// Reserved memory beyond the tensors at their peak, as a share of them.
    pub fragmentation: f64,
    /// Memory of the CUDA context and the workspaces of libraries.
    pub context: Bytes,
    /// Buffers of one NCCL communicator, one for each kind of process group in use. If not stated, 0.8 GiB for all.
    pub communicator: Option<Bytes>,
    /// Buffers that NCCL's first all-to-all between experts allocates.
    pub all_to_all: Bytes,
}

impl Default for MemoryUse {
    /// Megatron's behaviour as specification §6.3 and §6.5 have it.
    fn default() -> Self {
        Self {
            recipe: None,
            frees_stage_inputs: false,
            keeps_expert_outputs: true,
            activation_input_bytes: 2.0,
            attention_output_bytes: 2.0,
            keeps_matmul_outputs: false,
            fragmentation: 0.06,
            context: Bytes::gib(1.2),
            communicator: None,
            all_to_all: Bytes::ZERO,
        }
    }
}
