//! Bounds of the groups of recomputations of one pipeline.

use smallvec::SmallVec;

use super::groups::Groups;
use super::incumbents::Incumbents;
use super::menus::Fit;
use super::pipelines::SplitFloor;
use super::tables::Tables;
use super::verdict::Verdict;
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Pipeline, Price, Stages, least_flow_of_passes};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::units::{Bytes, Seconds};

/// Bounds of the groups of recomputations of a pipeline, all of which lead to one split.
pub(super) struct GroupBounds<'g> {
    groups: &'g Groups,
    costs: &'g Costs<'g>,
    tables: &'g Tables<'g>,
    /// The pipeline with its lightest recomputation.
    light: &'g Pipeline<'g>,
    stages: &'g Stages,
    split: &'g SplitFloor<'g>,
    /// Lower bound of the flow of its plans, where only whole weights on each replica are fast enough.
    flow: Option<Seconds>,
    /// Lower bound of the ends of a step of its plans, where their menu is worth making.
    edges: Option<Seconds>,
    /// The plan of least activations.
    plan: Plan,
    verdicts: SmallVec<[Option<Verdict>; 16]>,
}

impl<'g> GroupBounds<'g> {
    /// Bounds of no group yet. `most_offloaded` = largest share of the activations on the host.
    pub fn new(
        groups: &'g Groups,
        (costs, tables): (&'g Costs<'g>, &'g Tables<'g>),
        (light, stages, split): (&'g Pipeline<'g>, &'g Stages, &'g SplitFloor<'g>),
        (flow, edges, most_offloaded): (Option<Seconds>, Option<Seconds>, f64),
    ) -> Self {
        let offload = Offload { activations: most_offloaded, ..light.plan.offload };
        let plan = Plan { recompute: Recompute::None, offload, ..light.plan.clone() };
        let verdicts = SmallVec::from_elem(None, groups.len());
        Self { groups, costs, tables, light, stages, split, flow, edges, plan, verdicts }
    }

    /// Verdict on the group of a recomputation, open where it has none.
    pub fn verdict(&mut self, place: usize, best: &Incumbents) -> Verdict {
        let Some(group) = self.groups.of(place) else { return Verdict::Open };
        if let Some(known) = self.verdicts[group] {
            return known;
        }
        let verdict = self.of_group(group, best);
        self.verdicts[group] = Some(verdict);
        verdict
    }

    fn of_group(&self, group: usize, best: &Incumbents) -> Verdict {
        let Self { costs, plan, split, .. } = self;
        let layers = self.groups.floor(group);
        let of_passes = || least_flow_of_passes(costs, plan, layers, self.stages);
        let least = self.flow.map(|flow| self.light.least_time(flow.max(of_passes())));
        let too_slow = best.too_slow(&plan.layout);
        let is_slow = |edges: Seconds| least.is_some_and(|least| too_slow(least + edges));
        if is_slow(self.edges.unwrap_or_default()) {
            return Verdict::Slow;
        }
        let (memory, budget) = (split.unshared.of(costs, plan, layers), Bytes::new(best.wanted.budget));
        let (needed, _) = memory.least(&split.menu.least);
        if needed > budget {
            return Verdict::TooLarge;
        }
        if best.is_hopeless(&plan.layout, Price { time: Seconds::ZERO, memory: needed }) {
            return Verdict::Slow;
        }
        if self.edges.is_none() {
            return Verdict::Open;
        }
        let menu = self.tables.menu(plan, &split.menu);
        menu.verdict(costs, plan, &Fit { beside: &memory, budget }, is_slow)
    }
}
