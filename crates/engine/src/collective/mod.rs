//! Time of collectives on the bandwidth hierarchy.

mod all_to_all;
mod domain;
mod seats;
mod torus;

use crate::cluster::{Cluster, Level};
use crate::gpu::{Collective, Topology};
use crate::stack::Stack;
use crate::units::{Bytes, BytesPerSec, Seconds};

pub use all_to_all::Dispatch;
pub use domain::on_curve;
pub use seats::{Axis, Seats, units};

/// Process group of `ranks` ranks that are `stride` apart in the rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Number of ranks.
    pub ranks: u32,
    /// Distance between neighbours in the rank order.
    pub stride: u32,
}

impl Group {
    /// Ranks of this group inside one unit of `gpus` consecutive ranks.
    pub const fn inside(&self, gpus: u32) -> u32 {
        let fit = gpus / if self.stride == 0 { 1 } else { self.stride };
        if fit < 1 {
            1
        } else if fit > self.ranks {
            self.ranks
        } else {
            fit
        }
    }
}

/// Latency of a ring hop through the network, and inside a scale-up domain. Source: specification §3.3, version 1.1.
mod hop {
    pub const NETWORK: f64 = 14.0;
    pub const DOMAIN: f64 = 1.0;
    /// Fixed part of a collective that leaves the domain.
    pub const BASE: f64 = 10.0;
    /// A step of the tree between domains.
    pub const TREE: f64 = 24.0;
}

/// Start of a point-to-point send and the share of the wire that it reaches. Source: specification §3.8.
mod send {
    pub const DOMAIN_START: f64 = 8.0;
    pub const NETWORK_START: f64 = 15.0;
    pub const DOMAIN_SHARE: f64 = 0.75;
}

/// Links of a cluster as one stack uses them.
#[derive(Clone, Copy, Debug)]
pub struct Fabric<'a> {
    /// Cluster with its network levels.
    pub cluster: &'a Cluster,
    /// Factor on the network's efficiency (a quirk of some stacks).
    pub network_efficiency: f64,
    /// Seats of the ranks; `None` if hosts are listed in rank order.
    pub seats: Option<&'a Seats>,
}

impl<'a> Fabric<'a> {
    /// Creates the fabric of a cluster under a stack.
    pub fn new(cluster: &'a Cluster, stack: &Stack) -> Self {
        Self { cluster, network_efficiency: stack.quirks.network_efficiency, seats: None }
    }

    /// GPUs of one scale-up domain.
    pub const fn domain(&self) -> u32 {
        self.cluster.scale_up.gpus
    }

    /// Ranks of a group in one scale-up domain (`above` = 0), or in one unit of the level `above` levels higher.
    fn inside(&self, group: Group, above: usize) -> u32 {
        match self.seats {
            Some(seats) => seats.inside(group, above),
            None if above == 0 => group.inside(self.domain()),
            None => group.inside(self.cluster.levels[above - 1].gpus),
        }
    }

    /// Ranks of a group in one scale-up domain.
    pub fn inside_domain(&self, group: Group) -> u32 {
        self.inside(group, 0)
    }

    /// Whether a group lies on one torus.
    fn on_torus(&self, group: Group) -> bool {
        let inside = match self.seats {
            Some(seats) => seats.inside(group, 0) == group.ranks,
            None => group.ranks * group.stride <= self.domain(),
        };
        self.cluster.scale_up.topology == Topology::Torus && inside
    }

    /// Ranks of a group in one scale-up domain, and number of domains that it spans.
    pub fn span(&self, group: Group) -> (u32, u32) {
        let inside = self.inside_domain(group);
        (inside, group.ranks.div_ceil(inside))
    }

    /// Levels that a group crosses, innermost first, each with the ranks of the group inside one unit below it.
    fn crossed(&self, group: Group) -> impl Iterator<Item = (&'a Level, u32)> {
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
        let shares = self.crossed(group).map(|(level, inside)| self.rate_into(level, f64::from(inside)));
        self.least_of(shares)
    }

    /// Bandwidth of `ranks` ranks of one unit into a level, together.
    fn rate_into(&self, level: &Level, ranks: f64) -> BytesPerSec {
        let share = level.efficiency * self.network_efficiency / level.oversubscription;
        level.bandwidth.value * (share * ranks)
    }

    /// Least of several bandwidths; the bandwidth of the device's own NIC if there are none.
    fn least_of(&self, bandwidths: impl Iterator<Item = BytesPerSec>) -> BytesPerSec {
        let least = bandwidths.fold(BytesPerSec::new(f64::INFINITY), BytesPerSec::min);
        if least.get().is_finite() { least } else { self.cluster.gpu.nic.value * 0.85 }
    }

    /// Bandwidth of one GPU into the outermost level that a stride of `distance` ranks crosses.
    pub fn network_bandwidth(&self, distance: u32) -> BytesPerSec {
        self.bus_bandwidth(Group { ranks: 2, stride: distance.max(self.domain()) })
    }

    /// Latency scale of ring hops in the innermost network: 0.5 for InfiniBand and tuned RoCE, 1 for EFA and similar.
    fn hop_latency(&self) -> f64 {
        self.cluster.levels.first().map_or(1.0, |level| level.hop_latency)
    }

    /// Whether every switch that a group crosses reduces in the network.
    fn sums_in_network(&self, group: Group) -> bool {
        let mut crossed = self.crossed(group).peekable();
        crossed.peek().is_some() && crossed.all(|(level, _)| level.in_network_reduction)
    }

    /// Sum of the one-way latencies of the levels that a group crosses, such as links between sites, each `units(level)`
    /// times.
    fn way(&self, group: Group, units: impl Fn(u32) -> f64) -> Seconds {
        self.crossed(group).map(|(level, inside)| level.latency * units(group.ranks.div_ceil(inside))).sum()
    }

