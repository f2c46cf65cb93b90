//! What sharding costs: exchange between replicas, update and states, priced once for all pipelines of one shape.

use super::stages::Stages;
use crate::cost::Costs;
use crate::cost::data::RankParameters;
use crate::cost::fsdp::Sharded;
use crate::cost::pipeline::Edges;
use crate::plan::{Offload, Plan, RankOrder, ZeroStage};
use crate::units::Bytes;

/// How a step ends, by its engine.
#[derive(Clone, Debug)]
pub(super) enum Engine {
    /// ZeRO 0 to 2.
    Replicated(Edges),
    /// ZeRO 3.
    Sharded(Sharded),
}

/// One way to shard: ZeRO stage, shard group, resharding, offloaded optimizer, rank order.
#[derive(Clone, Debug)]
pub struct Sharding {
    pub(super) zero: ZeroStage,
    pub(super) shard_group: Option<u32>,
    pub(super) reshard_after_forward: bool,
    pub(super) optimizer_on_host: f64,
    pub(super) order: RankOrder,
    pub(super) engine: Engine,
    /// Weights, gradients and optimizer states of each class of ranks.
    pub(super) states: Vec<(Bytes, Bytes, Bytes)>,
    /// Gathered weights.
    pub(super) gathered: Bytes,
}

/// Parameters of the classes of ranks, and the heaviest of any rank.
#[derive(Clone, Debug)]
pub struct Parameters {
    heaviest: RankParameters,
    held: Vec<RankParameters>,
}

impl Parameters {
    /// Of the ranks of a plan's pipeline: tp, ep, etp, pp, schedule.
    pub fn new(costs: &Costs, plan: &Plan, stages: &Stages) -> Self {
        let all = costs.rank_parameters(plan);
        let held = stages
            .holds
            .iter()
            .map(|hold| costs.with_spare(all[hold.holding.rank as usize], &hold.holding, plan))
            .collect();
        Self { heaviest: costs.heaviest_parameters(plan), held }
    }
}

impl Sharding {
    /// Prices a plan's sharding: its degrees, ZeRO stage, shard group, resharding, offloaded optimizer and order.
    pub fn new(costs: &Costs, plan: &Plan, parameters: &Parameters) -> Self {
        let heaviest = &parameters.heaviest;
        let engine = if plan.zero == ZeroStage::Three {
            Engine::Sharded(costs.sharded(plan, heaviest))
        } else {
            Engine::Replicated(costs.edges(plan, heaviest))
        };
        Self {
            zero: plan.zero,
            shard_group: plan.shard_group,
            reshard_after_forward: plan.reshard_after_forward,
            optimizer_on_host: plan.offload.optimizer,
            order: plan.order,
            engine,
            states: parameters.held.iter().map(|held| costs.states(held, plan)).collect(),
            gathered: costs.gathered_weights(plan),
        }
    }

    /// The plan with this sharding.
    pub fn of(&self, plan: &Plan) -> Plan {
        Plan {
            zero: self.zero,
            shard_group: self.shard_group,
            reshard_after_forward: self.reshard_after_forward,
            offload: Offload { optimizer: self.optimizer_on_host, ..plan.offload },
            order: self.order,
            ..*plan
        }
    }

    /// Bytes of states and gathered weights of the class that has the most.
    pub fn bytes(&self) -> Bytes {
        self.states.iter().map(|(w, g, o)| *w + *g + *o).fold(Bytes::ZERO, Bytes::max) + self.gathered
    }

    /// Whether no plan is better off with `other` than with this, in time and in memory, whatever its pipeline.
    ///
    /// Same order and engine, and each of exchange, update on device and on host, and of the bytes of each class of ranks, no
    /// more than the other's. What compute leaves exposed of a transfer never shrinks as the transfer grows, so the step
    /// cannot be longer. ZeRO 2 repeats its exchange each micro-batch: nothing is concluded from it for the others.
    pub fn dominates(&self, other: &Self) -> bool {
        let stage = self.zero == other.zero || (self.zero == ZeroStage::One && other.zero == ZeroStage::Zero);
        let within = match (&self.engine, &other.engine) {
            (Engine::Replicated(mine), Engine::Replicated(theirs)) => mine.within(theirs),
            (Engine::Sharded(mine), Engine::Sharded(theirs)) => mine.within(theirs),
            (Engine::Replicated(_), Engine::Sharded(_)) | (Engine::Sharded(_), Engine::Replicated(_)) => false,
        };
        stage
            && within
            && self.order == other.order
            && self.reshard_after_forward == other.reshard_after_forward
            && self.gathered <= other.gathered
            && self.states.iter().zip(&other.states).all(|(a, b)| a.0 <= b.0 && a.1 <= b.1 && a.2 <= b.2)
    }
}

/// The fewest bytes of states that any of these shardings leaves to its fullest class.
pub fn least_states(shardings: &[Sharding]) -> Bytes {
    shardings.iter().map(Sharding::bytes).reduce(Bytes::min).unwrap_or(Bytes::ZERO)
}
