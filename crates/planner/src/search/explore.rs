//! Depth-first search below one shape: pipelines, recomputation, shardings. Excluded plans are counted, never evaluated.

use std::cell::OnceCell;
use std::sync::Arc;

use super::flow::{Flow, KnownFlow};
use super::menus::{Menu, ShardingList};
use super::state::SearchState;
use super::stop::Stop;
use super::tables::{Pipe, Recomputes, Tables};
use crate::space::{Rejection, Space, legal, too_large_for_hosts};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{
    Block, Feeding, Layers, Loaded, Mixing, Pipeline, Price, RankMemory, Sharding, Stages, least_time_of_flow,
};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::split::LayerSplit;
use meshwright_engine::units::{Bytes, Seconds};

/// Branch-and-bound search of the plans of one shape.
pub(super) struct Explorer<'e> {
    pub costs: &'e Costs<'e>,
    pub space: &'e Space<'e>,
    pub tables: &'e Tables<'e>,
    pub known: &'e SearchState,
    pub stop: &'e Stop<'e>,
}

/// Layers of one shape under each recomputation, computed on first use.
struct Recomputed<'r> {
    costs: &'r Costs<'r>,
    shape: &'r Plan,
    block: Block,
    known: Vec<(Recompute, OnceCell<Layers>)>,
    floor: OnceCell<Layers>,
}

impl<'r> Recomputed<'r> {
    fn new(costs: &'r Costs<'r>, shape: &'r Plan, block: Block, recomputes: &[Recompute]) -> Self {
        let known = recomputes.iter().map(|recompute| (*recompute, OnceCell::new())).collect();
        Self { costs, shape, block, known, floor: OnceCell::new() }
    }

    /// Layers with the smallest memory over all recomputations, term by term: a lower bound of each.
    fn floor(&self) -> &Layers {
        self.floor.get_or_init(|| self.at(0).floor())
    }

    fn at(&self, place: usize) -> &Layers {
        let (recompute, cell) = &self.known[place];
        cell.get_or_init(|| self.block.layers(self.costs, &Plan { recompute: *recompute, ..self.shape.clone() }))
    }
}

