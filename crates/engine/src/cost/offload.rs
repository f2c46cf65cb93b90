//! What waits on the host: optimizer states and activations.

use super::Costs;
use super::data::RankParameters;
use super::stage::ShapeCost;
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

    /// Time that activations on their way to the host and back add to a step.
    ///
    /// ```text
    /// m·layers·(max(0, A/bw_host − F) + max(0, A/bw_host − B))          specification §6.8
    /// ```
    pub(super) fn offloaded_activations(
        &self,
        plan: &Plan,
        shape: &ShapeCost,
        kept: &[Bytes],
        micro_batches: f64,
    ) -> Seconds {
        if plan.offload.activations <= 0.0 {
            return Seconds::ZERO;
        }
        let per_rank = micro_batches / f64::from(plan.layout.pp);
        self.kind_counts()
            .iter()
            .enumerate()
            .map(|(kind, &count)| {
                let cost = &shape.layers[kind];
                let transfer = kept[kind] * plan.offload.activations / self.device.gpu.host_link.value;
                let exposed = (transfer - cost.forward).or_zero() + (transfer - cost.dgrad - cost.wgrad).or_zero();
                exposed * (f64::from(count) * per_rank)
            })
            .sum()
    }

    /// The same with what a plan's layers keep; nothing is counted where nothing is offloaded.
    pub(super) fn exposed_activations(&self, plan: &Plan, shape: &ShapeCost) -> Seconds {
        if plan.offload.activations <= 0.0 {
            return Seconds::ZERO;
        }
        self.offloaded_activations(plan, shape, &self.kept_by_kind(plan).kinds, self.micro_batches(plan))
    }
}
