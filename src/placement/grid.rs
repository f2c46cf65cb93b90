//! Grid of a plan's ranks, the units of its cluster, and every way to spread the one over the other.

use std::ops::ControlFlow;

use super::unplaceable::Unplaceable;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::collective::{Axis, RankMapping, units};
use meshwright_engine::gpu::Topology;
use meshwright_engine::plan::{Plan, RankOrder};

/// Number of ranks of one axis in a unit of each size; each is a multiple of the one before.
pub type Spread = Vec<u32>;

/// Placements of a plan: one spread for each axis, so that every unit is filled according to one of `shapes`.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Number of ranks of each axis, innermost first, stages last (`tp-cp-ep-dp-pp`).
    pub axes: Vec<u32>,
    /// Candidate spreads of each axis.
    pub spreads: Vec<Vec<Spread>>,
    /// Number of GPUs of each unit (`collective::units`).
    pub units: Vec<u32>,
    /// Number of ranks in each unit. No shape divides another; there are several when units are no whole parts of the plan.
    pub shapes: Vec<Vec<u32>>,
}

impl Grid {
    /// Enumerates the spreads of a plan's axes.
    ///
    /// # Errors
    ///
    /// The reason why only the rank order is possible.
    pub fn new(cluster: &Cluster, plan: &Plan) -> Result<Self, Unplaceable> {
        let axes = axes(plan).ok_or(Unplaceable::OverlappingGroups)?;
        let units = units(cluster);
        let world = plan.layout.world_size();
        let host = whole_host(cluster);
        if world <= host {
            return Err(Unplaceable::OneHost);
        }
        let held = |gpus| filled(plan, plan.order, &axes, gpus).ok_or(Unplaceable::IndivisibleHost(host));
        let (of_host, fixed) = (held(host)?, units.iter().take_while(|gpus| **gpus <= host));
        let fixed: Vec<Spread> = fixed.map(|gpus| held(*gpus)).collect::<Result<_, _>>()?;
        let free: Vec<bool> =
            (0..units.len()).map(|unit| unit >= fixed.len() && matters(cluster, &units, unit)).collect();
        if !free.contains(&true) {
            return Err(Unplaceable::Equidistant);
        }
        let start: Vec<u32> = fixed.iter().map(|held| held.iter().product()).collect();
        let mut shapes = Vec::new();
        grow(&Fit { units: &units, free: &free, host, gpus: cluster.gpus, world }, start, &mut shapes);
        let spreads = (0..axes.len()).map(|axis| {
            let start: Spread = fixed.iter().map(|held| held[axis]).collect();
            let mut all = Vec::new();
            spread(axes[axis], of_host[axis], &free, start, &mut all);
            all
        });
        Ok(Self { spreads: spreads.collect(), shapes: largest(shapes), axes, units })
    }

    /// Calls `visit` with every placement, as an index of a spread for each axis, until it breaks.
    pub fn each(&self, mut visit: impl FnMut(&[usize]) -> ControlFlow<()>) -> ControlFlow<()> {
        for shape in &self.shapes {
            self.extend(shape, &mut Vec::new(), &mut visit)?;
        }
        ControlFlow::Continue(())
    }

