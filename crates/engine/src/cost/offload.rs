//! Offload to the host: optimizer states and activations.

use super::costs::Costs;
use super::data::RankParameters;
use crate::plan::{Plan, ZeroStage};
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Bytes of host memory that the update of one parameter moves, and the bandwidth of a host's memory per GPU: a socket's
/// 200 GB/s over the four GPUs that share it. Source: specification §6.8.
mod host {
    pub const UPDATE_BYTES: f64 = 28.0;
    pub const MEMORY_GB_PER_S: f64 = 50.0;
}

impl Costs<'_> {
    /// Time of the update on the host, with the gradients and weights that move: nothing where nothing is offloaded.
    ///
    /// ```text
    /// shard·(g + w)/bw_host + shard·28 B/bw_dram          specification §6.8
    /// ```
    ///
    /// All of it is exposed. The specification hides it behind backward and forward, but clipping needs the norm of all
    /// gradients before the first update, and Megatron's `HybridDeviceOptimizer` and DeepSpeed's `CPUAdam` end their step
    /// before the next forward begins ([megatron-lm], [deepspeed]).
    pub(super) fn host_update(&self, plan: &Plan, heaviest: &RankParameters) -> Seconds {
        if plan.offload.optimizer <= 0.0 {
            return Seconds::ZERO;
        }
        let shards = if plan.zero == ZeroStage::Zero { 1.0 } else { f64::from(plan.dense_shards()) };
        let expert_shards = if plan.zero == ZeroStage::Zero { 1.0 } else { f64::from(plan.layout.expert_replicas()) };
        let shard = (heaviest.dense / shards + heaviest.experts / expert_shards) * plan.offload.optimizer;
        let recipe = &self.problem.workload().recipe;
        let moved = Bytes::new(shard * (recipe.gradient + recipe.weight)) / self.device.gpu.host_link.value;
        let updated = Bytes::new(shard * host::UPDATE_BYTES) / BytesPerSec::gbytes(host::MEMORY_GB_PER_S);
        moved + updated
    }
}
