//! Costs that one framework alone has.

use serde::{Deserialize, Serialize};

use crate::units::Seconds;

/// Costs that are specific to one framework; zero or one means none.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    /// Host synchronisation per layer and micro-batch, a third of it forward.
    pub sync_per_layer: Seconds,
    /// Host synchronisation per layer and micro-batch with dropless routing and without CUDA graphs: the host reads the
    /// token counts back.
    pub moe_sync_per_layer: Seconds,
    /// Floor of a layer's four tensor-parallel collectives with stages on several domains, per doubling of tp (nanotron).
    pub tp_floor: Seconds,
    /// Extra latency of a tensor-parallel collective per scale-up domain it spans (nanotron).
    pub cross_domain_tp_latency: Seconds,
    /// Efficiency of tensor-parallel collectives that leave the scale-up domain (nanotron).
    pub cross_domain_tp_efficiency: f64,
    /// Factor on the network's efficiency.
    pub network_efficiency: f64,
    /// Time of one owner's broadcast, where ZeRO-1 broadcasts parameters owner by owner (`InternEvo`).
    pub broadcast_per_owner: Seconds,
    /// Whether ZeRO 1 all-reduces whole gradients instead of scattering them (nanotron).
    pub zero_all_reduce: bool,
    /// Tensors of a layer that the host copies out of gathered parameters, one launch for each rank of the shard group (nanotron).
    pub copies_per_gather: f64,
    /// Whether gradients are synchronised after every micro-batch.
    pub sync_every_micro_batch: bool,
    /// Host work per step while the device waits: loading data, clipping, logging.
    pub step_overhead: Seconds,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            sync_per_layer: Seconds::ZERO,
            moe_sync_per_layer: Seconds::ZERO,
            tp_floor: Seconds::ZERO,
            cross_domain_tp_latency: Seconds::ZERO,
            cross_domain_tp_efficiency: 1.0,
            network_efficiency: 1.0,
            broadcast_per_owner: Seconds::ZERO,
            zero_all_reduce: false,
            copies_per_gather: 0.0,
            sync_every_micro_batch: false,
            step_overhead: Seconds::ZERO,
        }
    }
}