impl Explorer<'_> {
    /// Searches every plan of a shape.
    pub fn explore(&self, shape: &Plan, mixing: &Mixing, feeding: &Feeding) -> SearchState {
        let mut found = SearchState::new(self.known.best.beside());
        let block = Block::new(self.costs, shape, mixing, feeding);
        let layers = Recomputed::new(self.costs, shape, block, self.tables.recomputes());
        for layout in self.space.layouts(shape) {
            let plan = Plan { layout, ..shape.clone() };
            let shardings = self.tables.shardings(&layout);
            if shardings == 0 {
                continue;
            }
            if self.stop.asks() {
                return found;
            }
            let pipes = &self.tables.pipes(&plan).pipelines;
            let mut reasons = Vec::new();
            legal::batch(self.costs.problem, &plan, &mut reasons);
            legal::experts(self.costs.problem, &plan, &mut reasons);
            if let Some(reason) = reasons.first() {
                let below: u64 = pipes.iter().map(|pipe| pipe.below).sum();
                found.counts.reject(reason, below * shardings);
                continue;
            }
            for pipe in pipes {
                if self.stop.asks() {
                    return found;
                }
                self.pipe(&plan, pipe, shardings, &layers, &mut found);
            }
        }
        found
    }

    /// Searches every plan of a shape on one layout, schedule and split.
    fn pipe(&self, plan: &Plan, pipe: &Pipe, shardings: u64, layers: &Recomputed, found: &mut SearchState) {
        let (schedule, split) = (pipe.plan.schedule, pipe.plan.split.clone());
        let plan = Plan { schedule, split, recompute: Recompute::None, offload: Offload::NONE, ..plan.clone() };
        if let Some(reason) = legal::first_of_pipeline(self.costs.problem, &plan) {
            found.counts.reject(&reason, pipe.below * shardings);
            return;
        }
        let all = pipe.below * shardings;
        let engines = self.tables.engines(plan.layout.pp);
        let hopeless = |time: Seconds, memory: Bytes, found: &SearchState| {
            found.best.is_hopeless(&plan.layout, Price { time, memory })
        };
        // A step is shortest without recomputation; with a single recomputation on the list, that one gives the bound.
        let (lightest, at) =
            if let [only] = &pipe.recomputes[..] { (only.recompute, only.at) } else { (Recompute::None, 0) };
        let bare = layers.at(at);
        let light = Plan { recompute: lightest, ..plan.clone() };
        let stages = self.tables.stages(&light, pipe, bare);
        if !engines.gathered && hopeless(least_time_of_flow(self.costs, &light, bare, stages), Bytes::ZERO, found) {
            found.counts.flow += all;
            return;
        }
        let plan_menu = self.tables.plan_menu(&plan, stages);
        // What is recomputed weighs on a cost-balanced split: its other recomputations may hold other layers.
        let one_split = plan.split != LayerSplit::CostBalanced || pipe.recomputes.len() == 1;
        let available = Bytes::new(found.best.wanted.budget);
        let lean = || {
            let offload = Offload { activations: pipe.most_offloaded, ..plan.offload };
            let memory = RankMemory::new(self.costs, &Plan { offload, ..plan.clone() }, layers.floor(), stages);
            let (needed, rank) = memory.least(&plan_menu.least);
            (needed > available).then_some(Rejection::OutOfMemory { needed, available, rank })
        };
        let states = RankMemory::without_activations(self.costs, &plan, bare, stages);
        let (needed, rank) = states.least(&plan_menu.least);
        if one_split && needed > available {
            // The example of the rule counts activations too.
            if !found.counts.reject_more(Rejection::OUT_OF_MEMORY, all) {
                let reason = lean().unwrap_or(Rejection::OutOfMemory { needed, available, rank });
                found.counts.reject(&reason, all);
            }
            return;
        }
        let pipeline = Pipeline::new(self.costs, &light, bare, stages);
        let slow_gathered = !engines.gathered || hopeless(pipeline.least_gathered_time(self.costs), Bytes::ZERO, found);
        let slow = !engines.replicated || hopeless(pipeline.least_time(Seconds::ZERO), Bytes::ZERO, found);
        if slow && slow_gathered {
            found.counts.flow += all;
            return;
        }
        if one_split && let Some(reason) = lean() {
            found.counts.reject(&reason, all);
            return;
        }
        let menu = self.tables.menu(&plan, &plan_menu);
        let left_out = pipe.below * menu.inexpressible.0;
        if let Some(why) = &menu.inexpressible.1 {
            found.counts.reject(why, left_out);
        }
        let sharded = menu.replicated.count + menu.sharded.count;
        if sharded == 0 {
            return;
        }
        let is_slow =
            |flow: Seconds, found: &SearchState| hopeless(pipeline.least_time(flow) + menu.edges, Bytes::ZERO, found);
        let slow = slow || menu.replicated.count == 0 || is_slow(Seconds::ZERO, found);
        let cut = |found: &mut SearchState| {
            found.counts.dominated += menu.dominated * pipe.below;
            found.counts.flow += all - menu.dominated * pipe.below - left_out;
        };
        if slow && slow_gathered {
            return cut(found);
        }
        if one_split && slow_gathered && is_slow(self.known_flow(&pipeline, found).flow, found) {
            return cut(found);
        }
        let variant = Variant { light: &pipeline, plan, layers: bare, stages, menu: &menu };
        self.recomputations(&variant, pipe, shardings, layers, found);
    }

    /// Searches every recomputation of a pipeline.
    fn recomputations(
        &self,
        light: &Variant,
        pipe: &Pipe,
        shardings: u64,
        layers: &Recomputed,
        found: &mut SearchState,
    ) {
        let Variant { light: pipeline, ref plan, stages, menu, .. } = *light;
        let hopeless = |time: Seconds, found: &SearchState| {
            found.best.is_hopeless(&plan.layout, Price { time, memory: Bytes::ZERO })
        };
        let gathered = self.tables.engines(plan.layout.pp).gathered;
        let sharded = menu.replicated.count + menu.sharded.count;
        let mut enough_recomputed = false;
        for Recomputes { recompute, at, shares } in &pipe.recomputes {
            let first_layers = matches!(recompute, Recompute::FirstLayers(_));
            if first_layers && enough_recomputed {
                found.counts.dominated += menu.dominated * shares.len() as u64;
                found.counts.flow += sharded * shares.len() as u64;
                continue;
            }
            let layers = layers.at(*at);
            let plan = Plan { recompute: *recompute, ..plan.clone() };
            let light_layers = stages.last_chunk();
            let stages = self.tables.stages(&plan, pipe, layers);
            let differs = stages.last_chunk() != light_layers;
            let least = || least_time_of_flow(self.costs, &plan, layers, stages);
            if differs && !gathered && hopeless(least(), found) {
                found.counts.flow += (shardings - menu.inexpressible.0) * shares.len() as u64;
                enough_recomputed |= first_layers;
                continue;
            }
            let other = differs.then(|| self.tables.menu(&plan, &self.tables.plan_menu(&plan, stages)));
            let menu = other.as_deref().unwrap_or(menu);
            let sharded = menu.replicated.count + menu.sharded.count;
            found.counts.dominated += menu.dominated * shares.len() as u64;
            if menu.sharded.count == 0 && hopeless(least() + menu.edges, found) {
                found.counts.flow += sharded * shares.len() as u64;
                enough_recomputed |= first_layers;
                continue;
            }
            let variant = Variant { light: pipeline, plan, layers, stages, menu };
            enough_recomputed |= self.shares(&variant, shares, found) && first_layers;
        }
    }

    /// Searches every share of offloaded activations and every sharding of one recomputation. Returns whether it is too slow
    /// even without offloading.
    fn shares(&self, variant: &Variant, shares: &[f64], found: &mut SearchState) -> bool {
        let Variant { light, plan, layers, stages, menu } = variant;
        let hopeless = |time: Seconds, memory: Bytes, found: &SearchState| {
            found.best.is_hopeless(&plan.layout, Price { time, memory })
        };
        let is_slow = |pipeline: &Pipeline, flow: Seconds, found: &SearchState| {
            hopeless(pipeline.least_time(flow) + menu.edges, Bytes::ZERO, found)
        };
        let budget = Bytes::new(found.best.wanted.budget);
        let sharded = menu.replicated.count + menu.sharded.count;
        for (fewer, &activations) in shares.iter().enumerate() {
            let plan = Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
            let memory = RankMemory::new(self.costs, &plan, layers, stages);
            let (needed, rank) = memory.least(&menu.least);
            if needed > budget {
                found.counts.reject(&Rejection::OutOfMemory { needed, available: budget, rank }, sharded);
                continue;
            }
            let pipeline = light.with_layers(self.costs, &plan, layers, stages);
            let mut slow = menu.replicated.count == 0 || is_slow(&pipeline, Seconds::ZERO, found);
            let slow_gathered =
                menu.sharded.count == 0 || hopeless(pipeline.least_gathered_time(self.costs), Bytes::ZERO, found);
            // Offloading more, or recomputing one more layer, is no faster.
            let left = sharded * (shares.len() - fewer) as u64;
            if slow && slow_gathered {
                found.counts.flow += left;
                return fewer == 0;
            }
            let loaded = Loaded::with_memory(pipeline, memory);
            let known = if slow { KnownFlow::default() } else { self.known_flow(&loaded.pipeline, found) };
            slow = slow || is_slow(&loaded.pipeline, known.flow, found);
            if slow && slow_gathered {
                found.counts.flow += left;
                return fewer == 0;
            }
            let is_simulated = loaded.pipeline.is_simulated();
            let least = loaded.pipeline.least_time(known.flow) + menu.edges;
            if slow || hopeless(least, needed, found) {
                found.counts.flow += menu.replicated.count;
            } else {
                let flow = if is_simulated { Flow::Bounded(known.flow) } else { Flow::Closed };
                self.shardings(Leaf { loaded: &loaded, flow, known, too_large: None }, &menu.replicated, menu, found);
            }
            if slow_gathered || hopeless(Seconds::ZERO, needed, found) {
                found.counts.flow += menu.sharded.count;
            } else {
                let (flow, known) = (Flow::Closed, KnownFlow::default());
                self.shardings(Leaf { loaded: &loaded, flow, known, too_large: None }, &menu.sharded, menu, found);
            }
        }
        false
    }

    /// Lower bound of the time of a pipeline's flow by known critical paths; zero if it is not simulated.
    fn known_flow(&self, pipeline: &Pipeline, found: &SearchState) -> KnownFlow {
        if !pipeline.is_simulated() {
            return KnownFlow::default();
        }
        let Some(key) = self.tables.simulator_key(&pipeline.plan) else { return KnownFlow::default() };
        let stages = pipeline.stage_times(self.costs);
        let known = self.known.paths.longest(key, &stages).max(found.paths.longest(key, &stages));
        KnownFlow { flow: known.max(self.tables.least_flow(&pipeline.plan, &stages)), stages: Some((key, stages)) }
    }

    /// Evaluates the shardings of a list on a pipeline, but for those whose lower bound is too slow.
    fn shardings(&self, mut leaf: Leaf, list: &ShardingList, menu: &Menu, found: &mut SearchState) {
        let pipeline = &leaf.loaded.pipeline;
        for group in &list.groups {
            let is_slow = |floor: &Sharding, leaf: &Leaf, found: &SearchState| {
                let time = leaf.flow.time(self.costs, leaf.loaded, floor);
                found.best.is_hopeless(&pipeline.plan.layout, Price { time, memory: Bytes::ZERO })
            };
            if is_slow(&group.floor, &leaf, found) {
                found.counts.sharding += group.count;
                continue;
            }
            for own in &group.shardings {
                if is_slow(&own.floor, &leaf, found) {
                    found.counts.sharding += own.count();
                    continue;
                }
                for sharding in own.each(self.costs, &pipeline.plan, &menu.parameters) {
                    self.sharding(&mut leaf, sharding, found);
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
            found.best.offer(plan, price);
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
    menu: &'v Menu,
}

/// Shardings of one pipeline under evaluation.
struct Leaf<'l> {
    loaded: &'l Loaded<'l>,
    flow: Flow,
    known: KnownFlow,
    /// First sharding that exceeds the memory, and the number of those that do.
    too_large: Option<(Rejection, u64)>,
}
