//! Lower bounds on the simulated time of a flow, without simulation, and of the memory and the ends of a step.

use smallvec::smallvec;

use super::block::ROUNDING;
use super::least_time::{RoundTrip, way_back};
use super::sharding::Parameters;
use super::stages::Stages;
use crate::cost::costs::Costs;
use crate::cost::data::{RankParameters, TableParameters};
use crate::cost::moments::Temporary;
use crate::cost::pipeline::PairEffect;
use crate::cost::shape::ShapeCost;
use crate::cost::stage;
use crate::cost::work::Work;
use crate::plan::{Offload, Plan};
use crate::schedule::Schedule;
use crate::schedule::ops::PairedShares;
use crate::schedule::paths::Pairing;
use crate::units::{Bytes, Seconds};

/// Lower bound of the memory of the fullest rank of a plan, of which the degrees, ZeRO stage and offload are read: the states of
/// `parameters`, without activations, with every replica in one shard group.
///
/// `parameters` = parameters of ranks of which one in the plan's pipeline has no fewer: [`least_parameters`].
pub fn least_memory_of_layers(costs: &Costs, plan: &Plan, parameters: &[RankParameters]) -> Bytes {
    let plan = &Plan { shard_group: None, schedule: Schedule::OneFOneB, ..plan.clone() };
    let all = |rank: &RankParameters| costs.states(rank, plan).total();
    let (states, reserve) = (parameters.iter().map(all).fold(Bytes::ZERO, Bytes::max), costs.reserve(plan));
    let lost = if costs.has_moments() { 0.0 } else { reserve.fragmentation };
    (states * (1.0 + lost) + reserve.context) * ROUNDING
}

/// Lower bound of the time of a plan's update on the host, of which the degrees, ZeRO stage and offload are read, for
/// `parameters` as [`least_memory_of_layers`] takes them.
pub fn least_host_update_of_layers(costs: &Costs, plan: &Plan, parameters: &[RankParameters]) -> Seconds {
    let plan = &Plan { shard_group: None, ..plan.clone() };
    parameters.iter().map(|rank| costs.host_update(plan, rank)).fold(Seconds::ZERO, Seconds::max) * ROUNDING
}

/// The largest share of a plan's optimizer states that its hosts may have room for, whatever the pipeline, which is above 1 where
/// that is more than all: some host holds no less than the mean. The plan's degrees, ZeRO stage and shard group are read.
///
/// ```text
/// o ≤ M_host·H / (N·S)      M_host bytes of a host, H hosts of N ranks, S bytes of the optimizer states of the mean rank
/// ```
///
/// `mean` = parameters of the mean rank: the first of [`least_parameters`].
pub fn most_optimizer_on_host(costs: &Costs, plan: &Plan, mean: &RankParameters) -> f64 {
    let cluster = costs.problem.cluster();
    let Some(of_host) = cluster.host_memory else { return f64::INFINITY };
    let optimizer = costs.states(mean, &Plan { offload: Offload::NONE, ..plan.clone() }).optimizer;
    let ranks = plan.layout.world_size();
    let hosts = ranks.div_ceil(cluster.gpus_per_node.max(1));
    let needed = optimizer * (f64::from(ranks) * ROUNDING);
    if needed <= Bytes::ZERO { f64::INFINITY } else { of_host * f64::from(hosts) / needed }
}

/// Parameters of ranks of a plan's degrees, whatever the schedule and the split: some rank has no fewer than the mean
/// of all, and some rank no fewer than ⌈n/p⌉ of the n layers of the kind with the most parameters.
pub fn least_parameters(costs: &Costs, plan: &Plan) -> [RankParameters; 2] {
    let (model, layout) = (costs.problem.model(), &plan.layout);
    let of_layer = |kind: usize| RankParameters::of_layer(costs.layer_parameters(kind), layout);
    let TableParameters { embedding, head } = costs.table_parameters(plan);
    let of_depth = of_layer(model.last_kind()).plus(&costs.mtp_parameters(plan), 1.0);
    let mut all = embedding.plus(&head, 1.0).plus(&of_depth, f64::from(model.mtp_depth));
    let mut of_kind = RankParameters::default();
    for (kind, &count) in costs.kind_counts().iter().enumerate() {
        let layer = of_layer(kind);
        all = all.plus(&layer, f64::from(count));
        let some = RankParameters::default().plus(&layer, f64::from(count.div_ceil(layout.pp)));
        of_kind = if some.total() > of_kind.total() { some } else { of_kind };
    }
    [RankParameters::default().plus(&all, 1.0 / f64::from(layout.pp)), of_kind]
}

