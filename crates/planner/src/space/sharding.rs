//! Distributions of weights, gradients and optimizer states over replicas, and rank orders.

use meshwright_engine::plan::{Offload, Plan, RankOrder, ZeroStage};

/// Distribution of weights, gradients and optimizer states over the replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShardingChoice {
    /// Stage of ZeRO.
    pub zero: ZeroStage,
    /// Number of ranks that share one copy; `None` means all replicas.
    pub shard_group: Option<u32>,
    /// Whether FSDP frees a layer's gathered weights after its forward pass.
    pub reshard_after_forward: bool,
    /// Share of the optimizer states offloaded to the host.
    pub optimizer_on_host: f64,
    /// Rank order of the layout.
    pub order: RankOrder,
}

impl ShardingChoice {
    /// Sharding of a plan; a shard group of all replicas is normalised to `None`.
    pub fn of(plan: &Plan) -> Self {
        let Plan { zero, shard_group, reshard_after_forward, offload, order, .. } = *plan;
        let shard_group = shard_group.filter(|&group| group < plan.layout.dense_replicas());
        Self { zero, shard_group, reshard_after_forward, optimizer_on_host: offload.optimizer, order }
    }

    /// Plan with this sharding in place of its own.
    #[must_use]
    pub fn on(&self, plan: &Plan) -> Plan {
        let Self { zero, shard_group, reshard_after_forward, optimizer_on_host, order } = *self;
        let offload = Offload { optimizer: optimizer_on_host, activations: plan.offload.activations };
        Plan { zero, shard_group, reshard_after_forward, offload, order, ..plan.clone() }
    }
}

/// Distinct rank orders of a layout.
pub fn orders(pp: u32, dp: u32) -> Vec<RankOrder> {
    if pp == 1 || dp == 1 {
        vec![RankOrder::PipelineOutermost]
    } else {
        vec![RankOrder::PipelineOutermost, RankOrder::DataOutermost]
    }
}
