//! Links of a cluster: the levels that a group crosses, and their bandwidth and latency.

use super::group::Group;
use super::observer::{Observer, PricedTransfer, TransferKind};
use super::rank_mapping::RankMapping;
use crate::cluster::{Cluster, Level};
use crate::gpu::{Collective, Topology};
use crate::stack::Stack;
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Share of the wire rate that collectives reach on a network that states none. Source: specification §3.4.
const WIRE_SHARE: f64 = 0.85;

/// Links of a cluster as one stack uses them.
#[derive(Clone, Copy, Debug)]
pub struct Fabric<'a> {
    /// Cluster with its network levels.
    pub cluster: &'a Cluster,
    /// Factor on the network's efficiency (a quirk of some stacks).
    pub network_efficiency: f64,
    /// Whether each message fills the network by itself, and not the tensor that it is a part of.
    pub(super) fills_by_message: bool,
    /// Mapping of the ranks to units; `None` if hosts are listed in rank order.
    pub mapping: Option<&'a RankMapping>,
    /// GPUs that collectives treat as one scale-up domain: all of the cluster's, or fewer.
    pub(super) domain: u32,
    /// Observer of every transfer that is priced.
    pub(crate) observer: Option<&'a dyn Observer>,
}

/// Network between the parts of a group that lie in different domains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    /// Bandwidth that one rank sees into the network.
    pub bandwidth: BytesPerSec,
    /// Latency that slow levels add to a ring: one crossing for each of their units.
    pub ring: Seconds,
    /// Whether every switch that the group crosses reduces in the network.
    pub sums: bool,
}

impl<'a> Fabric<'a> {
    /// Creates the fabric of a cluster under a stack.
    pub fn new(cluster: &'a Cluster, stack: &Stack) -> Self {
        let network_efficiency = stack.quirks.network_efficiency;
        let fills_by_message = stack.fills_by_message;
        Self {
            cluster,
            network_efficiency,
            fills_by_message,
            mapping: None,
            domain: cluster.scale_up.gpus,
            observer: None,
        }
    }

    /// Time of a transfer, after the observer has heard of it.
    pub(super) fn observed(&self, kind: TransferKind, payload: Bytes, group: Group, time: Seconds) -> Seconds {
        if self.observer.is_some() {
            self.notify(PricedTransfer { kind, payload, group, time });
        }
        time
    }

    /// Out of line: searches have no observer.
    #[cold]
    #[inline(never)]
    fn notify(&self, transfer: PricedTransfer) {
        if let Some(observer) = self.observer {
            observer.transfer(&transfer);
        }
    }

    /// GPUs of one scale-up domain.
    pub const fn domain(&self) -> u32 {
        self.domain
    }

    /// Least time of a group over fabrics whose domains are parts of this one's: itself, its halves and every power of two above
    /// the largest measured group. A group may exchange within parts and then between them as if those were joined by the
    /// network alone, so no group takes longer on a larger domain.
    pub(super) fn least_in_parts(
        &self,
        op: Collective,
        group: Group,
        time: impl Fn(&Self, Group) -> Seconds,
    ) -> Seconds {
        let whole = self.mapping.is_some()
            && self.inside_domain(group) == group.ranks
            && self.cluster.scale_up.topology == Topology::Switch;
        // Inside a domain it does not matter how ranks are mapped.
        let group = if whole { Group { ranks: group.ranks, stride: 1 } } else { group };
        let fabric = Self { mapping: if whole { None } else { self.mapping }, ..*self };
        let on_whole = time(&fabric, group);
        let measured = self.cluster.gpu.collectives[&op].last().map_or(1, |curve| curve.ranks);
        let is_small = group.ranks * group.stride <= measured;
        let splits = !is_small && fabric.mapping.is_none() && self.cluster.scale_up.topology == Topology::Switch;
        if !splits || measured >= self.domain {
            return on_whole;
        }
        let halves = std::iter::successors(Some(self.domain / 2), |size| Some(size / 2));
        let powers = std::iter::successors(Some(measured.next_power_of_two()), |size| Some(size * 2));
        let sizes = halves.take_while(|size| *size >= measured).chain(powers.take_while(|size| *size < self.domain));
        sizes.map(|domain| time(&Self { domain, ..fabric }, group)).fold(on_whole, Seconds::min)
    }

