//! Cost of sharding: exchange between replicas, update and states, computed once for all pipelines of one shape.

use smallvec::SmallVec;

use super::block::ROUNDING;
use super::stages::Stages;
use super::state_bytes::{LeastStates, StateBytes};
use crate::cost::costs::Costs;
use crate::cost::counts::each_rank;
use crate::cost::data::{Exchange, RankParameters, heaviest};
use crate::cost::fsdp::Sharded;
use crate::cost::moments::Temporary;
use crate::cost::optimizer::Update;
use crate::cost::pipeline::Edges;
use crate::cost::states::States;
use crate::plan::{Offload, Plan, RankOrder, ZeroStage};
use crate::units::Seconds;

/// How a step ends, by its engine.
#[derive(Clone, Debug)]
pub(super) enum Engine {
    /// ZeRO 0 to 2.
    Replicated(Edges),
    /// ZeRO 3. Boxed, since it is large and menus hold hundreds of the others.
    Sharded(Box<Sharded>),
}

impl Engine {
    /// The engine with another update.
    fn with_update(&self, update: Update) -> Self {
        match self {
            Self::Replicated(edges) => Self::Replicated(Edges { update, ..*edges }),
            Self::Sharded(sharded) => Self::Sharded(Box::new(Sharded { update, ..Sharded::clone(sharded) })),
        }
    }
}

/// Sharding of one plan: ZeRO stage, shard group, resharding, offloaded optimizer, rank order.
#[derive(Clone, Debug)]
pub struct Sharding {
    pub(super) zero: ZeroStage,
    pub(super) shard_group: Option<u32>,
    pub(super) reshard_after_forward: bool,
    pub(super) optimizer_on_host: f64,
    pub(super) order: RankOrder,
    pub(super) engine: Engine,
    /// Model states of each class of ranks.
    pub(super) states: SmallVec<[StateBytes; 3]>,
    /// Temporarily unsharded weights or gradients.
    pub(super) unsharded: Temporary,
}

/// Parameters of the classes of ranks, and the heaviest of any rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Parameters of the rank with the most.
    pub(super) heaviest: RankParameters,
    /// Parameters of a rank of each class.
    pub(super) by_class: Vec<RankParameters>,
    /// Undominated classes, by dense and expert parameters: one of them has the longest update.
    pub(super) largest: SmallVec<[RankParameters; 2]>,
    /// Gathered weights under ZeRO 3, with and without resharding after the forward.
    pub(super) gathered: [Temporary; 2],
    /// Whole gradients under ZeRO 2.
    pub(super) whole_gradients: Temporary,
}

impl Parameters {
    /// Parameters of the ranks of a plan's pipeline, by its tp, ep, etp, pp and schedule.
    pub fn new(costs: &Costs, plan: &Plan, stages: &Stages) -> Self {
        let all = costs.parameters_of(plan, &stages.counts, &each_rank(plan.layout.pp));
        let by_class: Vec<RankParameters> =
            stages.parameter_classes.iter().map(|class| all[class.ranks[0] as usize]).collect();
        let gathered = [true, false].map(|reshard_after_forward| {
            let plan = Plan { zero: ZeroStage::Three, reshard_after_forward, ..plan.clone() };
            costs.unsharded(&plan, &stages.counts)
        });
        let whole_gradients = costs.unsharded(&Plan { zero: ZeroStage::Two, ..plan.clone() }, &stages.counts);
        Self { heaviest: heaviest(&all), largest: largest(&by_class), by_class, gathered, whole_gradients }
    }

    /// Lower bound of the bytes of states and unsharded weights of each class of ranks, over all shard groups of a
    /// plan's ZeRO stage and all shares of its optimizer on the host up to its own.
    pub fn least_states(&self, costs: &Costs, plan: &Plan) -> Vec<LeastStates> {
        let plan = Plan { shard_group: None, ..plan.clone() };
        let is_by_moment = costs.is_by_moment(&plan);
        let unsharded = match plan.zero {
            ZeroStage::Three => self.gathered[0].lesser(self.gathered[1]),
            ZeroStage::Two => self.whole_gradients,
            ZeroStage::Zero | ZeroStage::One => Temporary::default(),
        };
        let states = self.states(costs, &plan).into_iter();
        states.map(|states| LeastStates::new(is_by_moment, states, unsharded)).collect()
    }

    /// Longest update of any rank under a plan's sharding.
    fn update(&self, costs: &Costs, plan: &Plan) -> Update {
        costs.longest_update(plan, self.largest.iter().map(|parameters| (parameters, plan.offload)))
    }

    /// Lower bound of the time of the update under a plan's sharding, on the device and on the host together, over shares of its
    /// optimizer on the host: the update of each rank grows or shrinks evenly with the share.
    pub fn least_update(&self, costs: &Costs, plan: &Plan, shares: &[f64]) -> Seconds {
        let (least, most) = shares.iter().fold((1.0_f64, 0.0_f64), |(a, b), &share| (a.min(share), b.max(share)));
        let with_share = |optimizer| Plan { offload: Offload { optimizer, ..plan.offload }, ..plan.clone() };
        let update = |share: f64| self.update(costs, &with_share(share)).total() * ROUNDING;
        [least, most].map(update).into_iter().fold(Seconds::new(f64::INFINITY), Seconds::min)
    }

