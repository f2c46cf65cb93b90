//! Leaves of the search tree: evaluation of the shardings of one pipeline that no bound prunes.

use std::sync::Arc;

use super::explorer::Explorer;
use super::flow::{Flow, KnownFlow};
use super::incumbents::SpacePosition;
use super::menus::{Menu, ShardingList};
use super::on_host::ShardedPlan;
use super::state::SearchState;
use crate::space::{Rejection, too_large_for_hosts};
use meshwright_engine::cost::incremental::{Loaded, Price, ROUNDING, Sharding};
use meshwright_engine::schedule::RankBytes;
use meshwright_engine::units::{Bytes, Seconds};

/// Shardings of one pipeline under evaluation.
pub(super) struct Leaf<'l> {
    pub loaded: &'l Loaded<'l>,
    /// Lower bound of their memory.
    pub needed: Bytes,
    pub flow: Flow,
    pub known: KnownFlow,
    /// First sharding that exceeds the memory, and the number of those that do.
    pub too_large: Option<(Rejection, u64)>,
    pub position: SpacePosition,
}

impl Explorer<'_> {
    /// Evaluates the shardings of a list on a pipeline, except those that a lower bound of the time prunes.
    pub fn evaluate_list(&self, mut leaf: Leaf, list: &ShardingList, menu: &Menu, found: &mut SearchState) {
        let (pipeline, memory) = (&leaf.loaded.pipeline, &leaf.loaded.memory);
        let (layout, hbm_budget) = (&pipeline.plan.layout, found.best.wanted.hbm_budget);
        let needed = leaf.needed;
        let is_hopeless =
            |time: Seconds, found: &SearchState| found.best.is_hopeless(layout, Price { time, memory: needed });
        for group in &list.groups {
            let of_group = leaf.flow.time(self.costs, leaf.loaded, &group.floor);
            if is_hopeless(of_group, found) {
                found.counts.sharding += group.count;
                continue;
            }
            let sharded = ShardedPlan { costs: self.costs, plan: &pipeline.plan, parameters: &menu.parameters };
            for own in &group.shardings {
                let of_floor = leaf.flow.time(self.costs, leaf.loaded, &own.floor);
                if is_hopeless(of_floor, found) {
                    found.counts.sharding += own.count();
                    continue;
                }
                if let Some((_, count)) = &mut leaf.too_large
                    && !memory.fits(&own.floor, hbm_budget)
                {
                    *count += own.count();
                    continue;
                }
                for (sharding, longer) in own.beyond_floor(sharded) {
                    if is_hopeless(of_floor * ROUNDING + longer, found) {
                        found.counts.sharding += 1;
                    } else {
                        self.evaluate_sharding(&mut leaf, sharding, found);
                    }
                }
            }
        }
        if let Some((rejection, count)) = leaf.too_large {
            found.counts.reject(&rejection, count);
        }
    }

    /// Evaluates one sharding.
    fn evaluate_sharding(&self, leaf: &mut Leaf, sharding: &Sharding, found: &mut SearchState) {
        let pipeline = &leaf.loaded.pipeline;
        let layout = &pipeline.plan.layout;
        let RankBytes { rank, bytes: memory } = leaf.loaded.memory(sharding);
        let hbm_budget = found.best.wanted.hbm_budget;
        if memory > hbm_budget {
            let first = || (Rejection::OutOfMemory { needed: memory, available: hbm_budget, rank }, 0);
            leaf.too_large.get_or_insert_with(first).1 += 1;
            return;
        }
        let mut time = leaf.flow.time(self.costs, leaf.loaded, sharding);
        if found.best.is_hopeless(layout, Price { time, memory }) {
            found.counts.sharding += 1;
            return;
        }
        let plan = sharding.applied_to(&pipeline.plan);
        let refused = self.space.inexpressible(&plan).or_else(|| too_large_for_hosts(self.costs, &plan));
        if let Some(why) = refused {
            found.counts.reject(&why, 1);
            return;
        }
        if matches!(leaf.flow, Flow::Bounded(_)) {
            leaf.flow = self.simulated(leaf, found);
            time = leaf.flow.time(self.costs, leaf.loaded, sharding);
        }
        found.counts.evaluated += 1;
        let price = Price { time, memory };
        if !found.best.is_hopeless(layout, price) {
            found.best.offer(plan, price, leaf.position);
        }
    }

    /// Simulated time of a pipeline; its critical path joins those that bound later pipelines.
    fn simulated(&self, leaf: &Leaf, found: &mut SearchState) -> Flow {
        let simulator =
            leaf.known.stages.as_ref().and_then(|(key, stages)| Some((*key, stages, self.tables.simulator(*key)?)));
        let Some((key, stages, simulator)) = simulator else { return Flow::Simulated(None) };
        found.counts.simulated += 1;
        let (makespan, path) = simulator.makespan_and_path(stages);
        found.paths.add(key, Arc::new(path));
        Flow::Simulated(Some(makespan))
    }
}
