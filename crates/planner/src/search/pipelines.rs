//! Pipelines of one shape by ascending lower bound, and the bound of the shape that follows from them.

use std::cell::OnceCell;
use std::collections::BinaryHeap;
use std::sync::Arc;

use itertools::Itertools as _;
use smallvec::SmallVec;

use super::bounded::{BoundedLayout, BoundedPipeline, PipelineBound, ShapeBound};
use super::certificate::Counts;
use super::incumbents::Incumbents;
use super::menus::{Menu, PlanMenu};
use super::on_host::Fit;
use super::recomputed::Recomputed;
use super::tables::{Recomputes, SearchShape, Tables};
use crate::space::{Rejection, Space, least_states};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{LeastExchange, Loaded, Pipeline, RankMemory, Stages, UnsharedMemory};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::schedule::RankBytes;
use meshwright_engine::units::{Bytes, Seconds};

/// Classes of the ranks of a pipeline with each split, and their menus.
pub(super) type Splits<'p> = SmallVec<[(&'p Stages, Arc<PlanMenu>); 2]>;

/// Plans of a pipeline with one split, with the least activations of any recomputation.
pub(super) struct SplitFloor<'p> {
    /// Layers of its last virtual stage, by which it is known.
    pub last_chunk: u32,
    /// Memory of its ranks before recomputation.
    pub unshared: UnsharedMemory<'p>,
    /// Memory of its ranks.
    memory: RankMemory,
    /// Lower bound of the memory of the fullest rank of its plans.
    pub needed: RankBytes,
    pub plan_menu: Arc<PlanMenu>,
    menu: OnceCell<Arc<Menu>>,
    edges: OnceCell<Option<Seconds>>,
}

impl SplitFloor<'_> {
    /// Menu of its shardings, asked for here for the first time.
    pub fn menu(&self, pipelines: &Pipelines, plan: &Plan) -> &Menu {
        self.menu.get_or_init(|| pipelines.tables.menu(plan, &self.plan_menu))
    }

    /// The menu, if it was asked for here. What other threads have asked for must change no count.
    pub fn known_menu(&self) -> Option<&Menu> {
        self.menu.get().map(Arc::as_ref)
    }

    /// Lower bound of the time at both ends of a step under ZeRO 0 to 2: that of the shardings that may fit where their menu is
    /// known or memory is tight, else that of all shardings.
    pub fn ends(&self, pipelines: &Pipelines, plan: &Plan) -> Seconds {
        if pipelines.is_tight || self.known_menu().is_some() {
            self.edges(pipelines, plan).unwrap_or_default()
        } else {
            pipelines.tables.least_ends(plan, &self.plan_menu).time
        }
    }

    /// Lower bound of the exchange between replicas under ZeRO 0 to 2, over all shardings.
    pub fn exchange(&self, pipelines: &Pipelines, plan: &Plan) -> LeastExchange {
        pipelines.tables.least_ends(plan, &self.plan_menu).exchange
    }

    /// Lower bound of the time at both ends of a step under ZeRO 0 to 2, over the shardings that may fit; `None` if none does.
    pub fn edges(&self, pipelines: &Pipelines, plan: &Plan) -> Option<Seconds> {
        *self.edges.get_or_init(|| {
            let fit = Fit { beside: &self.memory, hbm_budget: pipelines.hbm_budget };
            let menu = self.menu(pipelines, plan);
            menu.edges_within(&menu.replicated, pipelines.costs, plan, &fit)
        })
    }

    /// Lower bound of the time at the ends of a step under ZeRO 3, over the shardings that may fit; `None` if none does.
    pub fn gathered_edges(&self, pipelines: &Pipelines, plan: &Plan) -> Option<Seconds> {
        let fit = Fit { beside: &self.memory, hbm_budget: pipelines.hbm_budget };
        let menu = self.menu(pipelines, plan);
        menu.edges_within(&menu.sharded, pipelines.costs, plan, &fit)
    }

    /// Whether a sharding under ZeRO 3 may fit and be fast enough, by the least activations and by the times of a pipeline with the
    /// lightest recomputation.
    pub fn any_gathered_fits(
        &self,
        pipelines: &Pipelines,
        plan: &Plan,
        light: &Pipeline,
        is_slow: impl Fn(Seconds) -> bool,
    ) -> bool {
        let costs = pipelines.costs;
        let menu = self.menu(pipelines, plan);
        let fit = Fit { beside: &self.memory, hbm_budget: pipelines.hbm_budget };
        let loaded = Loaded::with_memory(light.clone(), self.memory.clone());
        menu.any_gathered_fits(costs, plan, &fit, &|sharding| is_slow(loaded.least_gathered_time(costs, sharding)))
    }
}