    /// Ranks of a group in one scale-up domain (`above` = 0), or in one unit of the level `above` levels higher.
    pub(super) fn inside(&self, group: Group, above: usize) -> u32 {
        match self.mapping {
            Some(mapping) => mapping.inside(group, above),
            None if above == 0 => group.inside(self.domain()),
            None => group.inside(self.cluster.levels[above - 1].gpus),
        }
    }

    /// Ranks of a group in one scale-up domain.
    pub fn inside_domain(&self, group: Group) -> u32 {
        self.inside(group, 0)
    }

    /// Whether a group lies on one torus.
    pub(super) fn on_torus(&self, group: Group) -> bool {
        let inside = match self.mapping {
            Some(mapping) => mapping.inside(group, 0) == group.ranks,
            None => group.ranks * group.stride <= self.domain(),
        };
        self.cluster.scale_up.topology == Topology::Torus && inside
    }

    /// Number of scale-up domains that a group spans.
    pub fn domains(&self, group: Group) -> u32 {
        group.ranks.div_ceil(self.inside_domain(group))
    }

    /// Levels that a group crosses, innermost first, each with the ranks of the group inside one unit below it.
    pub fn crossed(&self, group: Group) -> impl Iterator<Item = (&'a Level, u32)> {
        let levels = self.cluster.levels.iter().enumerate();
        levels.map_while(move |(below, level)| {
            let inside = self.inside(group, below);
            (inside != group.ranks).then_some((level, inside))
        })
    }

    /// Bandwidth that one rank of a group sees into the network: the least over the levels that the group crosses, where a
    /// level's share grows with the ranks that sit below it.
    ///
    /// ```text
    /// B = min over crossed levels i of  g_{i−1} · bw_i · η_i / oversubscription_i
    /// ```
    ///
    /// g_{i−1} = ranks of the group inside one unit of the level below: each brings its own rail (§3.4).
    pub fn bus_bandwidth(&self, group: Group) -> BytesPerSec {
        self.crossing(group).bandwidth
    }

    /// Levels that a group crosses, taken together.
    pub(super) fn crossing(&self, group: Group) -> Crossing {
        let (mut least, mut ring, mut sums) = (BytesPerSec::new(f64::INFINITY), Seconds::ZERO, None);
        for (level, inside) in self.crossed(group) {
            least = least.min(self.rate_into(level, f64::from(inside)));
            ring += level.latency * f64::from(group.ranks.div_ceil(inside));
            sums = Some(sums.unwrap_or(true) && level.in_network_reduction);
        }
        Crossing { bandwidth: self.least_of(std::iter::once(least)), ring, sums: sums.unwrap_or(false) }
    }

    /// Bandwidth of `ranks` ranks of one unit into a level, together.
    pub(super) fn rate_into(&self, level: &Level, ranks: f64) -> BytesPerSec {
        let share = level.efficiency * self.network_efficiency / level.oversubscription;
        level.bandwidth.value * (share * ranks)
    }

    /// Least of several bandwidths; the bandwidth of the device's own NIC if there are none.
    pub(super) fn least_of(&self, bandwidths: impl Iterator<Item = BytesPerSec>) -> BytesPerSec {
        let least = bandwidths.fold(BytesPerSec::new(f64::INFINITY), BytesPerSec::min);
        if least.get().is_finite() { least } else { self.cluster.gpu.nic.value * WIRE_SHARE }
    }

    /// Bandwidth of one GPU into the outermost level that a stride of `distance` ranks crosses.
    pub fn network_bandwidth(&self, distance: u32) -> BytesPerSec {
        self.bus_bandwidth(Group { ranks: 2, stride: distance.max(self.domain()) })
    }

    /// Latency scale of ring hops in the innermost network: 0.5 for InfiniBand and tuned RoCE, 1 for EFA and similar.
    pub(super) fn hop_latency(&self) -> f64 {
        self.cluster.levels.first().map_or(1.0, |level| level.hop_latency)
    }

    /// Sum of the one-way latencies of the levels that a group crosses, such as links between sites.
    pub(super) fn level_latency(&self, group: Group) -> Seconds {
        self.crossed(group).map(|(level, _)| level.latency).sum()
    }
}
