//! All-to-all collectives, between experts and between context-parallel ranks.

use super::domain;
use super::fabric::Fabric;
use super::group::Group;
use super::observer::TransferKind;
use crate::gpu::Collective;
use crate::stack::Dispatcher;
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Start-up times in microseconds. Source: specification §3.5.
mod start {
    /// Expert dispatch inside one scale-up domain.
    pub const DOMAIN: f64 = 15.0;
    /// Expert dispatch across domains.
    pub const NETWORK: f64 = 25.0;
    /// Plain all-to-all across domains.
    pub const PLAIN: f64 = 20.0;
    /// Addition to `PLAIN` for each domain.
    pub const PLAIN_PER_DOMAIN: f64 = 5.0;
}

/// Share of the scale-up bandwidth that kernels with one copy per rank reach. Source: specification §3.5.
const DEDUP_BANDWIDTH: f64 = 0.80;

/// Time of a plain all-to-all of `payload` bytes per rank across domains; its two parts run concurrently.
///
/// ```text
/// T = max(S·(k−1)/k / network, S·(g−1)/g / B) + 20 us + 5 us·k          specification §3.5
/// ```
pub fn across(fabric: &Fabric, payload: Bytes, group: Group) -> Seconds {
    let inside = fabric.inside_domain(group);
    let (g, k) = (f64::from(inside), f64::from(fabric.domains(group)));
    let network = payload * ((k - 1.0) / k) / rank_bandwidth(fabric, group);
    let local = if inside > 1 {
        payload * ((g - 1.0) / g) / domain::asymptote(fabric.cluster, Collective::AllToAll, inside)
    } else {
        Seconds::ZERO
    };
    network.max(local) + Seconds::micros(start::PLAIN + start::PLAIN_PER_DOMAIN * k) + fabric.level_latency(group)
}

/// Bandwidth of one rank into the network for traffic to every other rank: each crossed level carries its part of the
/// traffic.
fn rank_bandwidth(fabric: &Fabric, group: Group) -> BytesPerSec {
    let n = f64::from(group.ranks);
    let away = 1.0 - f64::from(fabric.inside_domain(group)) / n;
    fabric.least_of(fabric.crossed(group).map(|(level, inside)| {
        let crossing = (1.0 - f64::from(inside) / n) / away;
        let rate = level.bandwidth.value.get() * level.efficiency * fabric.network_efficiency / level.oversubscription;
        BytesPerSec::new(rate / crossing)
    }))
}

/// Tokens that one rank sends to the experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    /// Number of tokens of the rank.
    pub tokens: f64,
    /// Bytes of one token.
    pub token_bytes: Bytes,
    /// Experts per token (top-k).
    pub top_k: f64,
    /// Largest number of domains per token (group-limited routing); infinite without a limit.
    pub most_domains: f64,
    /// Token dispatcher of the stack.
    pub dispatcher: Dispatcher,
}

impl Fabric<'_> {
    /// Time of dispatch or combine over an expert-parallel group of R ranks in k domains of g.
    ///
    /// ```text
    /// copies  = top_k                        domains = top_k                               all-to-all
    ///         = R·(1 − (1−1/R)^top_k)                = min(limit, k·(1 − (1−1/k)^top_k))   one copy per rank, per domain
    /// V_net   = tokens·domains·(k−1)/k·bytes          V_local = tokens·copies·(R−1)/R·bytes
    /// T       = 25 us + max(V_net/network, V_local·(g−1)/g/B)
    /// inside one domain: 15 us + V_local/B·(1 + (S½/V)^β for all-to-all)
    /// ```
    ///
    /// Source: specification §3.5.
    pub fn dispatch(&self, sent: &Dispatch, group: Group) -> Seconds {
        if group.ranks <= 1 || sent.tokens <= 0.0 {
            return Seconds::ZERO;
        }
        let time = self.least_in_parts(Collective::AllToAll, group, |part, group| part.dispatch_on(sent, group));
        self.observed(TransferKind::Dispatch, sent.token_bytes * sent.tokens, group, time)
    }

    /// Time of dispatch or combine on this domain as a whole.
    fn dispatch_on(&self, sent: &Dispatch, group: Group) -> Seconds {
        let mut inside = self.inside_domain(group);
        while !group.ranks.is_multiple_of(inside) {
            inside -= 1;
        }
        let domains = group.ranks / inside;
        let (r, k, g) = (f64::from(group.ranks), f64::from(domains), f64::from(inside));
        let curve = domain::curve(self.cluster, Collective::AllToAll, inside.clamp(1, 8));
        let visits = |places: f64| places * (1.0 - libm::pow(1.0 - 1.0 / places, sent.top_k));
        let (copies, crossed, bandwidth) = match sent.dispatcher {
            Dispatcher::AllToAll => (sent.top_k, sent.top_k, curve.bandwidth),
            Dispatcher::DeepEp => {
                (visits(r), visits(k).min(sent.most_domains), self.cluster.scale_up.bandwidth * DEDUP_BANDWIDTH)
            }
        };
        let local = sent.token_bytes * (sent.tokens * copies * (r - 1.0) / r);
        if self.on_torus(group) {
            return super::torus::time(&self.cluster.scale_up, self.mapping, Collective::AllToAll, local, group);
        }
        if domains == 1 {
            let saturation = match sent.dispatcher {
                Dispatcher::AllToAll => 1.0 + libm::pow(curve.half_size / local.max(Bytes::new(1.0)), curve.exponent),
                Dispatcher::DeepEp => 1.0,
            };
            return Seconds::micros(start::DOMAIN) + local / bandwidth * saturation;
        }
        let network = sent.token_bytes * (sent.tokens * crossed * (k - 1.0) / k) / rank_bandwidth(self, group);
        let forwarded = local * ((g - 1.0) / g) / bandwidth;
        Seconds::micros(start::NETWORK) + network.max(forwarded) + self.level_latency(group)
    }
}
