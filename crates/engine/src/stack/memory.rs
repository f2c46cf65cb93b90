//! Memory behaviour of a framework: tensors that it keeps, frees and caches, and memory that it reserves.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Memory behaviour of a framework and its allocator (specification §6.9).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryUse {
    /// Name of the default byte recipe (`--optimizer`), if the framework has one of its own.
    pub recipe: Option<String>,
    /// Name of the default byte recipe in FP8 and MXFP8, if it is another one.
    pub narrow_recipe: Option<String>,
    /// Whether the input of a virtual stage is freed once the stage has read it.
    pub frees_stage_inputs: bool,
    /// Whether outputs of experts are kept for the backward of their weighted sum; false where the router's probabilities multiply
    /// the input of the second matmul instead.
    pub keeps_expert_outputs: bool,
    /// Bytes of each element of an activation function's input that is kept for its backward.
    pub activation_input_bytes: f64,
    /// Bytes of each element of attention's output that is kept for its backward.
    pub attention_output_bytes: f64,
    /// Whether recomputation is by JAX's checkpoint policies, which keep outputs of matmuls (specification §6.4).
    pub keeps_matmul_outputs: bool,
    /// Whether checkpointing by operator keeps the outputs that PyTorch's policy lists: the output of every second
    /// matmul, attention's output and the layer's input. Source: [torchtitan] `activation_checkpoint.py`.
    pub keeps_listed_operators: bool,
    /// Whether checkpointing by operator keeps only the outputs of that list that backward reads, as a compiled layer does. Source:
    /// [meshwright-silicon].
    pub keeps_needed_operators: bool,
    /// Whether checkpointing by operator runs the routed experts again, since grouped GEMMs are not on PyTorch's list. Source:
    /// [torchtitan] `_op_sac_save_list`.
    pub recomputes_experts: bool,
    /// Whether checkpointing by operator runs a layer with experts again but for attention, since its modules are compiled one by one
    /// and their matmuls are hidden from PyTorch's list. Source: [torchtitan] `apply_compile`.
    pub hides_expert_layers: bool,
    /// Whether checkpointing by operator runs a layer in NVFP4 again but for attention, since its GEMMs, `_scaled_mm_v2`, are not on
    /// PyTorch's list. Source: [torchao-nvfp4].
    pub hides_nvfp4_layers: bool,
    /// Whether checkpointing by operator keeps the tokens that experts' ranks exchange, which those experts would else exchange
    /// again. Source: [torchtitan] `_get_default_save_ops`.
    pub keeps_exchanged_tokens: bool,
    /// Whether the gathered inputs of column-parallel matmuls are kept whole; other frameworks gather them once more in backward.
    pub keeps_gathered_inputs: bool,
    /// Whether the whole output of the QKV projection is kept in addition to the rotated queries and keys, since the values are a
    /// view of it.
    pub keeps_whole_qkv: bool,
    /// Whether the activated gate is kept in addition to gate, up and their product, as unfused SwiGLU keeps it.
    pub keeps_activated_gate: bool,
    /// Whether norms are plain PyTorch: they keep their input in fp32 and their result before it is scaled.
    pub unfused_norms: bool,
    /// Whether the quantized copies of 16-bit weights stay from the first micro-batch of a step to its last. Source:
    /// [transformer-engine] `get_weight_workspace`.
    pub keeps_quantized_weights: bool,
    /// Whether each layer holds its own table of rotary embeddings.
    pub rotary_tables: bool,
    /// Whether ZeRO 3 holds its shards in fp32, which are the master weights, and 16-bit copies only while they are gathered.
    pub fp32_shards: bool,
    /// Whether a rank's peak under ZeRO 3, and on a single GPU, is that of the fullest moment of a step: the loss, the first or the
    /// last layer of the backward, the update. Otherwise it is the sum of what the first three need.
    pub by_moment: bool,
    /// Whether the update takes all parameters at once, with the roots of their second moments beside the states, as `torch.optim`
    /// does where no fused kernel is asked for (`foreach`). Sources: [memory-oracle], [fms-acceleration].
    pub updates_at_once: bool,
    /// Whether a compiled loop runs the layers, so that their kept activations and their gradients are whole arrays from its first
    /// pass to its last. Only with `by_moment`.
    pub scanned_layers: bool,
    /// Whether the gathered head stays until its backward, since the root of the model is not resharded.
    pub keeps_gathered_head: bool,
    /// Whether the training loop holds the logits during the backward.
    pub keeps_outputs: bool,
    /// Chunks of the tokens that the head and the loss take one after another; 1 is the whole micro-batch.
    pub loss_chunks: u32,
    /// Bytes per logit of the loss where tensor parallelism splits the vocabulary, if they differ from those without it.
    pub split_logit_bytes: Option<f64>,
    /// Memory lost to fragmentation as a share of the tensors at their peak, without `by_moment`.
    pub fragmentation: f64,
    /// Memory lost to fragmentation as a share of the activations, with `by_moment`. Source: [memory-oracle], without expandable
    /// segments; with them 0.01.
    pub activation_fragmentation: f64,
    /// Memory lost to fragmentation as a share of all tensors that are not activations, with `by_moment`; with expandable segments
    /// 0.23.
    pub transient_fragmentation: f64,
    /// Memory of the CUDA context and the workspaces of libraries.
    pub context: Bytes,
    /// Pools of CUDA graphs, where they replay the layers. Source: [megatron-bridge] `docs/performance-guide.md`.
    pub graph_pools: Bytes,
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
            narrow_recipe: None,
            frees_stage_inputs: false,
            keeps_expert_outputs: true,
            activation_input_bytes: 2.0,
            attention_output_bytes: 2.0,
            keeps_matmul_outputs: false,
            keeps_listed_operators: false,
            keeps_needed_operators: false,
            recomputes_experts: false,
            hides_expert_layers: false,
            hides_nvfp4_layers: false,
            keeps_exchanged_tokens: false,
            keeps_gathered_inputs: false,
            keeps_whole_qkv: false,
            keeps_activated_gate: false,
            unfused_norms: false,
            keeps_quantized_weights: false,
            rotary_tables: false,
            fp32_shards: false,
            by_moment: false,
            updates_at_once: false,
            scanned_layers: false,
            keeps_gathered_head: false,
            keeps_outputs: false,
            loss_chunks: 1,
            split_logit_bytes: None,
            fragmentation: 0.06,
            activation_fragmentation: 0.02,
            transient_fragmentation: 0.3,
            context: Bytes::gib(1.2),
            graph_pools: Bytes::ZERO,
            communicator: None,
            all_to_all: Bytes::ZERO,
        }
    }
}

/// Bytes of a logit in one chunk of Liger's linear cross-entropy, whose gradient takes its place. Source: [liger-kernel].
const CHUNK_LOGIT: f64 = 4.0;

impl MemoryUse {
    /// Bytes of a micro-batch's logits, by their number, where head and loss take as many chunks of tokens as the vocabulary is wider
    /// than the hidden size (`logit_bytes`). Source: [liger-kernel].
    pub fn chunked_logit_bytes(hidden: f64, vocab: f64) -> f64 {
        CHUNK_LOGIT * hidden / vocab
    }
}
