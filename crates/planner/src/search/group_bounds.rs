//! Bounds of the groups of recomputations of one pipeline.

use smallvec::SmallVec;

use super::bounded::BoundedPipeline;
use super::groups::Groups;
use super::incumbents::Incumbents;
use super::on_host::Fit;
use super::opened::OpenPipeline;
use super::pipelines::{Pipelines, SplitFloor};
use super::verdict::Verdict;
use meshwright_engine::cost::incremental::{Layers, Pipeline, Price, Stages, least_flow_of_passes};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::units::{Bytes, Seconds};

/// Bounds of the groups of recomputations of a pipeline, all of which lead to one split.
pub(super) struct GroupBounds<'g> {
    groups: &'g Groups,
    pipelines: Pipelines<'g>,
    /// The pipeline with its lightest recomputation.
    light: &'g Pipeline<'g>,
    stages: &'g Stages,
    split: &'g SplitFloor<'g>,
    /// Lower bound of the flow of its plans with whole weights on each replica.
    flow: Seconds,
    /// Lower bound of the time at the ends of a step of its plans under ZeRO 3; none where all are too slow or too large.
    gathered_ends: Option<Seconds>,
    /// The plan of least activations.
    plan: Plan,
    /// Shares of activations on the host that recomputations may have, ascending.
    shares: &'g [f64],
    /// Bound of each group that was asked for.
    known: SmallVec<[Option<GroupBound>; 16]>,
}

/// Bound of a group of recomputations.
#[derive(Clone, Copy)]
pub(super) struct GroupBound {
    pub verdict: Verdict,
    /// Lower bound of the memory of its plans; zero where it was not computed.
    pub needed: Bytes,
    /// Lower bound of the share of activations on the host of its plans that fit.
    pub on_host: f64,
}

impl GroupBound {
    /// Bound of recomputations that are in no group.
    pub const NONE: Self = Self { verdict: Verdict::Open, needed: Bytes::ZERO, on_host: 0.0 };
}

impl<'g> GroupBounds<'g> {
    /// Bounds of no group yet, of a pipeline with one split.
    pub fn new(
        groups: &'g Groups,
        pipelines: Pipelines<'g>,
        open: &'g OpenPipeline<'g>,
        split: &'g SplitFloor<'g>,
    ) -> Self {
        let OpenPipeline { bounded, pipeline: ref light, flow, gathered, .. } = *open;
        let BoundedPipeline { entry, stages, .. } = *bounded;
        let gathered_ends = gathered.map(|gathered| gathered.ends);
        let offload = Offload { activations: entry.most_offloaded, ..light.plan.offload };
        let plan = Plan { recompute: Recompute::None, offload, ..light.plan.clone() };
        let known = SmallVec::from_elem(None, groups.len());
        let all_shares = entry.recomputes.iter().map(|choice| &choice.shares[..]);
        let shares = all_shares.max_by_key(|shares| shares.len()).unwrap_or_default();
        Self { groups, pipelines, light, stages, split, flow, gathered_ends, plan, shares, known }
    }

    /// Bound of the group of a recomputation. `bound_flow` = lower bound of the flow of a pipeline whose stages take these times.
    pub fn bound(
        &mut self,
        index: usize,
        best: &Incumbents,
        bound_flow: impl Fn(Vec<StageTime>) -> Seconds,
    ) -> GroupBound {
        let Some(group) = self.groups.group_of(index) else { return GroupBound::NONE };
        if let Some(known) = self.known[group] {
            return known;
        }
        let bound = self.bound_of_group(group, best, bound_flow);
        self.known[group] = Some(bound);
        bound
    }

    fn bound_of_group(
        &self,
        group: usize,
        best: &Incumbents,
        bound_flow: impl Fn(Vec<StageTime>) -> Seconds,
    ) -> GroupBound {
        let Self { ref pipelines, ref plan, split, .. } = *self;
        let (costs, layers) = (pipelines.costs, self.groups.floor(group));
        let of_passes = least_flow_of_passes(costs, &self.light.plan, layers, self.stages);
        let flow = self.light.least_time(self.flow.max(of_passes));
        let of_layers = || self.light.with_layers(costs, &self.light.plan, layers, self.stages);
        let gathered = self.gathered_ends.map(|ends| of_layers().least_gathered_time(costs) + ends);
        let least = |time: Seconds| gathered.map_or(time, |gathered| gathered.min(time));
        let too_slow = best.too_slow(&plan.layout);
        if too_slow(least(flow + split.ends(pipelines, plan))) {
            return GroupBound { verdict: Verdict::Slow, ..GroupBound::NONE };
        }
        let (memory, hbm_budget) = (split.unshared.with_layers(costs, plan, layers), best.wanted.hbm_budget);
        let needed = memory.lower_bound(&split.plan_menu.least).bytes;
        if needed > hbm_budget {
            return GroupBound { verdict: Verdict::TooLarge, needed, ..GroupBound::NONE };
        }
        let (fit, menu) = (Fit { beside: &memory, hbm_budget }, split.known_menu());
        let fits = || menu.is_none_or(|menu| menu.any_gathered_fits(costs, plan, &fit, &|_| false));
        let gathered = gathered.filter(|_| fits());
        let least = |time: Seconds| gathered.map_or(time, |gathered| gathered.min(time));
        let is_hopeless = |time: Seconds| best.is_hopeless(&plan.layout, Price { time: least(time), memory: needed });
        let on_host = self.least_on_host(layers, hbm_budget);
        let bound = |verdict: Verdict| GroupBound { verdict, needed, on_host };
        let beside_copies = || {
            let offload = Offload { activations: on_host, ..plan.offload };
            let plan = Plan { offload, ..plan.clone() };
            self.light.least_time(least_flow_of_passes(costs, &plan, layers, self.stages))
        };
        let flow = if on_host > 0.0 { flow.max(beside_copies()) } else { flow };
        if is_hopeless(flow + split.ends(pipelines, plan)) {
            return bound(Verdict::Slow);
        }
        if gathered.is_some() && best.objective().is_some() {
            return bound(Verdict::Open);
        }
        let is_slow = |edges: Seconds| too_slow(flow + edges);
        let menu = menu.filter(|_| gathered.is_none());
        let verdict = menu.map_or(Verdict::Open, |menu| menu.verdict(costs, plan, &fit, is_slow));
        if verdict == Verdict::Open && self.light.is_simulated() {
            let bounded = self.light.least_time(bound_flow(self.light.stage_times_of(costs, layers)));
            let slow = is_hopeless(bounded + split.ends(pipelines, plan));
            return bound(if slow { Verdict::Slow } else { Verdict::Open });
        }
        bound(verdict)
    }

    /// Smallest share of activations on the host with which the layers of a group may fit: memory falls with the share.
    fn least_on_host(&self, layers: &Layers, hbm_budget: Bytes) -> f64 {
        let Self { shares: &[_, .., most], ref pipelines, ref plan, split, .. } = *self else { return 0.0 };
        let is_too_large = |&activations: &f64| {
            let plan = Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
            let memory = split.unshared.with_layers(pipelines.costs, &plan, layers);
            memory.lower_bound(&split.plan_menu.least).bytes > hbm_budget
        };
        self.shares.get(self.shares.partition_point(is_too_large)).copied().unwrap_or(most)
    }
}
