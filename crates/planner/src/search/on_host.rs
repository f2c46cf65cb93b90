//! Shares of optimizer states on the host that a sharding may have: those that the framework can express and hosts have room for.

use std::slice;
use std::sync::{Arc, OnceLock};

use crate::space::{Rejection, Space};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::data::RankParameters;
use meshwright_engine::cost::incremental::{Parameters, RankMemory, Sharding, most_optimizer_on_host};
use meshwright_engine::plan::{Offload, Plan};
use meshwright_engine::units::{Bytes, Seconds};

/// Shares of optimizer states on the host that the framework can express of a plan's ZeRO stage and that hosts may have
/// room for, in the order of the space. `parameters` are those of
/// [`meshwright_engine::cost::incremental::least_parameters`].
pub(super) fn shares_on_host(space: &Space, plan: &Plan, parameters: &[RankParameters; 2]) -> Arc<[f64]> {
    let shares = space.expressible_on_host(plan.zero, plan.layout.pp);
    let most = most_optimizer_on_host(space.costs(), plan, &parameters[0]);
    if shares.iter().all(|share| *share <= most) {
        return shares;
    }
    shares.iter().copied().filter(|share| *share <= most).collect()
}

/// Numbers of shardings that the requested framework cannot express, and that hosts have no room for, with the first reason.
#[derive(Debug, Default)]
pub(super) struct Refused {
    by_framework: RefusedShardings,
    by_hosts: RefusedShardings,
}

/// Number of shardings, with the first reason.
#[derive(Debug, Default)]
struct RefusedShardings {
    count: u64,
    why: Option<Rejection>,
}

impl RefusedShardings {
    fn add(&mut self, count: usize, why: impl FnOnce() -> Option<Rejection>) {
        self.count += count as u64;
        if count > 0 && self.why.is_none() {
            self.why = why();
        }
    }
}

impl Refused {
    /// Shares on the host, of `all` shares of a sharding, that are not refused; counts the others.
    pub fn accepted_shares(
        &mut self,
        space: &Space,
        plan: &Plan,
        all: &Arc<[f64]>,
        of_layers: &[RankParameters; 2],
    ) -> Arc<[f64]> {
        let on_host = |&optimizer: &f64| Plan { offload: Offload { optimizer, ..plan.offload }, ..plan.clone() };
        if let Some(why) = space.inexpressible_sharding(plan) {
            self.by_framework.add(all.len(), || Some(why));
            return Arc::default();
        }
        let expressible = space.expressible_on_host(plan.zero, plan.layout.pp);
        let mut plans = all.iter().map(on_host);
        self.by_framework
            .add(all.len() - expressible.len(), || plans.find_map(|plan| space.inexpressible_on_host(&plan)));
        let hosts = shares_on_host(space, plan, of_layers);
        self.by_hosts.add(expressible.len() - hosts.len(), || {
            let share = expressible.iter().copied().find(|share| !hosts.contains(share))?;
            let available = space.costs().problem.cluster().host_memory?;
            let needed = available * (share / most_optimizer_on_host(space.costs(), plan, &of_layers[0]));
            Some(Rejection::HostMemory { needed, available })
        });
        hosts
    }

    /// Number of shardings that each of the two refuses, with the reason, where it refuses any.
    pub fn reasons(&self) -> impl Iterator<Item = (u64, &Rejection)> {
        [&self.by_framework, &self.by_hosts]
            .into_iter()
            .filter_map(|refused| Some((refused.count, refused.why.as_ref()?)))
    }
}

/// Plan whose shardings are priced, with the parameters of its ranks.
#[derive(Clone, Copy)]
pub(super) struct ShardedPlan<'p> {
    pub costs: &'p Costs<'p>,
    pub plan: &'p Plan,
    pub parameters: &'p Parameters,
}