/// Pipelines of the shapes of one search.
#[derive(Clone, Copy)]
pub(super) struct Pipelines<'e> {
    pub costs: &'e Costs<'e>,
    pub space: &'e Space<'e>,
    pub tables: &'e Tables<'e>,
    /// Memory that a plan may need.
    pub hbm_budget: Bytes,
    /// Whether model states fill much of it, so that what makes plans fit takes time.
    pub is_tight: bool,
}

/// Share of the memory from which on model states fill much of it: a setting of speed, which changes no answer. Below
/// it the menus, which tell what makes a plan fit and take as long as several bounds, are made late. Swept in
/// `benches/runs/2026-11-26-2-cores.txt`.
const TIGHT: f64 = 0.5;

impl<'e> Pipelines<'e> {
    /// Pipelines of a search under a budget.
    pub fn new(costs: &'e Costs<'e>, space: &'e Space<'e>, tables: &'e Tables<'e>, hbm_budget: Bytes) -> Self {
        let is_tight = least_states(costs.problem, 0.0) + costs.least_context() > hbm_budget * TIGHT;
        Self { costs, space, tables, hbm_budget, is_tight }
    }

    /// Splits that the recomputations of a pipeline lead to: a cost-balanced one depends on the recomputation.
    pub fn splits(&self, bounded: &BoundedPipeline<'e>, layers: &Recomputed) -> Splits<'e> {
        let stages = self.stages_of_splits(bounded, layers);
        stages.into_iter().map(|stages| (stages, self.tables.plan_menu(&bounded.plan, stages))).collect()
    }

    /// Classes of the ranks of a pipeline, one for each split.
    fn stages_of_splits(&self, bounded: &BoundedPipeline<'e>, layers: &Recomputed) -> SmallVec<[&'e Stages; 4]> {
        let mut all: SmallVec<[&Stages; 4]> = SmallVec::new();
        if bounded.has_one_split() {
            all.push(bounded.stages);
            return all;
        }
        // The more the head costs, the shorter is the last chunk: if both extremes lead to one split, all between do.
        let last = |head: f64| Stages::last_chunk_of(self.costs, &bounded.plan, head);
        let (least, most) = layers.range_of_heads();
        let few = if last(least) == last(most) { 1 } else { usize::MAX };
        for Recomputes { at, .. } in bounded.entry.recomputes.iter().dedup_by(|a, b| a.at == b.at).take(few) {
            let stages = self.tables.stages(&bounded.plan, bounded.entry, Recompute::None, layers.head(*at));
            if all.iter().all(|known| known.last_chunk() != stages.last_chunk()) {
                all.push(stages);
            }
        }
        all
    }

    /// Rejection of a pipeline whose states exceed the budget in all its plans, whatever the activations.
    pub fn too_large_states(
        &self,
        bounded: &BoundedPipeline<'e>,
        layers: &Recomputed,
        splits: &Splits,
    ) -> Option<Rejection> {
        self.over_budget(splits.iter().map(|(stages, menu)| {
            let bare = layers.at(bounded.at);
            RankMemory::without_activations(self.costs, &bounded.plan, bare, stages).lower_bound(&menu.least)
        }))
    }

    /// Splits of a pipeline with lower bounds of their memory.
    pub fn floors(
        &self,
        bounded: &BoundedPipeline<'e>,
        layers: &Recomputed,
        splits: Splits<'e>,
    ) -> SmallVec<[SplitFloor<'e>; 2]> {
        let BoundedPipeline { ref plan, entry, .. } = *bounded;
        let offload = Offload { activations: entry.most_offloaded, ..plan.offload };
        let offloading = Plan { offload, ..plan.clone() };
        let of_split = |(stages, plan_menu): (&'e Stages, Arc<PlanMenu>)| {
            let unshared = UnsharedMemory::new(self.costs, plan, stages);
            let memory = unshared.with_layers(self.costs, &offloading, layers.floor());
            let needed = memory.lower_bound(&plan_menu.least);
            let (menu, edges) = (OnceCell::new(), OnceCell::new());
            SplitFloor { last_chunk: stages.last_chunk(), unshared, memory, needed, plan_menu, menu, edges }
        };
        splits.into_iter().map(of_split).collect()
    }

    /// Rejection of a pipeline none of whose plans fits, by the lower bounds of its splits.
    pub fn too_large(&self, floors: &[SplitFloor]) -> Option<Rejection> {
        self.over_budget(floors.iter().map(|floor| floor.needed))
    }

    /// Rejection by the least of several lower bounds of memory, if each exceeds the budget.
    fn over_budget(&self, bounds: impl Iterator<Item = RankBytes>) -> Option<Rejection> {
        let available = self.hbm_budget;
        let mut least: Option<RankBytes> = None;
        for bound in bounds {
            if bound.bytes <= available {
                return None;
            }
            least = least.filter(|known| known.bytes <= bound.bytes).or(Some(bound));
        }
        least.map(|RankBytes { rank, bytes: needed }| Rejection::OutOfMemory { needed, available, rank })
    }

    /// Counts a pipeline whose states exceed the memory. The example of the rule counts activations too.
    pub fn reject_states(
        &self,
        bounded: &BoundedPipeline<'e>,
        layers: &Recomputed,
        splits: Splits<'e>,
        states: Rejection,
        counts: &mut Counts,
    ) {
        if !counts.reject_more(Rejection::OUT_OF_MEMORY, bounded.plans()) {
            counts.reject(&self.too_large(&self.floors(bounded, layers, splits)).unwrap_or(states), bounded.plans());
        }
    }

    /// Lower bound of a shape: that of its first pipeline whose states fit, and no less than `least`. Counts the illegal
    /// pipelines and those before the first; `None` if there is no other. `has_example` = an example of a plan that exceeds the
    /// memory is known: then layouts whose states alone do are only counted. Layouts that cannot enter the answer are left out, and
    /// pipelines that are too slow are only counted.
    ///
    /// It is valid because the pipelines come by ascending bound, and every plan of the shape is below one of them.
    pub fn bound(
        &self,
        shape: &SearchShape,
        least: Seconds,
        has_example: bool,
        best: &Incumbents,
        counts: &mut Counts,
    ) -> Option<ShapeBound> {
        let layers = Recomputed::new(self.costs, self.tables, shape);
        let most = has_example.then_some(self.hbm_budget);
        let layouts = self.layouts(shape, most, best, counts);
        let (mut open, mut bounded, mut too_slow) = (BinaryHeap::new(), 0, 0);
        loop {
            // Pipelines are bounded while those of another layout may come next.
            while let Some(next) = layouts.get(bounded)
                && open.peek().is_none_or(|first: &BoundedPipeline| first.bound >= next.bound.time)
            {
                bounded += 1;
                if best.is_hopeless(&next.plan.layout, next.bound) {
                    continue;
                }
                let is_open = |pipeline: &PipelineBound| {
                    let is_open = !pipeline.is_too_slow(best);
                    too_slow += if is_open { 0 } else { pipeline.plans };
                    is_open
                };
                let (pipelines, left_out) = self.of_layout(next, &layers, most, counts, is_open);
                counts.reject_without_example(Rejection::OUT_OF_MEMORY, left_out);
                open.extend(pipelines);
            }
            let Some(first) = open.pop() else {
                counts.flow += too_slow;
                return None;
            };
            let splits = self.splits(&first, &layers);
            let Some(states) = self.too_large_states(&first, &layers, &splits) else {
                let left = first.plans() + open.iter().map(BoundedPipeline::plans).sum::<u64>() + too_slow;
                let memories = open.iter().chain([&first]).map(|pipeline| pipeline.memory);
                let others = layouts[bounded..].iter().map(|layout| layout.bound.memory);
                let memory = memories.chain(others).reduce(Bytes::min).unwrap_or_default();
                let (bound, first) = (first.bound.max(least), first.key());
                let next = layouts.get(bounded).map(BoundedLayout::key);
                return Some(ShapeBound { bound, memory, most, next, first, left });
            };
            if has_example {
                counts.reject_without_example(Rejection::OUT_OF_MEMORY, first.plans());
            } else {
                self.reject_states(&first, &layers, splits, states, counts);
            }
        }
    }
}