    /// Dense parameters of the rank with the most parameters.
    pub const fn dense(&self) -> f64 {
        self.heaviest.dense
    }

    /// Model states of each class of ranks under a plan's sharding.
    fn states(&self, costs: &Costs, plan: &Plan) -> SmallVec<[StateBytes; 3]> {
        let all = self.by_class.iter().map(|parameters| costs.states(parameters, plan));
        let bytes =
            |of: States| StateBytes { resident: of.weights + of.optimizer, gradients: of.gradients, update: of.update };
        all.map(bytes).collect()
    }
}

/// The parameters that no others exceed in both kinds, dense and expert. The time of the update, on the device and on the
/// host, grows with each.
fn largest(all: &[RankParameters]) -> SmallVec<[RankParameters; 2]> {
    let covers = |a: &RankParameters, b: &RankParameters| a.dense >= b.dense && a.experts >= b.experts;
    let mut kept: SmallVec<[RankParameters; 2]> = SmallVec::new();
    for own in all {
        if !kept.iter().any(|known| covers(known, own)) {
            kept.retain(|known| !covers(own, known));
            kept.push(*own);
        }
    }
    kept
}

/// Parts of the shardings of one layout and share of the optimizer on the host that several have in common, each computed once.
#[derive(Debug, Default)]
pub struct SharedParts {
    experts: SmallVec<[ExpertExchange; 4]>,
    states: Vec<StatesAndUpdate>,
}

/// Exchange of expert parameters between their replicas.
#[derive(Clone, Copy, Debug)]
struct ExpertExchange {
    /// Whether ZeRO shards the optimizer states.
    is_sharded: bool,
    order: RankOrder,
    exchange: Exchange,
}

/// Model states and their update under one ZeRO stage and shard group.
#[derive(Clone, Debug)]
struct StatesAndUpdate {
    zero: ZeroStage,
    shard_group: Option<u32>,
    /// Longest update of any rank.
    update: Update,
    /// Model states of each class of ranks.
    states: SmallVec<[StateBytes; 3]>,
}

impl SharedParts {
    fn exchange(&mut self, costs: &Costs, plan: &Plan, heaviest: &RankParameters) -> Exchange {
        let (is_sharded, order) = (plan.zero != ZeroStage::Zero, plan.order);
        if let Some(known) = self.experts.iter().find(|known| known.is_sharded == is_sharded && known.order == order) {
            return known.exchange;
        }
        let exchange = costs.exchange_of_experts(plan, heaviest);
        self.experts.push(ExpertExchange { is_sharded, order, exchange });
        exchange
    }

    fn states_and_update(&mut self, costs: &Costs, plan: &Plan, parameters: &Parameters) -> &StatesAndUpdate {
        let Plan { zero, shard_group, .. } = *plan;
        let known = self.states.iter().position(|known| known.zero == zero && known.shard_group == shard_group);
        let index = known.unwrap_or_else(|| {
            let (update, states) = (parameters.update(costs, plan), parameters.states(costs, plan));
            self.states.push(StatesAndUpdate { zero, shard_group, update, states });
            self.states.len() - 1
        });
        &self.states[index]
    }
}

impl Sharding {
    /// Prices a plan's sharding: its degrees, ZeRO stage, shard group, resharding, offloaded optimizer and order.
    pub fn new(costs: &Costs, plan: &Plan, parameters: &Parameters) -> Self {
        Self::among(costs, plan, parameters, &mut SharedParts::default())
    }

    /// Prices a plan's sharding from the parts that it shares with others of its layout.
    pub fn among(costs: &Costs, plan: &Plan, parameters: &Parameters, known: &mut SharedParts) -> Self {
        let heaviest = &parameters.heaviest;
        let StatesAndUpdate { update, states, .. } = known.states_and_update(costs, plan, parameters).clone();
        let (engine, unsharded) = if plan.zero == ZeroStage::Three {
            let gathered = parameters.gathered[usize::from(!plan.reshard_after_forward)];
            (Engine::Sharded(Box::new(costs.sharded(plan, heaviest, update))), gathered)
        } else {
            let whole = if plan.zero == ZeroStage::Two { parameters.whole_gradients } else { Temporary::default() };
            let exchange = costs.exchange_beside(known.exchange(costs, plan, heaviest), plan, heaviest);
            (Engine::Replicated(Edges { exchange, tied: costs.tied_ends(plan), update }), whole)
        };
        Self {
            zero: plan.zero,
            shard_group: plan.shard_group,
            reshard_after_forward: plan.reshard_after_forward,
            optimizer_on_host: plan.offload.optimizer,
            order: plan.order,
            engine,
            states,
            unsharded,
        }
    }