    /// Latency that slow links add to a ring over a group: each is crossed as often as by the ring.
    fn ring_way(&self, op: Collective, group: Group) -> Seconds {
        let passes = if op == Collective::AllReduce { 2.0 } else { 1.0 };
        self.way(group, |units| f64::from(units) * passes)
    }

    /// Time of one collective of `payload` (the whole tensor) over a group, as `buckets` messages.
    ///
    /// Inside one scale-up domain: the measured curve of that size (`domain`). Across k domains of g ranks:
    /// ```text
    /// T = buckets·lat·α + φ·S/B·(1 + 0.25·(S_k/S)^0.7)        φ = (n−1)/n, all-reduce twice that
    /// B = min(B∞ inside a domain, network)                    S_k = 4 MB·k
    /// λ = (k−1)·14 us + (n−k)·1 us, and one way across a slow link each time that the ring crosses it
    /// α = 10 us + λ          all-gather, reduce-scatter
    ///   = 10 us + min(2λ, 24 us·log2 k + 4·g·1 us)            all-reduce: ring or tree
    /// ```
    ///
    /// Source: specification §3.2–3.4 with version 1.1. A switch that sums moves each byte once (φ ≤ 1).
    pub fn time(&self, op: Collective, payload: Bytes, group: Group, buckets: f64) -> Seconds {
        if group.ranks <= 1 || payload.get() <= 0.0 {
            return Seconds::ZERO;
        }
        if self.on_torus(group) {
            return torus::time(&self.cluster.scale_up, self.seats, op, payload, group);
        }
        let (inside, domains) = self.span(group);
        if domains == 1 {
            return domain::time(self.cluster, op, payload, group.ranks);
        }
        if op == Collective::AllToAll {
            return all_to_all::across(self, payload, group);
        }
        let (n, k, g) = (f64::from(group.ranks), f64::from(domains), f64::from(inside));
        let reduces_once = op == Collective::AllReduce && self.sums_in_network(group);
        let passes = if op == Collective::AllReduce && !reduces_once { 2.0 } else { 1.0 };
        let share = passes * (n - 1.0) / n;
        let network = self.bus_bandwidth(group);
        let bandwidth = if inside > 1 { domain::asymptote(self.cluster, op, inside).min(network) } else { network };
        let ring = (k - 1.0) * hop::NETWORK + (n - k) * hop::DOMAIN;
        let hops = match op {
            Collective::AllReduce => (2.0 * ring).min(hop::TREE * k.log2() + 4.0 * g * hop::DOMAIN),
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => ring,
        };
        let latency = Seconds::micros((hop::BASE + hops) * buckets * self.hop_latency());
        let latency = latency + self.ring_way(op, group) * buckets;
        let half_size = Bytes::new(4e6 * k);
        let saturation = 1.0 + 0.25 * (half_size / payload).powf(0.7);
        latency + payload / bandwidth * (share * saturation)
    }

    /// One way from a rank to the one `distance` ranks on.
    ///
    /// ```text
    /// inside a domain  8 us + S/(0.75·uni)          across  15 us + S/(bw·η)          specification §3.8
    /// ```
    pub fn send(&self, payload: Bytes, distance: u32) -> Seconds {
        match self.seats {
            Some(seats) => self.seated_send(payload, |above| seats.apart(distance, above)),
            None if distance < self.domain() => self.send_inside(payload),
            None => self.send_across(payload, self.crossed(Group { ranks: 2, stride: distance }).count()),
        }
    }

    /// Time of a send from a rank of a ring to the next: of neighbours in the rank order, or with seats, of the slowest
    /// neighbours, for which all wait.
    pub fn ring_send(&self, payload: Bytes, ring: Group) -> Seconds {
        match self.seats {
            Some(_) => {
                let apart = |above| if self.inside(ring, above) < ring.ranks { 1.0 } else { 0.0 };
                self.seated_send(payload, apart)
            }
            None => self.send(payload, ring.stride),
        }
    }

    /// Mean time of a send over neighbours, of which a share `apart(i)` is in different units i levels above the domain:
    /// the time of a micro-batch through a pipeline is the sum over its hops.
    fn seated_send(&self, payload: Bytes, apart: impl Fn(usize) -> f64) -> Seconds {
        let levels = self.cluster.levels.len();
        let beyond = |crossed: usize| if crossed < levels { apart(crossed) } else { 0.0 };
        let across = |crossed: usize| match beyond(crossed - 1) - beyond(crossed) {
            share if share > 0.0 => self.send_across(payload, crossed) * share,
            _ => Seconds::ZERO,
        };
        let near = 1.0 - beyond(0);
        let near = if near > 0.0 { self.send_inside(payload) * near } else { Seconds::ZERO };
        near + (1..=levels).map(across).sum()
    }

    fn send_inside(&self, payload: Bytes) -> Seconds {
        let link = match self.cluster.scale_up.topology {
            Topology::Switch | Topology::Pcie => self.cluster.scale_up.bandwidth,
            Topology::Mesh | Topology::Torus => self.cluster.scale_up.pair_bandwidth,
        };
        Seconds::micros(send::DOMAIN_START) + payload / (link * send::DOMAIN_SHARE)
    }

    /// Time of a send across the innermost `crossed` levels.
    fn send_across(&self, payload: Bytes, crossed: usize) -> Seconds {
        let levels = &self.cluster.levels[..crossed];
        let network = self.least_of(levels.iter().map(|level| self.rate_into(level, 1.0)));
        Seconds::micros(send::NETWORK_START) + payload / network + levels.iter().map(|level| level.latency).sum()
    }
}
