//! Memory of the ranks of a pipeline without their states, ready for shardings.

use std::slice;

use smallvec::SmallVec;

use super::block::{Layers, ROUNDING};
use super::sharding::Sharding;
use super::stages::{Moment, Moments, ParameterClass, Stages};
use super::state_bytes::{LeastStates, MomentBytes, StateBytes};
use crate::cost::costs::Costs;
use crate::cost::footprint::{Footprint, Reserve};
use crate::cost::moments::{Needs, Temporary, Timing};
use crate::cost::states::States;
use crate::plan::{Plan, Recompute, ZeroStage};
use crate::schedule::RankBytes;
use crate::units::Bytes;

/// Memory of the ranks of a pipeline without their states.
#[derive(Clone, Debug)]
pub struct RankMemory {
    /// Bytes of each class of ranks where all tensors are resident at once.
    together: SmallVec<[RankNeeds; 4]>,
    /// Bytes by moment of each class of ranks, of every rank that no other dominates; empty where the stack's tensors are not
    /// timed by moment.
    by_moment: Vec<Vec<RankNeeds>>,
    /// Timing by moment.
    timing: Timing,
    /// Whether a single GPU trains, whose peak is that of one moment under any ZeRO stage.
    is_single: bool,
    /// Memory beyond the tensors of each rank.
    reserve: Reserve,
    caches: Bytes,
}

/// Memory of the ranks of a pipeline before it is known which layers they recompute and which share of the activations is on the
/// host.
#[derive(Debug)]
pub struct UnsharedMemory<'l> {
    stages: &'l Stages,
    moments: Moments,
    timing: Timing,
    is_single: bool,
    reserve: Reserve,
    caches: Bytes,
}

/// Bytes of a rank without its states.
#[derive(Clone, Copy, Debug)]
struct RankNeeds {
    rank: u32,
    needs: Needs,
}

impl RankMemory {
    /// Sizes the layers of a plan on a pipeline; its sharding is not read.
    pub fn new(costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages) -> Self {
        UnsharedMemory::new(costs, plan, stages).with_layers(costs, plan, layers)
    }

    /// Memory of the same ranks without activations: a lower bound for which the schedule need not be known.
    pub fn without_activations(costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages) -> Self {
        let needs = |class: &ParameterClass, loss: Bytes| {
            let needs = Needs { temporary: Temporary { loss, ..Temporary::default() }, ..Needs::default() };
            RankNeeds { rank: class.ranks[0], needs }
        };
        let together = stages
            .parameter_classes
            .iter()
            .map(|class| needs(class, layers.end_bytes(false, plan).on_rank(class.has_head)))
            .collect();
        let by_moment = stages
            .parameter_classes
            .iter()
            .map(|class| vec![needs(class, layers.end_bytes(true, plan).on_rank(class.has_head))]);
        let by_moment = if costs.has_moments() { by_moment.collect() } else { Vec::new() };
        Self {
            together,
            by_moment,
            timing: timing(costs, plan),
            is_single: plan.layout.world_size() == 1,
            reserve: costs.reserve(plan),
            caches: costs.caches(plan),
        }
    }

    /// Memory of the fullest rank with a sharding.
    pub fn with_sharding(&self, sharding: &Sharding) -> RankBytes {
        let timing = self.timing_under(sharding.zero);
        let of_class = |(class, states): (usize, &StateBytes)| {
            let needed = |rank: &RankNeeds| self.needed(rank, timing, *states, sharding.unsharded);
            self.ranks(class, timing).iter().map(needed).reduce(RankBytes::fuller).unwrap_or_default()
        };
        sharding.states.iter().enumerate().map(of_class).reduce(RankBytes::fuller).unwrap_or_default()
    }

    /// Whether every rank has a peak of at most `hbm_budget` with a sharding.
    pub fn fits(&self, sharding: &Sharding, hbm_budget: Bytes) -> bool {
        let timing = self.timing_under(sharding.zero);
        sharding.states.iter().enumerate().all(|(class, states)| {
            let mut ranks = self.ranks(class, timing).iter();
            ranks.all(|rank| self.needed(rank, timing, *states, sharding.unsharded).bytes <= hbm_budget)
        })
    }

    /// Timing under a ZeRO stage ([`Costs::timing`]): by moment under ZeRO 3, whose engine reduces gradients on a
    /// stream of its own, and on a single GPU.
    #[inline]
    fn timing_under(&self, zero: ZeroStage) -> Timing {
        match (zero == ZeroStage::Three, self.timing) {
            _ if self.by_moment.is_empty() => Timing::Together,
            (true, Timing::ByMoment { gradients_stay, lost, .. }) => {
                Timing::ByMoment { gradients_stay, gradients_apart: true, lost }
            }
            (false, _) if !self.is_single => Timing::Together,
            (_, timing) => timing,
        }
    }

    /// Ranks of a class that may need the most.
    #[inline]
    fn ranks(&self, class: usize, timing: Timing) -> &[RankNeeds] {
        if timing == Timing::Together { slice::from_ref(&self.together[class]) } else { &self.by_moment[class] }
    }

    /// Memory of a rank with these states.
    #[inline]
    fn needed(&self, rank: &RankNeeds, timing: Timing, states: StateBytes, unsharded: Temporary) -> RankBytes {
        let needs = Needs { temporary: rank.needs.temporary.plus(unsharded), ..rank.needs };
        let StateBytes { resident, gradients, update } = states;
        let states = States { weights: resident, gradients, optimizer: Bytes::ZERO, update };
        let footprint = Footprint::of_rank(rank.rank, self.reserve, timing, states, &needs, self.caches);
        RankBytes { rank: rank.rank, bytes: footprint.peak() }
    }

