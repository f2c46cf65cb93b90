//! Depth-first search below one shape: pipelines, recomputation, shardings. Excluded plans are counted, never evaluated.

use std::slice;
use std::sync::Arc;

use super::certificate::Counts;
use super::flow::{Flow, KnownFlow};
use super::frontier::Ready;
use super::group_bounds::GroupBounds;
use super::incumbents::Place;
use super::menus::{Fit, Menu, ShardingList};
use super::pipelines::{BoundedPipe, Pipelines, Recomputed, SplitFloor};
use super::state::SearchState;
use super::stop::Stop;
use super::tables::{Recomputes, Tables};
use super::verdict::Verdict;
use crate::space::{Rejection, Space, too_large_for_hosts};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{
    Feeding, Layers, Loaded, Mixing, Pipeline, Price, ROUNDING, Sharding, Stages, UnsharedMemory, least_flow_of_passes,
    least_time_of_flow,
};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::units::{Bytes, Seconds};

/// Recomputations and offloads below a pipeline from which on its menu is made before they are bounded: a menu takes about as
/// long as the bounds of so many.
const MENU_COST: u64 = 8;

/// Recomputations of a pipeline up to which each is bounded alone.
const FEW: usize = 8;

/// Branch-and-bound search of the plans of one shape.
pub(super) struct Explorer<'e> {
    pub costs: &'e Costs<'e>,
    pub space: &'e Space<'e>,
    pub tables: &'e Tables<'e>,
    pub pipelines: Pipelines<'e>,
    /// Rank of the shape in the order of the space.
    pub rank: u32,
    pub known: &'e SearchState,
    pub stop: &'e Stop<'e>,
}