impl Parameters {
    /// Parameters by which bounds of the time at the ends of a step hold for all pipelines of a plan's layout: those of
    /// a rank of which the heaviest has no fewer. They tell nothing of memory.
    pub fn least_of_layout(costs: &Costs, plan: &Plan) -> Self {
        let heaviest = least_heaviest(costs, plan);
        let none = Temporary::default();
        Self {
            heaviest,
            by_class: Vec::new(),
            largest: smallvec![heaviest],
            gathered: [none; 2],
            whole_gradients: none,
        }
    }
}

/// Parameters of the rank with the most, of a plan's degrees, whatever the schedule and the split: it has no fewer,
/// dense and experts each.
///
/// ```text
/// P ≥ P_mean     dense ≥ P_mean·(1 − max over kinds of x)     experts ≥ (P_mean − P_o)·min over kinds with experts of x
/// ```
///
/// x = share of the experts in the parameters of a layer, P_o = all parameters of the model outside of layers with experts.
fn least_heaviest(costs: &Costs, plan: &Plan) -> RankParameters {
    let model = costs.problem.model();
    let mean = least_parameters(costs, plan)[0].total();
    let TableParameters { embedding, head } = costs.table_parameters(plan);
    // The last stage may hold a copy of a tied embedding.
    let ends = (embedding.total() + head.total()) * 2.0;
    let mut others = ends + costs.mtp_parameters(plan).total() * f64::from(model.mtp_depth);
    let (mut least, mut most) = (1.0_f64, 0.0_f64);
    for (kind, &count) in costs.kind_counts().iter().enumerate() {
        let layer = RankParameters::of_layer(costs.layer_parameters(kind), &plan.layout);
        let share = layer.experts / layer.total().max(1.0);
        if share > 0.0 {
            least = least.min(share);
        } else {
            let of_depth = if kind == model.last_kind() { model.mtp_depth } else { 0 };
            others += layer.total() * f64::from(count + of_depth);
        }
        most = most.max(share);
    }
    let experts = if most > 0.0 { (mean - others).max(0.0) * least } else { 0.0 };
    RankParameters { dense: mean * (1.0 - most), experts, tables: 0.0 }
}

/// Lower bound on the simulated time of a flow:
///
/// ```text
/// max over ranks i of  m·(F_i + B_i) + Σ over chunks before i's first of (F + B)          specification §4.2
/// ```
///
/// or a micro-batch's way through all chunks and back, if that takes longer ([`RoundTrip`]).
///
/// Rank i begins when a micro-batch has come through the chunks before its own, works through all its micro-batches, and ends
/// with a backward that has still to go back through those chunks. Where weight gradients are passes of their own the rank
/// may end with one of them: then only the way there counts. One micro-batch at a time is its closed form: `None`, as where the
/// schedule does not run.
pub(super) fn least_flow(
    costs: &Costs,
    plan: &Plan,
    stages: &Stages,
    ranks: &[(Work, f64)],
    works: &[Work],
    shape: &ShapeCost,
) -> Option<Seconds> {
    if plan.layout.pp == 1 {
        return None;
    }
    if plan.schedule == Schedule::DualPipe {
        return least_between_two_ends(costs, plan, ranks);
    }
    let back = way_back(plan.schedule)?;
    let micro_batches = costs.micro_batches(plan);
    let pairs = if plan.schedule.is_bidirectional() { Some(Pairs::of(costs, plan)?) } else { None };
    let embedding = stage::embedding(&shape.ends);
    let splits = plan.schedule.splits_backward();
    let on_the_way = |work: &Work| work.forward() + work.backward() - if splits { work.wgrad } else { Seconds::ZERO };
    let trip = RoundTrip {
        of_layer: works.iter().map(on_the_way).collect(),
        embedding: if splits { embedding.forward() } else { on_the_way(&embedding) },
        loss: on_the_way(&stage::loss(&shape.ends)),
    };
    let first = if plan.schedule.is_bidirectional() { Seconds::ZERO } else { trip.least_flow(stages, micro_batches) };
    let of_ranks = stages
        .work_classes
        .iter()
        .zip(ranks)
        .map(|(class, (work, _))| {
            let alone = || work.forward() + work.backward() + work.ep_exposed;
            let own = pairs.as_ref().map_or_else(alone, |pairs| pairs.of_rank(work));
            let mut before = Seconds::ZERO;
            for (kind, &times) in class.layers_before.iter().enumerate() {
                before += (works[kind].forward() + works[kind].backward() * back) * times;
            }
            if class.embedding_before {
                before += embedding.forward() + embedding.backward() * back;
            }
            own * micro_batches + before
        })
        .reduce(Seconds::max);
    of_ranks.map(|least| least.max(first))
}