    /// Lower bound of the memory of the fullest rank over all shardings that leave at least `states` to each class of ranks.
    pub fn lower_bound(&self, states: &[LeastStates]) -> RankBytes {
        let of_timing = |class: usize, timing: Timing, states: StateBytes, unsharded: Temporary| {
            let needed = |rank: &RankNeeds| self.needed(rank, timing, states, unsharded);
            self.ranks(class, timing).iter().map(needed).reduce(RankBytes::fuller).unwrap_or_default()
        };
        let of_class = |(class, least): (usize, &LeastStates)| {
            let together =
                least.together.map(|states| of_timing(class, Timing::Together, states, Temporary::default()));
            let by_moment = least
                .by_moment
                .map(|MomentBytes { states, unsharded }| of_timing(class, self.timing, states, unsharded));
            let emptier = |a: RankBytes, b: RankBytes| if b.bytes < a.bytes { b } else { a };
            let RankBytes { rank, bytes } = together.into_iter().chain(by_moment).reduce(emptier).unwrap_or_default();
            RankBytes { rank, bytes: bytes * ROUNDING }
        };
        states.iter().enumerate().map(of_class).reduce(RankBytes::fuller).unwrap_or_default()
    }
}

impl<'l> UnsharedMemory<'l> {
    /// Memory of a plan's pipeline; its recomputation, sharding and offload are not read.
    pub fn new(costs: &Costs, plan: &Plan, stages: &'l Stages) -> Self {
        let moments = stages.moments(costs, plan);
        let (timing, reserve, caches) = (timing(costs, plan), costs.reserve(plan), costs.caches(plan));
        Self { stages, moments, timing, is_single: plan.layout.world_size() == 1, reserve, caches }
    }

    /// Whether this is the memory of these classes of ranks.
    pub fn is_of(&self, stages: &Stages) -> bool {
        std::ptr::eq(self.stages, stages)
    }

    /// Memory with a plan's layers, and with the share of their activations that it leaves on the host.
    pub fn with_layers(&self, costs: &Costs, plan: &Plan, layers: &Layers) -> RankMemory {
        let Self { stages, ref moments, timing, is_single, reserve, caches } = *self;
        let (together, by_moment) = needs_of_classes(costs, plan, layers, stages, moments);
        RankMemory { together, by_moment, timing, is_single, reserve, caches }
    }
}

/// Timing of a plan's tensors by moment: under ZeRO 3, or on a single GPU, which has nothing to shard over.
fn timing(costs: &Costs, plan: &Plan) -> Timing {
    let zero = if plan.layout.world_size() == 1 { ZeroStage::Zero } else { ZeroStage::Three };
    costs.timing(&Plan { zero, ..plan.clone() })
}

/// Bytes of each class of ranks without their states: of the rank that needs the most at once, and by moment of every rank that no
/// other dominates.
fn needs_of_classes(
    costs: &Costs,
    plan: &Plan,
    layers: &Layers,
    stages: &Stages,
    moments: &Moments,
) -> (SmallVec<[RankNeeds; 4]>, Vec<Vec<RankNeeds>>) {
    let on_device = 1.0 - plan.offload.activations;
    let keeps = matches!(plan.recompute, Recompute::None | Recompute::Selective(_));
    let freed = if keeps { costs.freed_input(plan, plan.offload.activations) } else { Bytes::ZERO };
    let needs_at = |class: &ParameterClass, moment: &Moment, is_by_moment: bool| {
        let largest = |of_choice: &[Bytes]| {
            moment.has_layers.iter().zip(of_choice).map(|(here, bytes)| *bytes * *here).fold(Bytes::ZERO, Bytes::max)
        };
        let in_flight = moment.in_flight.iter().zip(&layers.bytes.kept);
        let activations: Bytes = in_flight.map(|(times, bytes)| *bytes * (*times * on_device)).sum();
        let backward = largest(if is_by_moment { &layers.bytes.backward } else { &layers.bytes.recomputed });
        let needs = Needs {
            activations: activations - freed * moment.stages,
            layer: largest(&layers.bytes.kept) * on_device,
            temporary: Temporary {
                loss: layers.end_bytes(is_by_moment, plan).on_rank(class.has_head),
                backward,
                ..Temporary::default()
            },
        };
        RankNeeds { rank: moment.rank, needs }
    };
    let classes = || stages.parameter_classes.iter().zip(moments.iter());
    let together = |(class, moments): (&ParameterClass, &Vec<Moment>)| {
        let bytes =
            |rank: &RankNeeds| rank.needs.activations + rank.needs.temporary.loss + rank.needs.temporary.backward;
        let most = |a: RankNeeds, b: RankNeeds| if bytes(&b) > bytes(&a) { b } else { a };
        let all = moments.iter().map(|moment| needs_at(class, moment, false));
        all.reduce(most).expect("each class has a rank, and each rank a moment")
    };
    let by_moment = |(class, moments): (&ParameterClass, &Vec<Moment>)| {
        let mut kept: Vec<RankNeeds> = Vec::new();
        for rank in moments.iter().map(|moment| needs_at(class, moment, true)) {
            if !kept.iter().any(|known| rank.needs.within(&known.needs)) {
                kept.retain(|known| !known.needs.within(&rank.needs));
                kept.push(rank);
            }
        }
        kept
    };
    let by_moment = if costs.has_moments() { classes().map(by_moment).collect() } else { Vec::new() };
    (classes().map(together).collect(), by_moment)
}