/// Shardings that differ in the share of optimizer states on the host alone.
#[derive(Debug)]
pub(super) struct HostShares {
    /// Lower bound of all of them.
    pub floor: Sharding,
    /// Lower bound of the time at the ends of a step of all of them.
    pub least_edges: Seconds,
    /// Shares of optimizer states on the host.
    shares: Arc<[f64]>,
    /// Each sharding, priced on first use; the floor alone where that is the only one.
    each: OnceLock<Box<[Sharding]>>,
    /// Lower bound of the time at the ends of a step of each sharding, computed on first use.
    edges: OnceLock<Box<[Seconds]>>,
}

impl HostShares {
    pub fn new(of: ShardedPlan, on_device: Sharding, shares: Arc<[f64]>) -> Self {
        let ShardedPlan { costs, plan, parameters } = of;
        let floor = on_device.floor(costs, plan, parameters, &shares);
        Self {
            least_edges: floor.least_time(costs, plan),
            floor,
            shares,
            each: OnceLock::new(),
            edges: OnceLock::new(),
        }
    }

    /// Number of shardings.
    pub fn count(&self) -> u64 {
        self.shares.len() as u64
    }

    /// Each sharding, in the order of the shares.
    pub fn each(&self, of: ShardedPlan) -> &[Sharding] {
        let ShardedPlan { costs, plan, parameters } = of;
        if self.shares[..] == [0.0] {
            return slice::from_ref(&self.floor);
        }
        let with_share = |&share: &f64| self.floor.with_host(costs, &self.floor.applied_to(plan), parameters, share);
        self.each.get_or_init(|| self.shares.iter().map(with_share).collect())
    }

    /// Each sharding, in the order of the shares, with the time by which its step exceeds that with the floor.
    pub fn beyond_floor<'m>(&'m self, of: ShardedPlan) -> impl Iterator<Item = (&'m Sharding, Seconds)> + use<'m> {
        let each = self.each(of);
        each.iter().zip(self.edges(of, each)).map(|(sharding, edges)| (sharding, *edges - self.least_edges))
    }

    /// Lower bound of the time at both ends of a step of each sharding.
    fn edges(&self, of: ShardedPlan, each: &[Sharding]) -> &[Seconds] {
        self.edges.get_or_init(|| each.iter().map(|sharding| sharding.least_time(of.costs, of.plan)).collect())
    }

    /// Whether one of the shardings fits and is not too slow.
    pub fn any_fits(&self, of: ShardedPlan, fit: &Fit, is_slow: impl Fn(Seconds) -> bool) -> bool {
        if !fit.holds(&self.floor) {
            return false;
        }
        let each = self.each(of);
        let mut timed = each.iter().zip(self.edges(of, each));
        timed.any(|(sharding, edges)| !is_slow(*edges) && fit.holds(sharding))
    }

    /// Minimum of `known` and the lower bounds of the time at both ends of a step over the shardings that fit.
    pub fn edges_within(&self, of: ShardedPlan, fit: &Fit, known: Option<Seconds>) -> Option<Seconds> {
        if !fit.holds(&self.floor) {
            return known;
        }
        let each = self.each(of);
        let edges = self.edges(of, each);
        let shorter = |least: Option<Seconds>, (sharding, edges): (&Sharding, &Seconds)| {
            let goes = least.is_some_and(|least| least <= *edges) || !fit.holds(sharding);
            if goes { least } else { Some(*edges) }
        };
        each.iter().zip(edges).fold(known, shorter)
    }
}

/// Memory that shardings must fit into.
pub(super) struct Fit<'f> {
    /// Bytes that the ranks of a pipeline hold beside their states.
    pub beside: &'f RankMemory,
    /// Memory that a plan may need.
    pub hbm_budget: Bytes,
}

impl Fit<'_> {
    /// Whether a sharding fits.
    pub fn holds(&self, sharding: &Sharding) -> bool {
        self.beside.fits(sharding, self.hbm_budget)
    }
}