    fn extend(
        &self,
        left: &[u32],
        chosen: &mut Vec<usize>,
        visit: &mut impl FnMut(&[usize]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(spreads) = self.spreads.get(chosen.len()) else {
            return if left.iter().all(|ranks| *ranks == 1) { visit(chosen) } else { ControlFlow::Continue(()) };
        };
        for (at, spread) in spreads.iter().enumerate() {
            if left.iter().zip(spread).all(|(left, here)| left.is_multiple_of(*here)) {
                let left: Vec<u32> = left.iter().zip(spread).map(|(left, here)| left / here).collect();
                chosen.push(at);
                self.extend(&left, chosen, visit)?;
                chosen.pop();
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the spreads fill every unit according to one of the shapes.
    pub fn is_placement(&self, chosen: &[usize]) -> bool {
        let spreads = || chosen.iter().zip(&self.spreads).map(|(&at, spreads)| &spreads[at]);
        let holds = |unit: usize| spreads().map(|spread| spread[unit]).product::<u32>();
        chosen.len() == self.axes.len()
            && self.shapes.iter().any(|shape| shape.iter().enumerate().all(|(unit, ranks)| holds(unit) == *ranks))
    }

    /// Mapping of the ranks in a placement.
    pub fn mapping(&self, cluster: &Cluster, chosen: &[usize]) -> RankMapping {
        let axes = self.axes.iter().zip(&self.spreads).zip(chosen);
        RankMapping::new(
            cluster,
            axes.map(|((&ranks, spreads), &at)| Axis { ranks, inside: spreads[at].clone() }).collect(),
        )
    }
}

/// Mapping of the ranks when hosts are listed in rank order; `None` if a unit's ranks are no whole part of the grid.
pub fn in_order(cluster: &Cluster, plan: &Plan, order: RankOrder) -> Option<RankMapping> {
    let axes = axes(plan)?;
    let held: Vec<Spread> =
        units(cluster).into_iter().map(|gpus| filled(plan, order, &axes, gpus)).collect::<Option<_>>()?;
    let axis = |(at, ranks): (usize, u32)| Axis { ranks, inside: held.iter().map(|held| held[at]).collect() };
    Some(RankMapping::new(cluster, axes.into_iter().enumerate().map(axis).collect()))
}

/// Plan in Megatron's default rank order if its hosts have the same ranks in that order; the order of hosts gives the rest.
pub(super) fn launched(cluster: &Cluster, plan: &Plan) -> Plan {
    let held = |order| filled(plan, order, &axes(plan)?, whole_host(cluster));
    let default = RankOrder::PipelineOutermost;
    let order = if held(default).is_some() && held(default) == held(plan.order) { default } else { plan.order };
    Plan { order, ..plan.clone() }
}

/// Number of GPUs that a launcher keeps together: those of a host, or 1 for the chips of a torus.
pub(super) fn whole_host(cluster: &Cluster) -> u32 {
    if cluster.scale_up.topology == Topology::Torus { 1 } else { cluster.gpus_per_node }
}

/// Number of ranks on each axis of the grid, innermost first, stages last. The ranks of a stage are cut wherever a group
/// begins or ends; `None` if two groups overlap in a part.
fn axes(plan: &Plan) -> Option<Vec<u32>> {
    let layout = &plan.layout;
    let stage = layout.tp * layout.cp * layout.dp;
    let shards = layout.tp * plan.dense_shards();
    let mut cuts = vec![layout.tp, layout.tp * layout.cp, layout.etp, layout.etp * layout.ep, shards, stage];
    cuts.sort_unstable();
    let mut before = 1;
    let mut axes = Vec::new();
    for cut in cuts {
        if cut % before != 0 {
            return None;
        }
        if cut > before {
            axes.push(cut / before);
        }
        before = cut;
    }
    axes.push(layout.pp);
    (before == stage).then_some(axes)
}

/// Number of ranks of each axis among the first `gpus` ranks in an order.
pub(super) fn filled(plan: &Plan, order: RankOrder, axes: &[u32], gpus: u32) -> Option<Spread> {
    let mut left = gpus.min(plan.layout.world_size());
    let mut held = vec![1; axes.len()];
    for axis in sequence(plan, order, axes) {
        let ranks = axes[axis];
        held[axis] = ranks.min(left);
        if !(ranks.is_multiple_of(held[axis]) && left.is_multiple_of(held[axis])) {
            return None;
        }
        left /= held[axis];
    }
    Some(held)
}

/// Indices of the axes in the order in which ranks are numbered.
pub(super) fn sequence(plan: &Plan, order: RankOrder, axes: &[u32]) -> Vec<usize> {
    let stages = axes.len() - 1;
    let mut sequence: Vec<usize> = (0..stages).collect();
    let mut ranks = 1;
    let replica = sequence.iter().take_while(|axis| {
        ranks *= axes[**axis];
        ranks <= plan.layout.tp * plan.layout.cp
    });
    let at = if order == RankOrder::DataOutermost { replica.count() } else { stages };
    sequence.insert(at, stages);
    sequence
}

/// Whether the ranks in a unit affect the time: not if the level above is as fast as the unit's own.
fn matters(cluster: &Cluster, units: &[u32], unit: usize) -> bool {
    let domain = units.len() - cluster.levels.len().max(1);
    if unit <= domain {
        return true;
    }
    let (own, above) = (&cluster.levels[unit - domain - 1], &cluster.levels[unit - domain]);
    let rate = |level: &meshwright_engine::cluster::Level| {
        level.bandwidth.value.get() * level.efficiency / level.oversubscription
    };
    rate(above) < rate(own)
        || above.latency > meshwright_engine::units::Seconds::ZERO
        || above.in_network_reduction != own.in_network_reduction
}

/// Sizes that the blocks of a shape must fit.
struct Fit<'a> {
    units: &'a [u32],
    free: &'a [bool],
    host: u32,
    gpus: u32,
    world: u32,
}

impl Fit<'_> {
    /// Number of blocks of the last size of `shape` that fit the whole and partial units of `gpus` GPUs.
    fn blocks(&self, shape: &[u32], gpus: u32) -> u32 {
        let Some((&ranks, below)) = shape.split_last() else { return gpus / self.host };
        let unit = below.len();
        if self.units[unit] <= self.host {
            return gpus / self.host;
        }
        let Some(under) = unit.checked_sub(1) else { return gpus / self.host / (ranks / self.host) };
        let (inner, smaller) = (self.units[under].max(self.host), shape[under].max(self.host));
        (gpus / inner * self.blocks(below, inner) + self.blocks(below, gpus % inner)) / (ranks.max(self.host) / smaller)
    }

    /// Whether the whole plan fits.
    fn holds(&self, shape: &[u32]) -> bool {
        let (unit, ranks) = (self.units[shape.len() - 1], shape[shape.len() - 1]);
        let (unit, ranks) = (unit.max(self.host), ranks.max(self.host));
        let all = self.gpus / unit * self.blocks(shape, unit) + self.blocks(shape, self.gpus % unit);
        all >= self.world / ranks
    }
}

/// Extends `shape` by every filling of the remaining units that leaves room for the whole plan.
fn grow(fit: &Fit, shape: Vec<u32>, all: &mut Vec<Vec<u32>>) {
    let unit = shape.len();
    if unit > 0 && !fit.holds(&shape) {
        return;
    }
    if unit == fit.units.len() {
        all.push(shape);
        return;
    }
    let before = shape.last().map_or(fit.host, |ranks| (*ranks).max(fit.host));
    let most = if fit.free[unit] { fit.units[unit].min(fit.world) } else { before };
    for ranks in (before..=most).step_by(before as usize).filter(|ranks| fit.world.is_multiple_of(*ranks)) {
        let mut shape = shape.clone();
        shape.push(ranks);
        grow(fit, shape, all);
    }
}

/// Fillings that divide no other filling; the larger one is always possible.
fn largest(mut shapes: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    shapes.sort_by_key(|shape| std::cmp::Reverse(shape.iter().map(|ranks| u64::from(*ranks)).sum::<u64>()));
    let mut kept: Vec<Vec<u32>> = Vec::new();
    for shape in shapes {
        if !kept.iter().any(|other| shape.iter().zip(other).all(|(ranks, more)| more.is_multiple_of(*ranks))) {
            kept.push(shape);
        }
    }
    kept
}

/// Every spread of an axis of `ranks` that continues `spread_so_far` and has `of_host` ranks in a host.
fn spread(ranks: u32, of_host: u32, free: &[bool], spread_so_far: Spread, all: &mut Vec<Spread>) {
    let unit = spread_so_far.len();
    if unit == free.len() {
        all.push(spread_so_far);
        return;
    }
    let before = spread_so_far.last().map_or(of_host, |ranks| (*ranks).max(of_host));
    let most = if free[unit] { ranks } else { before };
    for inside in (before..=most).step_by(before as usize).filter(|inside| ranks.is_multiple_of(*inside)) {
        let mut longer = spread_so_far.clone();
        longer.push(inside);
        spread(ranks, of_host, free, longer, all);
    }
}
