//! Bounds of the groups of recomputations of one pipeline.

use smallvec::SmallVec;

use super::bounded::BoundedPipeline;
use super::groups::Groups;
use super::incumbents::Incumbents;
use super::on_host::Fit;
use super::opened::OpenPipeline;
use super::pipelines::{Pipelines, SplitFloor};
use super::verdict::Verdict;
use meshwright_engine::cost::incremental::{Pipeline, Price, Stages, least_flow_of_passes};
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
    /// The plan but for its recomputation, without activations on the host.
    plan: Plan,
    /// Shares of activations on the host that recomputations may have, ascending.
    shares: &'g [f64],
    /// Verdict on each group that was asked for, and lower bound of its memory.
    known: SmallVec<[Option<(Verdict, Bytes)>; 16]>,
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
        let plan = Plan { recompute: Recompute::None, ..light.plan.clone() };
        let all_shares = entry.recomputes.iter().map(|choice| &choice.shares[..]);
        let shares = all_shares.max_by_key(|shares| shares.len()).unwrap_or_default();
        let known = SmallVec::from_elem(None, groups.len());
        Self { groups, pipelines, light, stages, split, flow, gathered_ends, plan, shares, known }
    }

    /// Verdict on the group of a recomputation, open where it has none. `bound_flow` = lower bound of the flow of a
    /// pipeline whose stages take these times.
    pub fn verdict(
        &mut self,
        index: usize,
        best: &Incumbents,
        bound_flow: impl Fn(Vec<StageTime>) -> Seconds,
    ) -> Verdict {
        let Some(group) = self.groups.group_of(index) else { return Verdict::Open };
        if let Some((known, _)) = self.known[group] {
            return known;
        }
        let verdict = self.verdict_on_group(group, best, bound_flow);
        self.known[group] = Some(verdict);
        verdict.0
    }

    /// Lower bound of the memory of the plans of a recomputation, by the verdict on its group; zero where it has none.
    pub fn needed(&self, index: usize) -> Bytes {
        self.groups.group_of(index).and_then(|group| self.known[group]).map_or(Bytes::ZERO, |(_, needed)| needed)
    }

    /// Verdict on a group, and lower bound of its memory, which is zero where it was not computed.
    fn verdict_on_group(
        &self,
        group: usize,
        best: &Incumbents,
        bound_flow: impl Fn(Vec<StageTime>) -> Seconds,
    ) -> (Verdict, Bytes) {
        let Self { ref pipelines, ref plan, split, .. } = *self;
        let (costs, layers) = (pipelines.costs, self.groups.floor(group));
        let flow_of =
            |plan: &Plan| self.light.least_time(self.flow.max(least_flow_of_passes(costs, plan, layers, self.stages)));
        let flow = flow_of(plan);
        let of_layers = || self.light.with_layers(costs, &self.light.plan, layers, self.stages);
        let gathered = self.gathered_ends.map(|ends| of_layers().least_gathered_time(costs) + ends);
        let least = |time: Seconds| gathered.map_or(time, |gathered| gathered.min(time));
        let too_slow = best.too_slow(&plan.layout);
        if too_slow(least(flow + split.ends(pipelines, plan))) {
            return (Verdict::Slow, Bytes::ZERO);
        }
        // The more activations are on the host, the less memory is needed, and the longer the copies take.
        let offloading = |activations: f64| Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
        let is_slow = |&share: &f64| too_slow(flow_of(&offloading(share)) + split.ends(pipelines, plan));
        let is_open = |share: &&f64| **share <= 0.0 || gathered.is_some() || !is_slow(share);
        let open = self.shares.iter().take_while(is_open).count();
        let Some(&most) = self.shares[..open].last() else { return (Verdict::Slow, Bytes::ZERO) };
        let plan = &offloading(most);
        let (memory, hbm_budget) = (split.unshared.with_layers(costs, plan, layers), best.wanted.hbm_budget);
        let needed = memory.lower_bound(&split.plan_menu.least).bytes;
        if needed > hbm_budget {
            return (if open < self.shares.len() { Verdict::Slow } else { Verdict::TooLarge }, needed);
        }
        let (fit, menu) = (Fit { beside: &memory, hbm_budget }, split.known_menu());
        let fits = || menu.is_none_or(|menu| menu.any_gathered_fits(costs, plan, &fit, &|_| false));
        let gathered = gathered.filter(|_| fits());
        let least = |time: Seconds| gathered.map_or(time, |gathered| gathered.min(time));
        let is_hopeless = |time: Seconds| best.is_hopeless(&plan.layout, Price { time: least(time), memory: needed });
        if is_hopeless(flow + split.ends(pipelines, plan)) {
            return (Verdict::Slow, needed);
        }
        if gathered.is_some() && best.objective().is_some() {
            return (Verdict::Open, needed);
        }
        let is_slow = |edges: Seconds| too_slow(flow + edges);
        let menu = menu.filter(|_| gathered.is_none());
        let verdict = menu.map_or(Verdict::Open, |menu| menu.verdict(costs, plan, &fit, is_slow));
        if verdict == Verdict::Open && self.light.is_simulated() {
            let bounded = self.light.least_time(bound_flow(self.light.stage_times_of(costs, layers)));
            let slow = is_hopeless(bounded + split.ends(pipelines, plan));
            return (if slow { Verdict::Slow } else { Verdict::Open }, needed);
        }
        (verdict, needed)
    }
}