impl Explorer<'_> {
    /// Searches every plan of a shape, but for the pipelines that are known not to fit.
    pub fn explore(&self, shape: &Plan, parts: (&Mixing, &Feeding), ready: &Ready) -> SearchState {
        let Ready { too_large, most, .. } = *ready;
        let mut found = SearchState::new(self.known.best.beside());
        let layers = Recomputed::new(self.costs, self.tables, shape, parts);
        // The illegal pipelines and the layouts left out were counted when the shape was bounded.
        // A search for the nearest plan leaves out the layouts whose states alone are more than the known best's memory.
        let nearest = if most.is_none() && too_large == 0 { found.best.most_memory() } else { None };
        let (pipelines, left_out) = self.pipelines.of_shape(shape, &layers, most.or(nearest), &mut Counts::default());
        found.counts.flow += nearest.map_or(0, |_| left_out);
        for bounded in &pipelines[too_large..] {
            let bound = Price { time: bounded.bound, memory: bounded.memory };
            if found.best.is_hopeless(&bounded.plan.layout, bound) {
                found.counts.flow += bounded.plans();
                continue;
            }
            if self.stop.asks() {
                return found;
            }
            self.pipe(bounded, &layers, &mut found);
        }
        found
    }

    /// Searches every plan of a shape on one layout, schedule and split.
    fn pipe(&self, bounded: &BoundedPipe, layers: &Recomputed, found: &mut SearchState) {
        let BoundedPipe { ref plan, ref light, at, pipe, shardings, stages, .. } = *bounded;
        let all = bounded.plans();
        let engines = self.tables.engines(plan.layout.pp);
        let hopeless = |time: Seconds, found: &SearchState| found.is_hopeless(&plan.layout, time);
        let splits = self.pipelines.splits(bounded, layers);
        if let Some(states) = self.pipelines.too_large_states(bounded, layers, &splits) {
            self.pipelines.reject_states(bounded, layers, (splits, states), &mut found.counts);
            return;
        }
        let bare = layers.at(at);
        let pipeline = Pipeline::new(self.costs, light, bare, stages);
        let slow_gathered = !engines.gathered || hopeless(pipeline.least_gathered_time(self.costs), found);
        let slow = !engines.replicated || hopeless(pipeline.least_time(Seconds::ZERO), found);
        if slow && slow_gathered {
            found.counts.flow += all;
            return;
        }
        let floors = self.pipelines.floors(bounded, layers, splits);
        if let Some(reason) = self.pipelines.too_large(&floors) {
            found.counts.reject(&reason, all);
            return;
        }
        let least_of = |time: Seconds, gathered: Option<Seconds>| gathered.map_or(time, |gathered| gathered.min(time));
        let gathered = (!slow_gathered).then(|| pipeline.least_gathered_time(self.costs));
        let time = least_of(pipeline.least_time(Seconds::ZERO), gathered);
        let is_hopeless = |memory: Bytes| found.best.is_hopeless(&plan.layout, Price { time, memory });
        if floors.iter().all(|floor| is_hopeless(floor.needed)) {
            found.counts.flow += all;
            return;
        }
        let (is_ranked, one_split) = (found.best.objective().is_some(), floors.len() == 1);
        let slow_gathered = slow_gathered
            || is_ranked && one_split && pipe.below > MENU_COST && {
                let too_slow = found.best.too_slow(&plan.layout);
                !floors[0].any_gathered_fits(&self.pipelines, (plan, &pipeline), too_slow)
            };
        if slow && slow_gathered {
            found.counts.flow += all;
            return;
        }
        // Where only whole weights on each replica are fast enough, plans are bounded by what makes them fit.
        let ends = |split: &SplitFloor| {
            if slow_gathered { split.ends(&self.pipelines, plan) } else { Seconds::ZERO }
        };
        let is_one = bounded.has_one_split() && slow_gathered;
        if is_one && hopeless(pipeline.least_time(Seconds::ZERO) + ends(&floors[0]), found) {
            found.counts.flow += all;
            return;
        }
        // Paths are weighed once for all recomputations.
        let flow = if is_one { self.known_flow(&pipeline, found).flow } else { Seconds::ZERO };
        let is_slow = |ends: Seconds| is_one && hopeless(pipeline.least_time(flow) + ends, found);
        let edges = || floors[0].edges(&self.pipelines, plan).unwrap_or_default();
        if is_slow(ends(&floors[0])) || is_ranked && pipe.below > MENU_COST && is_one && is_slow(edges()) {
            found.counts.flow += all;
            return;
        }
        let (place, mut enough_recomputed) = ((self.rank, bounded.place), false);
        let gathered = gathered.filter(|_| !slow_gathered);
        let is_grouped = pipe.recomputes.len() > FEW && one_split && floors[0].unshared.is_of(stages);
        let mut groups = is_grouped.then(|| {
            let of_pipeline = (&pipeline, stages, &floors[0]);
            GroupBounds::new((layers.groups(), self.pipelines), of_pipeline, (flow, gathered, pipe.most_offloaded))
        });
        for Recomputes { recompute, at, shares } in &pipe.recomputes {
            let below = shardings * shares.len() as u64;
            let first_layers = matches!(recompute, Recompute::FirstLayers(_));
            if first_layers && enough_recomputed {
                found.counts.flow += below;
                continue;
            }
            let weigh = |times| self.weighed(&pipeline.plan, times, found).flow;
            let verdict = groups.as_mut().map_or(Verdict::Open, |groups| groups.verdict(*at, &found.best, weigh));
            if verdict.excludes(below, &mut found.counts) {
                continue;
            }
            let light_layers = stages.last_chunk();
            let stages = self.tables.stages(plan, pipe, *recompute, layers.head(*at));
            let layers = layers.at(*at);
            let floor = floors.iter().find(|floor| floor.last_chunk == stages.last_chunk()).unwrap_or(&floors[0]);
            if let Some(reason) = self.pipelines.too_large(slice::from_ref(floor)) {
                found.counts.reject(&reason, below);
                continue;
            }
            let least = if stages.last_chunk() == light_layers {
                pipeline.least_time(flow.max(least_flow_of_passes(self.costs, plan, layers, stages)))
            } else {
                least_time_of_flow(self.costs, plan, layers, stages)
            };
            if slow_gathered && hopeless(least + ends(floor), found) {
                found.counts.flow += below;
                enough_recomputed |= first_layers;
                continue;
            }
            let of_stages =
                if floor.unshared.is_of(stages) { None } else { Some(UnsharedMemory::new(self.costs, plan, stages)) };
            let memory = of_stages.as_ref().unwrap_or(&floor.unshared);
            let plan = Plan { recompute: *recompute, ..plan.clone() };
            let least = least_of(least, gathered);
            let variant = Variant {
                light: &pipeline,
                plan,
                layers,
                stages,
                memory,
                floor,
                least,
                slow_gathered,
                shardings,
                place,
            };
            enough_recomputed |= self.shares(&variant, shares, found) && first_layers;
        }
    }

    /// Searches every share of offloaded activations and every sharding of one recomputation. Returns whether it is too slow
    /// even without offloading.
    fn shares(&self, variant: &Variant, shares: &[f64], found: &mut SearchState) -> bool {
        let Variant { light, plan, layers, stages, memory: all, floor, least, slow_gathered, shardings, place: _ } =
            variant;
        let engines = self.tables.engines(plan.layout.pp);
        let budget = Bytes::new(found.best.wanted.budget);
        for (fewer, &activations) in shares.iter().enumerate() {
            let plan = Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
            let memory = all.of(self.costs, &plan, layers);
            let (needed, rank) = memory.least(&floor.plan_menu.least);
            if needed > budget {
                found.counts.reject(&Rejection::OutOfMemory { needed, available: budget, rank }, *shardings);
                continue;
            }
            if found.best.is_hopeless(&plan.layout, Price { time: *least, memory: needed }) {
                found.counts.flow += shardings;
                continue;
            }
            if let Some(menu) = floor.known_menu().filter(|_| *slow_gathered) {
                let fit = Fit { beside: &memory, budget };
                let too_slow = found.best.too_slow(&plan.layout);
                let is_slow = |edges: Seconds| too_slow(*least + edges);
                if menu.verdict(self.costs, &plan, &fit, is_slow).excludes(*shardings, &mut found.counts) {
                    continue;
                }
            }
            let pipeline = light.with_layers(self.costs, &plan, layers, stages);
            let slow = !engines.replicated || found.is_hopeless(&plan.layout, pipeline.least_time(Seconds::ZERO));
            let gathered =
                || *slow_gathered || found.is_hopeless(&plan.layout, pipeline.least_gathered_time(self.costs));
            let is_slow = slow && (!engines.gathered || gathered());
            if is_slow || !self.loaded(variant, &Loaded::with_memory(pipeline, memory), found) {
                // Offloading more, or recomputing one more layer, is no faster.
                let more = shares.len() - fewer - usize::from(!is_slow);
                found.counts.flow += shardings * more as u64;
                return fewer == 0;
            }
        }
        false
    }

    /// Searches every sharding of a pipeline under one recomputation and offload. Returns whether some of them may be fast
    /// enough.
    ///
    /// As a rule the menu is made only here, for few pipelines are both light and fast enough.
    fn loaded(&self, variant: &Variant, loaded: &Loaded, found: &mut SearchState) -> bool {
        let pipeline = &loaded.pipeline;
        let plan = &pipeline.plan;
        let engines = self.tables.engines(plan.layout.pp);
        let is_slow = |flow: Seconds, edges: Seconds, found: &SearchState| {
            found.is_hopeless(&plan.layout, pipeline.least_time(flow) + edges)
        };
        let least_gathered =
            (engines.gathered && !variant.slow_gathered).then(|| pipeline.least_gathered_time(self.costs));
        let slow_gathered = least_gathered.is_none_or(|least| found.is_hopeless(&plan.layout, least));
        let mut weighed = None;
        if variant.floor.known_menu().is_none() {
            let update = self.tables.least_update(plan, &variant.floor.plan_menu);
            if engines.replicated && !is_slow(Seconds::ZERO, update, found) {
                weighed = Some(self.known_flow(pipeline, found));
            }
            let slow = weighed.as_ref().is_none_or(|known| is_slow(known.flow, update, found));
            if slow && slow_gathered {
                found.counts.flow += variant.shardings;
                return false;
            }
        }
        let menu = variant.floor.menu(&self.pipelines, plan);
        found.counts.dominated += menu.dominated;
        if let (count, Some(why)) = &menu.inexpressible {
            found.counts.reject(why, *count);
        }
        let sharded = menu.replicated.count + menu.sharded.count;
        let budget = Bytes::new(found.best.wanted.budget);
        let (needed, rank) = loaded.memory.least(&menu.least);
        if needed > budget {
            found.counts.reject(&Rejection::OutOfMemory { needed, available: budget, rank }, sharded);
            return true;
        }
        let slow_gathered = slow_gathered || menu.sharded.count == 0;
        let mut slow = menu.replicated.count == 0 || is_slow(Seconds::ZERO, menu.edges, found);
        // What makes them fit may take too long, which says nothing of plans that keep less.
        let fit = Fit { beside: &loaded.memory, budget };
        let edges = if slow { None } else { menu.edges_within(self.costs, plan, &fit) };
        let late = edges.is_some_and(|edges| is_slow(Seconds::ZERO, edges, found));
        let weighed = || weighed.unwrap_or_else(|| self.known_flow(pipeline, found));
        let known = if slow || late { KnownFlow::default() } else { weighed() };
        slow = slow || is_slow(known.flow, menu.edges, found);
        if slow && slow_gathered {
            found.counts.flow += sharded;
            return false;
        }
        let hopeless =
            |time: Seconds, found: &SearchState| found.best.is_hopeless(&plan.layout, Price { time, memory: needed });
        let place = variant.place;
        let least = pipeline.least_time(known.flow) + edges.unwrap_or(menu.edges);
        if slow || late || hopeless(least, found) {
            found.counts.flow += menu.replicated.count;
        } else {
            let flow = if pipeline.is_simulated() { Flow::Bounded(known.flow) } else { Flow::Closed };
            let leaf = Leaf { loaded, needed, flow, known, too_large: None, place };
            self.shardings(leaf, &menu.replicated, menu, found);
        }
        if slow_gathered || least_gathered.is_none_or(|least| hopeless(least, found)) {
            found.counts.flow += menu.sharded.count;
        } else {
            let (flow, known) = (Flow::Closed, KnownFlow::default());
            let leaf = Leaf { loaded, needed, flow, known, too_large: None, place };
            self.shardings(leaf, &menu.sharded, menu, found);
        }
        true
    }

    /// Lower bound of the time of a pipeline's flow by known critical paths; zero if it is not simulated.
    fn known_flow(&self, pipeline: &Pipeline, found: &SearchState) -> KnownFlow {
        if !pipeline.is_simulated() {
            return KnownFlow::default();
        }
        self.weighed(&pipeline.plan, pipeline.stage_times(self.costs), found)
    }

    /// Lower bound of the time of a flow by known critical paths, where its stages take these times.
    fn weighed(&self, plan: &Plan, stages: Vec<StageTime>, found: &SearchState) -> KnownFlow {
        let Some(key) = self.tables.simulator_key(plan) else { return KnownFlow::default() };
        let known = self.known.paths.longest(key, &stages).max(found.paths.longest(key, &stages));
        KnownFlow { flow: known.max(self.tables.least_flow(plan, &stages)), stages: Some((key, stages)) }
    }

    /// Evaluates the shardings of a list on a pipeline, but for those whose lower bound is too slow.
    fn shardings(&self, mut leaf: Leaf, list: &ShardingList, menu: &Menu, found: &mut SearchState) {
        let (pipeline, memory) = (&leaf.loaded.pipeline, &leaf.loaded.memory);
        let (layout, budget) = (&pipeline.plan.layout, Bytes::new(found.best.wanted.budget));
        let needed = leaf.needed;
        let is_hopeless =
            |time: Seconds, found: &SearchState| found.best.is_hopeless(layout, Price { time, memory: needed });
        for group in &list.groups {
            let of_group = leaf.flow.time(self.costs, leaf.loaded, &group.floor);
            if is_hopeless(of_group, found) {
                found.counts.sharding += group.count;
                continue;
            }
            for own in &group.shardings {
                let of_floor = leaf.flow.time(self.costs, leaf.loaded, &own.floor);
                if is_hopeless(of_floor, found) {
                    found.counts.sharding += own.count();
                    continue;
                }
                if let Some((_, count)) = &mut leaf.too_large
                    && !memory.fits(&own.floor, budget)
                {
                    *count += own.count();
                    continue;
                }
                for (sharding, longer) in own.beyond_floor(self.costs, &pipeline.plan, &menu.parameters) {
                    if is_hopeless(of_floor * ROUNDING + longer, found) {
                        found.counts.sharding += 1;
                    } else {
                        self.sharding(&mut leaf, sharding, found);
                    }
                }
            }
        }
        if let Some((rejection, count)) = leaf.too_large {
            found.counts.reject(&rejection, count);
        }
    }

    /// Evaluates one sharding.
    fn sharding(&self, leaf: &mut Leaf, sharding: &Sharding, found: &mut SearchState) {
        let pipeline = &leaf.loaded.pipeline;
        let layout = &pipeline.plan.layout;
        let (memory, rank) = leaf.loaded.memory(sharding);
        let budget = Bytes::new(found.best.wanted.budget);
        if memory > budget {
            let first = || (Rejection::OutOfMemory { needed: memory, available: budget, rank }, 0);
            leaf.too_large.get_or_insert_with(first).1 += 1;
            return;
        }
        let mut time = leaf.flow.time(self.costs, leaf.loaded, sharding);
        if found.best.is_hopeless(layout, Price { time, memory }) {
            found.counts.sharding += 1;
            return;
        }
        let plan = sharding.of(&pipeline.plan);
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
            found.best.offer(plan, price, leaf.place);
        }
    }

    /// Simulated time of a pipeline; its critical path bounds later ones.
    fn simulated(&self, leaf: &Leaf, found: &mut SearchState) -> Flow {
        let simulator =
            leaf.known.stages.as_ref().and_then(|(key, stages)| Some((*key, stages, self.tables.simulator(*key)?)));
        let Some((key, stages, simulator)) = simulator else { return Flow::Played(None) };
        found.counts.simulated += 1;
        let (played, path) = simulator.play(stages);
        found.paths.add(key, Arc::new(path));
        Flow::Played(Some(played))
    }
}

/// One recomputation of a pipeline.
struct Variant<'v> {
    /// The pipeline with its lightest recomputation.
    light: &'v Pipeline<'v>,
    plan: Plan,
    layers: &'v Layers,
    stages: &'v Stages,
    memory: &'v UnsharedMemory<'v>,
    floor: &'v SplitFloor<'v>,
    /// Lower bound of its step time but for the ends.
    least: Seconds,
    /// Whether every sharding under ZeRO 3 is too slow or too large.
    slow_gathered: bool,
    /// Number of shardings of its layout.
    shardings: u64,
    place: Place,
}

/// Shardings of one pipeline under evaluation.
struct Leaf<'l> {
    loaded: &'l Loaded<'l>,
    /// Lower bound of their memory.
    needed: Bytes,
    flow: Flow,
    known: KnownFlow,
    /// First sharding that exceeds the memory, and the number of those that do.
    too_large: Option<(Rejection, u64)>,
    place: Place,
}
