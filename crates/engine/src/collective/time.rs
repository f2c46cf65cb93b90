//! Time of a collective over the levels of a cluster.

use super::fabric::Fabric;
use super::group::Group;
use super::observer::TransferKind;
use super::{all_to_all, domain, torus};
use crate::gpu::Collective;
use crate::units::{Bytes, Seconds};

/// Latencies in microseconds. Source: specification §3.3, version 1.1.
mod hop {
    /// A hop of a ring through the network.
    pub const NETWORK: f64 = 14.0;
    /// A hop inside a scale-up domain.
    pub const DOMAIN: f64 = 1.0;
    /// Fixed part of a collective that leaves the domain.
    pub const BASE: f64 = 10.0;
    /// A step of the tree between domains.
    pub const TREE: f64 = 24.0;
    /// Hops inside a domain of a tree, for each of its ranks there.
    pub const TREE_DOMAIN: f64 = 4.0;
}

/// Approach to the asymptotic bandwidth: 1 + 0.25·(S_k/S)^0.7, S_k = 4 MB·k. Source: specification §3.4, version 1.1.
mod saturation {
    /// Size of a message per domain at which the loss is `SHARE`, in bytes.
    pub const SIZE: f64 = 4e6;
    /// Loss at that size, as a share of the asymptotic time.
    pub const SHARE: f64 = 0.25;
    /// Exponent of the loss over the ratio of sizes.
    pub const EXPONENT: f64 = 0.7;
}

/// Times of an all-gather and a reduce-scatter of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatherScatter {
    /// Time of the all-gather.
    pub gather: Seconds,
    /// Time of the reduce-scatter.
    pub scatter: Seconds,
}

impl Fabric<'_> {
    /// Time of one collective of `payload` (the whole tensor) over a group, as `buckets` messages of S_b = S/buckets (S where the
    /// stack does not say `fills_by_message`).
    ///
    /// Inside one scale-up domain: the measured curve of that size (`domain`). Across k domains of g ranks:
    /// ```text
    /// T = buckets·lat·α + φ·S/B·(1 + 0.25·(S_k/S_b)^0.7)      φ = (n−1)/n, all-reduce twice that
    /// B = min(B∞ inside a domain, network)                    S_k = 4 MB·k
    /// λ = (k−1)·14 us + (n−k)·1 us, and the latency of a slow link each time that the ring crosses it
    /// α = 10 us + λ          all-gather, reduce-scatter
    ///   = 10 us + min(2λ, 24 us·log2 k + 4·g·1 us)            all-reduce: ring or tree
    /// ```
    ///
    /// A group in a large domain may run in parts of it: the fastest way counts. Where the switch reduces, each byte moves
    /// once (φ ≤ 1). Source: specification §3.2–3.4 with version 1.1.
    pub fn time(&self, op: Collective, payload: Bytes, group: Group, buckets: f64) -> Seconds {
        if group.ranks <= 1 || payload.get() <= 0.0 {
            return Seconds::ZERO;
        }
        let time = if self.on_torus(group) {
            torus::time(&self.cluster.scale_up, self.mapping, op, payload, group)
        } else {
            self.least_in_parts(op, group, |part, group| part.time_on(op, payload, group, buckets))
        };
        self.observed(TransferKind::Collective(op), payload, group, time)
    }

    /// Times of an all-gather of `gathered` bytes and a reduce-scatter of `scattered` bytes over one group, each as
    /// `buckets` messages. Where each rank of the group is alone in its domain, both take the same time for the same
    /// bytes, for no curve of a domain is read.
    pub fn gather_and_scatter(&self, gathered: Bytes, scattered: Bytes, group: Group, buckets: f64) -> GatherScatter {
        let gather = self.time(Collective::AllGather, gathered, group, buckets);
        let is_spread = group.ranks > 1 && self.inside_domain(group) == 1;
        let scatter = if is_spread && gathered == scattered && gathered > Bytes::ZERO {
            self.observed(TransferKind::Collective(Collective::ReduceScatter), scattered, group, gather)
        } else {
            self.time(Collective::ReduceScatter, scattered, group, buckets)
        };
        GatherScatter { gather, scatter }
    }

    /// Time on this domain as a whole.
    fn time_on(&self, op: Collective, payload: Bytes, group: Group, buckets: f64) -> Seconds {
        let (inside, domains) = (self.inside_domain(group), self.domains(group));
        if domains == 1 {
            return domain::time(self.cluster, op, payload, group.ranks);
        }
        if op == Collective::AllToAll {
            return all_to_all::across(self, payload, group);
        }
        let (n, k, g) = (f64::from(group.ranks), f64::from(domains), f64::from(inside));
        let crossing = self.crossing(group);
        let reduces_once = op == Collective::AllReduce && crossing.sums;
        let passes = if op == Collective::AllReduce && !reduces_once { 2.0 } else { 1.0 };
        let share = passes * (n - 1.0) / n;
        let network = crossing.bandwidth;
        let bandwidth = if inside > 1 { domain::asymptote(self.cluster, op, inside).min(network) } else { network };
        let ring = (k - 1.0) * hop::NETWORK + (n - k) * hop::DOMAIN;
        let hops = match op {
            Collective::AllReduce => (2.0 * ring).min(hop::TREE * libm::log2(k) + hop::TREE_DOMAIN * g * hop::DOMAIN),
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => ring,
        };
        let latency = Seconds::micros((hop::BASE + hops) * buckets * self.hop_latency());
        let laps = if op == Collective::AllReduce { 2.0 } else { 1.0 };
        let latency = latency + crossing.ring * laps * buckets;
        let half_size = Bytes::new(saturation::SIZE * k);
        let message = if self.fills_by_message { payload / buckets } else { payload };
        let excess = saturation::SHARE * libm::pow(half_size / message, saturation::EXPONENT);
        latency + payload / bandwidth * (share * (1.0 + excess))
    }
}
