//! Depth-first search below one shape: pipelines, recomputation, down to shardings. Excluded plans are counted, never evaluated.

use std::slice;

use super::bounded::BoundedPipeline;
use super::explorer::Explorer;
use super::first_layers::RecomputedSplits;
use super::flow::{Flow, KnownFlow};
use super::frontier::Ready;
use super::group_bounds::GroupBounds;
use super::incumbents::SpacePosition;
use super::leaves::Leaf;
use super::menus::{Menu, ShardingList};
use super::on_host::Fit;
use super::opened::OpenPipeline;
use super::pipelines::SplitFloor;
use super::recomputed::Recomputed;
use super::state::SearchState;
use super::tables::{Recomputes, SearchShape};
use super::verdict::Verdict;
use crate::space::Rejection;
use meshwright_engine::cost::incremental::{
    Layers, Loaded, Pipeline, Price, Stages, UnsharedMemory, least_flow_of_passes, least_time_of_flow,
};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::schedule::RankBytes;
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::units::{Bytes, Seconds};

/// Recomputations of a pipeline up to which each is bounded alone: a setting of speed, swept in
/// `benches/runs/2026-11-26-2-cores.txt`.
const FEW: usize = 8;

impl Explorer<'_> {
    /// Searches every plan of a shape, but for the pipelines that are known not to fit.
    pub fn explore(&self, shape: &SearchShape, ready: &Ready) -> SearchState {
        let mut found = SearchState::new(self.known.best.clone());
        let layers = Recomputed::new(self.costs, self.tables, shape);
        for bounded in &self.open_pipelines(shape, &layers, ready, &mut found) {
            let has_example = |found: &SearchState| found.counts.has_rejected(Rejection::OUT_OF_MEMORY);
            let most = (has_example(self.known) || has_example(&found)).then_some(self.pipelines.hbm_budget);
            if bounded.is_hopeless(&found.best) || self.pipelines.is_dominated(bounded, &layers, most, &found.best) {
                found.counts.flow += bounded.plans();
                continue;
            }
            if self.stop.asks() {
                return found;
            }
            self.search_pipeline(bounded, &layers, &mut found);
        }
        found
    }

    /// Searches the plans of a shape on one layout, schedule and split; counts those that a bound excludes.
    fn search_pipeline(&self, bounded: &BoundedPipeline, layers: &Recomputed, found: &mut SearchState) {
        let timed = found.best.objective().map(|_| self.timed_pipeline(bounded, layers, found));
        if timed.as_ref().is_some_and(Option::is_none) {
            found.counts.flow += bounded.plans();
            return;
        }
        let splits = self.pipelines.splits(bounded, layers);
        if let Some(states) = self.pipelines.too_large_states(bounded, layers, &splits) {
            self.pipelines.reject_states(bounded, layers, splits, states, &mut found.counts);
            return;
        }
        let floors = self.pipelines.floors(bounded, layers, splits);
        if let Some(reason) = self.pipelines.too_large(&floors) {
            found.counts.reject(&reason, bounded.plans());
            return;
        }
        match self.open_pipeline(bounded, layers, timed.flatten(), &floors, found) {
            Some(open) => self.search_recomputations(&open, layers, found),
            None => found.counts.flow += bounded.plans(),
        }
    }

    /// Searches every recomputation of a pipeline.
    fn search_recomputations(&self, open: &OpenPipeline, all_layers: &Recomputed, found: &mut SearchState) {
        let OpenPipeline { bounded, ref pipeline, floors, flow, gathered } = *open;
        let BoundedPipeline { ref plan, entry, shardings, stages, .. } = *bounded;
        let position = SpacePosition { shape: self.rank, pipeline: bounded.number };
        let (slow_gathered, mut enough_recomputed) = (gathered.is_none(), false);
        let splits = RecomputedSplits { bounded, floors, layers: all_layers };
        let (mut fewest, mut hopeless) = (None, None);
        let is_grouped = entry.recomputes.len() > FEW && floors.len() == 1 && floors[0].unshared.is_of(stages);
        let mut groups = is_grouped.then(|| GroupBounds::new(all_layers.groups(), self.pipelines, open, &floors[0]));
        let recomputed = |choice: &Recomputes| {
            let stages = self.tables.stages(plan, entry, choice.recompute, all_layers.head(choice.at));
            let floor = floors.iter().find(|floor| floor.last_chunk == stages.last_chunk()).unwrap_or(&floors[0]);
            (stages, all_layers.at(choice.at), floor)
        };
        // Lower bound of the step time under ZeRO 0 to 2, but for the ends, of a plan with these layers.
        let least_of = |plan: &Plan, layers: &Layers, own: &Stages| {
            if own.last_chunk() == stages.last_chunk() {
                pipeline.least_time(flow.max(least_flow_of_passes(self.costs, plan, layers, own)))
            } else {
                least_time_of_flow(self.costs, plan, layers, own, &bounded.around)
            }
        };
        // Lower bounds of the step time under ZeRO 0 to 2, but for the ends, and of any.
        let times = |choice: &Recomputes| {
            let (own, layers, floor) = recomputed(choice);
            let least = least_of(plan, layers, own);
            let with_ends = || least + floor.ends(&self.pipelines, plan);
            (least, gathered.map_or_else(with_ends, |gathered| gathered.step.min(least)))
        };
        for (place_in_list, choice) in entry.recomputes.iter().enumerate() {
            let Recomputes { recompute, at, shares } = choice;
            let below = shardings * shares.len() as u64;
            let first_layers = matches!(recompute, Recompute::FirstLayers(_));
            if first_layers && enough_recomputed {
                found.counts.flow += below;
                continue;
            }
            if first_layers && fewest.is_some_and(|fewest| *recompute < fewest) {
                found.counts.reject_more(Rejection::OUT_OF_MEMORY, below);
                continue;
            }
            let bound_flow = |times| self.flow_bound(&pipeline.plan, times, found).flow;
            let verdict = groups.as_mut().map_or(Verdict::Open, |groups| groups.verdict(*at, &found.best, bound_flow));
            if verdict.excludes(below, &mut found.counts) {
                continue;
            }
            let (stages, layers, floor) = recomputed(choice);
            if let Some(reason) = self.pipelines.too_large(slice::from_ref(floor)) {
                found.counts.reject(&reason, below);
                continue;
            }
            let (least, soonest) = times(choice);
            let memory = groups.as_ref().map_or(Bytes::ZERO, |groups| groups.needed(*at));
            if slow_gathered && found.best.is_hopeless(&plan.layout, Price { time: soonest, memory }) {
                found.counts.flow += below;
                enough_recomputed |= first_layers;
                continue;
            }
            if first_layers && fewest.is_none() {
                let (first, reason) = self.fewest_first_layers(splits, place_in_list);
                fewest = Some(first);
                if let Some(reason) = reason {
                    found.counts.reject(&reason, below);
                    continue;
                }
            }
            if first_layers && found.best.objective().is_none() {
                let find = || self.hopeless_first_layers(splits, place_in_list, |choice| times(choice).1, &found.best);
                if hopeless.get_or_insert_with(find).contains(recompute) {
                    found.counts.flow += below;
                    continue;
                }
            }
            let of_stages =
                if floor.unshared.is_of(stages) { None } else { Some(UnsharedMemory::new(self.costs, plan, stages)) };
            let memory = of_stages.as_ref().unwrap_or(&floor.unshared);
            let plan = Plan { recompute: *recompute, ..plan.clone() };
            let gathered = gathered.map(|gathered| gathered.step);
            let variant = Variant {
                light: pipeline,
                plan,
                layers,
                stages,
                memory,
                floor,
                least,
                least_of: &|plan| least_of(plan, layers, stages),
                soonest,
                gathered,
                shardings,
                position,
            };
            enough_recomputed |= self.search_offloads(&variant, shares, found) && first_layers;
        }
    }

    /// Searches every share of offloaded activations and every sharding of one recomputation. Returns whether it is too slow
    /// even without offloading.
    fn search_offloads(&self, variant: &Variant, shares: &[f64], found: &mut SearchState) -> bool {
        let Variant {
            light,
            plan,
            layers,
            stages,
            memory: all,
            floor,
            least,
            least_of,
            soonest,
            gathered,
            shardings,
            ..
        } = variant;
        let menu = floor.known_menu();
        let engines = self.tables.engines(plan.layout.pp);
        let hbm_budget = found.best.wanted.hbm_budget;
        let offloading = |activations: f64| Plan { offload: Offload { activations, ..plan.offload }, ..plan.clone() };
        // Offloading more, or recomputing one more layer, is no faster.
        let is_slow = |&share: &f64| {
            found.is_hopeless(&plan.layout, least_of(&offloading(share)) + floor.ends(&self.pipelines, plan))
        };
        let is_open = |share: &&f64| **share <= 0.0 || gathered.is_some() || !is_slow(share);
        let open = shares.iter().take_while(is_open).count();
        found.counts.flow += shardings * (shares.len() - open) as u64;
        let shares = &shares[..open];
        for (fewer, &activations) in shares.iter().enumerate() {
            let plan = offloading(activations);
            let memory = all.with_layers(self.costs, &plan, layers);
            let RankBytes { rank, bytes: needed } = memory.lower_bound(&floor.plan_menu.least);
            if needed > hbm_budget {
                found.counts.reject(&Rejection::OutOfMemory { needed, available: hbm_budget, rank }, *shardings);
                continue;
            }
            if found.best.is_hopeless(&plan.layout, Price { time: *soonest, memory: needed }) {
                found.counts.flow += shardings;
                continue;
            }
            let fit = Fit { beside: &memory, hbm_budget };
            let fits = |menu: &Menu| menu.any_gathered_fits(self.costs, &plan, &fit, &|_| false);
            let none_fits = menu.is_some_and(|menu| !fits(menu));
            let slow_gathered = gathered.is_none() || none_fits;
            if let Some(menu) = menu.filter(|_| slow_gathered) {
                let too_slow = found.best.too_slow(&plan.layout);
                let is_slow = |edges: Seconds| too_slow(*least + edges);
                if menu.verdict(self.costs, &plan, &fit, is_slow).excludes(*shardings, &mut found.counts) {
                    continue;
                }
            }
            let pipeline = light.with_layers(self.costs, &plan, layers, stages);
            let slow = !engines.replicated || found.is_hopeless(&plan.layout, pipeline.least_time(Seconds::ZERO));
            let least_gathered = gathered.filter(|_| slow).map(|_| pipeline.least_gathered_time(self.costs));
            let is_late =
                |ends: Seconds| least_gathered.is_none_or(|least| found.is_hopeless(&plan.layout, least + ends));
            if slow && is_late(Seconds::ZERO) {
                // Offloading more, or recomputing one more layer, is no faster.
                found.counts.flow += shardings * (shares.len() - fewer) as u64;
                return fewer == 0;
            }
            // What makes them fit may take too long, which says nothing of plans that keep less.
            let edges = || menu.and_then(|menu| menu.edges_within(&menu.sharded, self.costs, &plan, &fit));
            if slow && (none_fits || is_late(edges().unwrap_or_default())) {
                found.counts.flow += shardings;
                continue;
            }
            // Offloading more is no faster but for longer windows, at the most those of the largest share.
            let ends = || self.tables.least_ends(&plan, &floor.plan_menu).time;
            let is_slow_within =
                |other: &Pipeline| found.is_hopeless(&plan.layout, pipeline.least_time_within(other) + ends());
            if slow_gathered && found.best.objective().is_some() && is_slow_within(&pipeline) {
                let most = || {
                    let offload = Offload { activations: shares[shares.len() - 1], ..plan.offload };
                    light.with_layers(self.costs, &Plan { offload, ..plan.clone() }, layers, stages)
                };
                if gathered.is_none() && fewer + 1 < shares.len() && is_slow_within(&most()) {
                    found.counts.flow += shardings * (shares.len() - fewer) as u64;
                    return false;
                }
                found.counts.flow += shardings;
                continue;
            }
            if let Some(why) = self.space.inexpressible_shape(&pipeline.plan) {
                found.counts.reject(&why, shardings * (shares.len() - fewer) as u64);
                return false;
            }
            let is_open = self.search_shardings(variant, slow_gathered, &Loaded::with_memory(pipeline, memory), found);
            if !is_open && !none_fits {
                found.counts.flow += shardings * (shares.len() - fewer - 1) as u64;
                return fewer == 0;
            }
        }
        open == 0
    }

    /// Searches every sharding of a pipeline under one recomputation and offload. Returns whether some of them may be fast
    /// enough; `slow_gathered` = none under ZeRO 3 is.
    ///
    /// The menu is usually made only here, since few pipelines are small and fast enough.
    fn search_shardings(
        &self,
        variant: &Variant,
        slow_gathered: bool,
        loaded: &Loaded,
        found: &mut SearchState,
    ) -> bool {
        let pipeline = &loaded.pipeline;
        let plan = &pipeline.plan;
        let engines = self.tables.engines(plan.layout.pp);
        let is_slow = |flow: Seconds, edges: Seconds, found: &SearchState| {
            found.is_hopeless(&plan.layout, pipeline.least_time(flow) + edges)
        };
        let least_gathered = (engines.gathered && !slow_gathered).then(|| pipeline.least_gathered_time(self.costs));
        let slow_gathered = least_gathered.is_none_or(|least| found.is_hopeless(&plan.layout, least));
        let mut bounded_flow = None;
        if variant.floor.known_menu().is_none() {
            let ends = self.tables.least_ends(plan, &variant.floor.plan_menu).time;
            if engines.replicated && !is_slow(Seconds::ZERO, ends, found) {
                bounded_flow = Some(self.known_flow(pipeline, found));
            }
            let slow = bounded_flow.as_ref().is_none_or(|known| is_slow(known.flow, ends, found));
            if slow && slow_gathered {
                found.counts.flow += variant.shardings;
                return false;
            }
        }
        let menu = variant.floor.menu(&self.pipelines, plan);
        found.counts.dominated += menu.dominated;
        for (count, why) in menu.refused.reasons() {
            found.counts.reject(why, count);
        }
        let sharded = menu.replicated.count + menu.sharded.count;
        let hbm_budget = found.best.wanted.hbm_budget;
        let RankBytes { rank, bytes: needed } = loaded.memory.lower_bound(&menu.least);
        if needed > hbm_budget {
            found.counts.reject(&Rejection::OutOfMemory { needed, available: hbm_budget, rank }, sharded);
            return true;
        }
        let slow_gathered = slow_gathered || menu.sharded.count == 0;
        let of_replicated = menu.replicated.edges;
        let mut slow = menu.replicated.count == 0 || is_slow(Seconds::ZERO, of_replicated, found);
        // What makes them fit may take too long, which says nothing of plans that keep less.
        let fit = Fit { beside: &loaded.memory, hbm_budget };
        let within = |list: &ShardingList| menu.edges_within(list, self.costs, plan, &fit);
        let edges = if slow { None } else { within(&menu.replicated) };
        let late = edges.is_some_and(|edges| is_slow(Seconds::ZERO, edges, found));
        let none_fits = !slow && edges.is_none() && found.counts.has_rejected(Rejection::OUT_OF_MEMORY);
        let bounded_flow = || bounded_flow.unwrap_or_else(|| self.known_flow(pipeline, found));
        let known = if slow || late || none_fits { KnownFlow::default() } else { bounded_flow() };
        slow = slow || is_slow(known.flow, of_replicated, found);
        if slow && slow_gathered {
            found.counts.flow += sharded;
            return false;
        }
        let hopeless =
            |time: Seconds, found: &SearchState| found.best.is_hopeless(&plan.layout, Price { time, memory: needed });
        let position = variant.position;
        let least = pipeline.least_time(known.flow) + edges.unwrap_or(of_replicated);
        if none_fits {
            found.counts.reject_more(Rejection::OUT_OF_MEMORY, menu.replicated.count);
        } else if slow || late || hopeless(least, found) {
            found.counts.flow += menu.replicated.count;
        } else {
            let flow = if pipeline.is_simulated() { Flow::Bounded(known.flow) } else { Flow::Closed };
            let leaf = Leaf { loaded, needed, flow, known, too_large: None, position };
            self.evaluate_list(leaf, &menu.replicated, menu, found);
        }
        let gathered = |least: Seconds| least + within(&menu.sharded).unwrap_or_default();
        if slow_gathered || least_gathered.is_none_or(|least| hopeless(gathered(least), found)) {
            found.counts.flow += menu.sharded.count;
        } else {
            let (flow, known) = (Flow::Closed, KnownFlow::default());
            let leaf = Leaf { loaded, needed, flow, known, too_large: None, position };
            self.evaluate_list(leaf, &menu.sharded, menu, found);
        }
        true
    }

    /// Lower bound of the time of a pipeline's flow by known critical paths; zero if it is not simulated.
    pub(super) fn known_flow(&self, pipeline: &Pipeline, found: &SearchState) -> KnownFlow {
        if !pipeline.is_simulated() {
            return KnownFlow::default();
        }
        self.flow_bound(&pipeline.plan, pipeline.stage_times(self.costs), found)
    }

    /// Lower bound of the time of a flow by known critical paths, where its stages take these times; zero where it has
    /// no simulator.
    fn flow_bound(&self, plan: &Plan, stages: Vec<StageTime>, found: &SearchState) -> KnownFlow {
        let Some(key) = self.tables.simulator_key(plan) else { return KnownFlow::default() };
        let known = self.known.paths.longest(key, &stages).max(found.paths.longest(key, &stages));
        KnownFlow { flow: known.max(self.tables.least_flow(plan, &stages)), stages: Some((key, stages)) }
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
    /// Lower bound of its step time under ZeRO 0 to 2, but for the ends.
    least: Seconds,
    /// Lower bound as `least`, of the plan with a share of its activations on the host.
    least_of: &'v dyn Fn(&Plan) -> Seconds,
    /// Lower bound of its step time.
    soonest: Seconds,
    /// Lower bound of its step time under ZeRO 3; none where every sharding is too slow or too large.
    gathered: Option<Seconds>,
    /// Number of shardings of its layout.
    shardings: u64,
    position: SpacePosition,
}
