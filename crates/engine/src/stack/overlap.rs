//! Overlap of communication with compute.

use serde::{Deserialize, Serialize};

/// Hidden share of the exchange of experts behind another micro-batch where the host launches each kernel: 3.96 of 10.8 s. Source:
/// [megatron-bridge-ep-overlap].
const EP_HIDDEN_BY_LAUNCHES: f64 = 0.3655;

/// Overlap of communication with compute (specification §5).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Hidden share of tensor-parallel collectives (θ_tp).
    pub tp: f64,
    /// Whether gradient and parameter traffic overlaps with backward and forward.
    pub dp: bool,
    /// Whether that holds where the optimizer is sharded (ZeRO 1 and 2) too.
    #[serde(default = "yes")]
    pub dp_sharded: bool,
    /// Whether that overlap spans the interleaved chunks (§5.2, version 1.1).
    #[serde(default)]
    pub dp_interleaved_window: bool,
    /// Whether stage-to-stage sends are asynchronous.
    pub pp: bool,
    /// Share of attention that hides the ring of context parallelism (ω_cp).
    pub cp: f64,
    /// Hidden share of expert all-to-alls (θ_ep) behind another micro-batch: [`Overlap::share_beside_micro_batches`].
    pub ep: f64,
    /// Whether FSDP prefetches the next layer.
    #[serde(default = "yes")]
    pub fsdp_prefetch: bool,
}

impl Overlap {
    /// Hidden share of the exchange of experts that Megatron-Core runs beside another micro-batch (`overlap_moe_expert_parallel_comm`): all
    /// of it where CUDA graphs hold the experts (`graphed_experts`). Elsewhere layers are launched in parts, which costs the host much of
    /// what the overlap gains.
    pub const fn share_beside_micro_batches(graphed_experts: bool) -> f64 {
        if graphed_experts { 1.0 } else { EP_HIDDEN_BY_LAUNCHES }
    }
}

const fn yes() -> bool {
    true
}
