//! Time of point-to-point sends.

use super::fabric::Fabric;
use super::group::Group;
use super::observer::TransferKind;
use crate::gpu::Topology;
use crate::units::{Bytes, Seconds};

/// Start of a point-to-point send inside a scale-up domain, in microseconds. Source: specification §3.8.
const DOMAIN_START: f64 = 8.0;
/// Start of a point-to-point send across the network, in microseconds. Source: specification §3.8.
const NETWORK_START: f64 = 15.0;
/// Share of the link's bandwidth that a send reaches inside a domain. Source: specification §3.8.
const DOMAIN_SHARE: f64 = 0.75;

impl Fabric<'_> {
    /// Time of a send from a rank to the one `distance` ranks on.
    ///
    /// ```text
    /// inside a domain  8 us + S/(0.75·uni)          across  15 us + S/(bw·η)          specification §3.8
    /// ```
    pub fn send(&self, payload: Bytes, distance: u32) -> Seconds {
        match self.mapping {
            Some(mapping) => self.mapped_send(payload, |above| mapping.crossing_share(distance, above)),
            None if distance < self.domain() => self.send_inside(payload),
            None => self.send_across(payload, self.crossed(Group { ranks: 2, stride: distance }).count()),
        }
    }

    /// Mean time of the sends along a pipeline of `stages` that are `distance` ranks apart, and of the one back from the last to
    /// the first where the pipeline `loops`: a micro-batch takes each of them.
    pub fn pipeline_send(&self, payload: Bytes, distance: u32, stages: u32, loops: bool) -> Seconds {
        let time = self.mean_send(payload, distance, stages, loops);
        self.observed(TransferKind::Send, payload, Group { ranks: 2, stride: distance }, time)
    }

    fn mean_send(&self, payload: Bytes, distance: u32, stages: u32, loops: bool) -> Seconds {
        if self.mapping.is_some() {
            return self.send(payload, distance);
        }
        let last = (stages - 1) * distance;
        let apart = |above: usize| {
            let unit = if above == 0 { self.domain() } else { self.cluster.levels[above - 1].gpus };
            let crossing = if distance >= unit { stages - 1 } else { last / unit } + u32::from(loops && last >= unit);
            f64::from(crossing) / f64::from(stages - 1 + u32::from(loops))
        };
        self.mapped_send(payload, apart)
    }

    /// Time of a send from a rank of a ring to the next: of neighbours in the rank order, or with a mapping, of the slowest
    /// neighbours, for which all wait.
    pub fn ring_send(&self, payload: Bytes, ring: Group) -> Seconds {
        let time = match self.mapping {
            Some(_) => {
                let apart = |above| if self.inside(ring, above) < ring.ranks { 1.0 } else { 0.0 };
                self.mapped_send(payload, apart)
            }
            None => self.send(payload, ring.stride),
        };
        self.observed(TransferKind::Send, payload, ring, time)
    }

    /// Mean time of a send over neighbours, of which a share `apart(i)` is in different units i levels above the domain:
    /// the time of a micro-batch through a pipeline is the sum over its hops.
    fn mapped_send(&self, payload: Bytes, apart: impl Fn(usize) -> f64) -> Seconds {
        let levels = self.cluster.levels.len();
        let beyond = |crossed: usize| if crossed < levels { apart(crossed) } else { 0.0 };
        let mut left = beyond(0);
        let near = 1.0 - left;
        let across = |crossed: usize| {
            let before = std::mem::replace(&mut left, beyond(crossed));
            match before - left {
                share if share > 0.0 => self.send_across(payload, crossed) * share,
                _ => Seconds::ZERO,
            }
        };
        let near = if near > 0.0 { self.send_inside(payload) * near } else { Seconds::ZERO };
        near + (1..=levels).map(across).sum()
    }

    fn send_inside(&self, payload: Bytes) -> Seconds {
        let link = match self.cluster.scale_up.topology {
            Topology::Switch | Topology::Pcie => self.cluster.scale_up.bandwidth,
            Topology::Mesh | Topology::Torus => self.cluster.scale_up.pair_bandwidth,
        };
        Seconds::micros(DOMAIN_START) + payload / (link * DOMAIN_SHARE)
    }

    /// Time of a send across the innermost `crossed` levels.
    fn send_across(&self, payload: Bytes, crossed: usize) -> Seconds {
        let levels = &self.cluster.levels[..crossed];
        let network = self.least_of(levels.iter().map(|level| self.rate_into(level, 1.0)));
        Seconds::micros(NETWORK_START) + payload / network + levels.iter().map(|level| level.latency).sum()
    }
}