/// Lower bound on the simulated time of a flow through `DualPipe`, whose ranks hold two stages each: some rank takes no
/// less than the mean of all, and the mean rank waits for (p/2 − 1)/2 forwards before its first.
fn least_between_two_ends(costs: &Costs, plan: &Plan, ranks: &[(Work, f64)]) -> Option<Seconds> {
    let (pairs, pp) = (Pairs::of(costs, plan)?, f64::from(plan.layout.pp));
    let mean: Seconds = ranks.iter().map(|(work, times)| pairs.of_rank(work) * (times / pp)).sum();
    let shortest = ranks.iter().map(|(work, _)| work.forward()).reduce(Seconds::min).unwrap_or_default();
    Some(mean * costs.micro_batches(plan) + shortest * ((pp / 2.0 - 1.0) / 2.0))
}

/// Bounds on the time that pairs of a bidirectional pipeline save and cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairs {
    /// Factor on the work of a pass alone.
    work: f64,
    /// Factor on the expert traffic of a pass alone.
    traffic: f64,
    /// Factor by which compute is slower in a pair.
    slower: f64,
    /// Share of the expert traffic that a pair may hide.
    hidden: f64,
}

/// Factors by which a micro-batch occupies its rank on average: a lower bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanFactors {
    /// Factor on the time of its passes alone, with their expert traffic.
    pub passes: f64,
    /// Factor on its expert traffic, by which pairs take less: not above 0.
    pub traffic: f64,
}

impl Pairs {
    /// Bounds of schedules without pairs.
    pub const NONE: Self = Self { work: 1.0, traffic: 1.0, slower: 1.0, hidden: 0.0 };

    /// Bounds for a plan; `None` where its schedule does not run.
    ///
    /// ```text
    /// Σ over pairs and passes alone  ≥  m·(F + B)·(1 + (κ−1)·f) + m·E·(1 − θ·g)          f, g = least and largest share paired
    /// ```
    pub(in crate::cost) fn of(costs: &Costs, plan: &Plan) -> Option<Self> {
        let PairedShares { fewest, most } = plan.pipeline().paired(costs.whole_micro_batches(plan)?)?;
        let PairEffect { slower, hidden } = costs.pair_effect(plan);
        Some(Self { work: 1.0 + (slower - 1.0) * fewest, traffic: 1.0 - hidden * most, slower, hidden })
    }

    /// Lower bound on the mean time of a micro-batch on its rank, as factors on the time of its passes alone, F + B with
    /// their traffic E, and on E.
    ///
    /// ```text
    /// work·(F + B − E) + traffic·E  =  work·(F + B) + (traffic − work)·E
    /// ```
    pub const fn on_average(&self) -> MeanFactors {
        MeanFactors { passes: self.work, traffic: self.traffic - self.work }
    }

    /// Lower bound on the time of one pair, as factors on the times of its passes alone: their traffic is half of their
    /// stages'.
    ///
    /// ```text
    /// κ·(F + B − E) + (1 − θ)·E,   E = (E_F + E_B)/2
    /// ```
    pub fn pairing(&self) -> Pairing {
        Pairing { slower: self.slower, traffic: (1.0 - self.hidden - self.slower) / 2.0 }
    }

    fn of_rank(&self, work: &Work) -> Seconds {
        (work.forward() + work.backward()) * self.work + work.ep_beside * self.traffic
    }
}
