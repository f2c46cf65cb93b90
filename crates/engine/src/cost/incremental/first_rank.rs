//! Lower bound of the memory of a pipeline's plans by its first rank alone, which keeps the most micro-batches in flight.

use super::block::{Layers, ROUNDING};
use super::stages::{Moment, Moments, Stages};
use crate::cost::costs::Costs;
use crate::cost::data::RankParameters;
use crate::cost::footprint::Reserve;
use crate::plan::{Plan, Recompute};
use crate::units::Bytes;

/// Memory of the first rank of a plan's pipeline under ZeRO 0 to 2, whose tensors are all held at once, before it is
/// known which layers it recomputes.
#[derive(Debug)]
pub struct FirstRank<'s> {
    /// Its pipeline where no first layers are recomputed.
    stages: &'s Stages,
    /// Moments of that pipeline.
    moments: Moments,
    /// States and caches.
    resident: Bytes,
    /// Input of a virtual stage that the stack frees.
    freed: Bytes,
    /// Least share of the activations on the device.
    on_device: f64,
    reserve: Reserve,
}

impl<'s> FirstRank<'s> {
    /// First rank of a plan on `stages`, whose sharding is not read. `states` = the least bytes of its states of any sharding:
    /// [`Stages::states_of_first`].
    pub fn new(costs: &Costs, plan: &Plan, stages: &'s Stages, states: Bytes) -> Self {
        let on_host = plan.offload.activations;
        Self {
            stages,
            moments: stages.moments(costs, plan),
            resident: states + costs.caches(plan),
            freed: costs.freed_input(plan, on_host),
            on_device: 1.0 - on_host,
            reserve: costs.reserve(plan),
        }
    }

    /// Lower bound of the memory of the plan with these layers, as [`RankMemory::lower_bound`](super::RankMemory) of
    /// one rank.
    pub fn memory_bound(&self, costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages) -> Bytes {
        let keeps = matches!(plan.recompute, Recompute::None | Recompute::Selective(_));
        let freed = if keeps { self.freed } else { Bytes::ZERO };
        let bytes_at = |moment: &Moment| {
            let recomputed = moment.has_layers.iter().zip(&layers.bytes.recomputed).map(|(here, bytes)| *bytes * *here);
            let in_flight = moment.in_flight.iter().zip(&layers.bytes.kept);
            let activations: Bytes = in_flight.map(|(times, bytes)| *bytes * (*times * self.on_device)).sum();
            activations - freed * moment.stages + recomputed.fold(Bytes::ZERO, Bytes::max)
        };
        let peak = |moments: &Moments| moments[0].iter().map(bytes_at).fold(Bytes::ZERO, Bytes::max);
        let is_known = std::ptr::eq(self.stages, stages);
        let peak = if is_known { peak(&self.moments) } else { peak(&stages.moments(costs, plan)) };
        let tensors =
            self.resident + peak + layers.end_bytes(false, plan).on_rank(stages.parameter_classes[0].has_head);
        (tensors * (1.0 + self.reserve.fragmentation) + self.reserve.context) * ROUNDING
    }
}

impl Stages {
    /// Lower bound of the bytes of the states of the first rank of a plan whose degrees, schedule, ZeRO stage and
    /// offload are read, with every replica in one shard group and without multi-token prediction.
    pub fn states_of_first(&self, costs: &Costs, plan: &Plan) -> Bytes {
        let plan = &Plan { shard_group: None, ..plan.clone() };
        let table = RankParameters::default().plus(&costs.table_parameters(plan).embedding, 1.0);
        let layers = self.counts.choices.iter().zip(self.counts.ranks.at(0));
        let parameters = layers.fold(table, |sum, (choice, &count)| {
            sum.plus(&RankParameters::of_layer(costs.layer_parameters(choice.kind), &plan.layout), count)
        });
        costs.states(&parameters, plan).total()
    }
}