    /// Sharding with another share of the optimizer on the host: the exchange stays.
    #[must_use]
    pub fn with_host(&self, costs: &Costs, plan: &Plan, parameters: &Parameters, optimizer: f64) -> Self {
        let plan = &Plan { offload: Offload { optimizer, ..plan.offload }, ..plan.clone() };
        let engine = self.engine.with_update(parameters.update(costs, plan));
        let (states, order) = (parameters.states(costs, plan), self.order);
        let Self { zero, shard_group, reshard_after_forward, unsharded, .. } = *self;
        Self {
            zero,
            shard_group,
            reshard_after_forward,
            optimizer_on_host: optimizer,
            order,
            engine,
            states,
            unsharded,
        }
    }

    /// Lower bound, in time and memory, of this sharding with any of these shares of the optimizer on the host: the shortest
    /// update of any, and the fewest bytes of states.
    #[must_use]
    pub fn floor(self, costs: &Costs, plan: &Plan, parameters: &Parameters, shares: &[f64]) -> Self {
        if shares == [self.optimizer_on_host] {
            return self;
        }
        let most = Offload { optimizer: shares.iter().copied().fold(0.0, f64::max), ..plan.offload };
        let states = parameters.states(costs, &Plan { offload: most, ..plan.clone() });
        let update = Update { device: parameters.least_update(costs, plan, shares), host: Seconds::ZERO };
        Self { engine: self.engine.with_update(update), states, ..self }
    }

    /// Lower bound, in time and memory, of two shardings with one ZeRO stage and rank order: the minimum of each part.
    #[must_use]
    pub fn lesser(&self, other: &Self) -> Self {
        let engine = match (&self.engine, &other.engine) {
            (Engine::Replicated(mine), Engine::Replicated(theirs)) => Engine::Replicated(mine.lesser(theirs)),
            (Engine::Sharded(mine), Engine::Sharded(theirs)) => Engine::Sharded(Box::new(mine.lesser(theirs))),
            (Engine::Replicated(_), Engine::Sharded(_)) | (Engine::Sharded(_), Engine::Replicated(_)) => {
                unreachable!("a ZeRO stage has one engine")
            }
        };
        // A smaller shard group leaves a scale-up domain no sooner.
        let shard_group = match (self.shard_group, other.shard_group) {
            (Some(mine), Some(theirs)) => Some(mine.min(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        Self {
            shard_group,
            reshard_after_forward: self.reshard_after_forward && other.reshard_after_forward,
            engine,
            states: self.states.iter().zip(&other.states).map(|(a, b)| a.lesser(*b)).collect(),
            unsharded: self.unsharded.lesser(other.unsharded),
            ..self.clone()
        }
    }

    /// Rank order of its layout.
    pub const fn order(&self) -> RankOrder {
        self.order
    }

    /// Its ZeRO stage.
    pub const fn zero(&self) -> ZeroStage {
        self.zero
    }

    /// The plan with this sharding.
    pub fn applied_to(&self, plan: &Plan) -> Plan {
        Plan {
            zero: self.zero,
            shard_group: self.shard_group,
            reshard_after_forward: self.reshard_after_forward,
            offload: Offload { optimizer: self.optimizer_on_host, ..plan.offload },
            order: self.order,
            ..plan.clone()
        }
    }

    /// Time at the ends of a step that no flow can hide.
    pub fn least_time(&self, costs: &Costs, plan: &Plan) -> Seconds {
        match &self.engine {
            Engine::Replicated(edges) => costs.least_edges(plan, self.zero, edges) * ROUNDING,
            Engine::Sharded(sharded) => sharded.update.total(),
        }
    }

    /// Bytes of states and gathered weights of each class of ranks.
    pub fn bytes_by_class(&self, costs: &Costs, plan: &Plan) -> impl Iterator<Item = LeastStates> + '_ {
        let is_by_moment = costs.is_by_moment(&self.applied_to(plan));
        self.states.iter().map(move |states| LeastStates::new(is_by_moment, *states, self.unsharded))
    }

    /// Whether this sharding dominates `other` in time and memory in every pipeline.
    ///
    /// Same order and engine, and each of exchange, update on device and on host, and of the bytes of each class of ranks, no
    /// more than the other's. What compute leaves exposed of a transfer never shrinks as the transfer grows, so the step
    /// cannot be longer. ZeRO 2 repeats its exchange each micro-batch, so it is not compared with the others.
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
            && self.unsharded.within(other.unsharded)
            && self.states.iter().zip(&other.states).all(|(a, b)| a.within(*b))
    }
}

/// The fewest bytes of states and gathered weights that any of these shardings leaves to each class of ranks.
pub fn least_states<'s>(costs: &Costs, plan: &Plan, shardings: impl Iterator<Item = &'s Sharding>) -> Vec<LeastStates> {
    let mut least: Vec<LeastStates> = Vec::new();
    for sharding in shardings {
        if least.is_empty() {
            least = sharding.bytes_by_class(costs, plan).collect();
        }
        for (known, bytes) in least.iter_mut().zip(sharding.bytes_by_class(costs, plan)) {
            *known = known.lesser(bytes);
        }
    }
    least
}
