//! Lower bounds of one pipeline over all its recomputations.

use super::bounded::BoundedPipeline;
use super::explorer::Explorer;
use super::pipelines::SplitFloor;
use super::recomputed::Recomputed;
use super::state::SearchState;
use meshwright_engine::cost::incremental::{LeastExchange, Pipeline, Price};
use meshwright_engine::plan::Plan;
use meshwright_engine::units::{Bytes, Seconds};

/// Number of recomputations and offloads below a pipeline from which on its menu is made before they are bounded: making a
/// menu takes about as long as bounding this many. It affects speed only; swept in `benches/runs/2026-11-26-2-cores.txt`.
const MENU_COST: u64 = 8;

/// Pipeline that is not too slow for the answer.
pub(super) struct TimedPipeline<'p> {
    /// Its flow with the lightest recomputation.
    pipeline: Pipeline<'p>,
    /// Lower bound of its step under ZeRO 3 but for the ends; none where no sharding has it.
    gathered: Option<Seconds>,
}

/// Pipeline that may enter the answer.
pub(super) struct OpenPipeline<'p> {
    pub bounded: &'p BoundedPipeline<'p>,
    /// Its flow with the lightest recomputation.
    pub pipeline: Pipeline<'p>,
    pub floors: &'p [SplitFloor<'p>],
    /// Lower bound of its flow under ZeRO 0 to 2.
    pub flow: Seconds,
    /// Lower bounds under ZeRO 3; none where every sharding is too slow or too large.
    pub gathered: Option<GatheredBound>,
}

/// Lower bounds of the plans of a pipeline under ZeRO 3.
#[derive(Clone, Copy)]
pub(super) struct GatheredBound {
    /// Time of the step.
    pub step: Seconds,
    /// Time at the ends of the step, a part of it.
    pub ends: Seconds,
}

impl Explorer<'_> {
    /// The flow of a pipeline with its lightest recomputation; `None` if none of its plans can enter the answer,
    /// even if they fit. This is tested first, for splits and menus take as long to compute as the flow.
    pub(super) fn timed_pipeline<'p>(
        &self,
        bounded: &'p BoundedPipeline<'p>,
        layers: &'p Recomputed<'p>,
        found: &SearchState,
    ) -> Option<TimedPipeline<'p>> {
        let BoundedPipeline { ref plan, lightest, at, stages, ends, ref around, memory, .. } = *bounded;
        let engines = self.tables.engines(plan.layout.pp);
        let light = Plan { recompute: lightest, ..plan.clone() };
        let pipeline = Pipeline::new(self.costs, &light, layers.at(at), stages).exchanging(self.costs, around.exchange);
        let gathered = engines.gathered.then(|| pipeline.least_gathered_time(self.costs));
        let timed = TimedPipeline { pipeline, gathered };
        let hopeless = |time: Seconds| found.best.is_hopeless(&plan.layout, Price { time, memory });
        let slow_gathered = gathered.is_none_or(|least| hopeless(least + ends.gathered));
        let slow = !engines.replicated || hopeless(timed.pipeline.least_time(Seconds::ZERO) + ends.replicated);
        (!slow || !slow_gathered).then_some(timed)
    }

    /// The pipeline with lower bounds of the time of its plans; `None` if none of them can enter the answer.
    pub(super) fn open_pipeline<'p>(
        &self,
        bounded: &'p BoundedPipeline<'p>,
        layers: &'p Recomputed<'p>,
        timed: Option<TimedPipeline<'p>>,
        floors: &'p [SplitFloor<'p>],
        found: &SearchState,
    ) -> Option<OpenPipeline<'p>> {
        let BoundedPipeline { ref plan, entry, stages, ends: at_ends, .. } = *bounded;
        let engines = self.tables.engines(plan.layout.pp);
        let needed = floors.iter().map(|floor| floor.needed.bytes).reduce(Bytes::min).unwrap_or_default();
        let hopeless = |time: Seconds| found.best.is_hopeless(&plan.layout, Price { time, memory: needed });
        if hopeless(bounded.bound) {
            return None;
        }
        let timed = timed.or_else(|| self.timed_pipeline(bounded, layers, found))?;
        let TimedPipeline { pipeline, gathered: bare_gathered } = timed;
        let (is_ranked, one_split) = (found.best.objective().is_some(), floors.len() == 1);
        let of_split = |floor: &SplitFloor| floor.exchange(&self.pipelines, plan);
        let exchange = floors.iter().filter(|_| is_ranked).map(of_split).reduce(LeastExchange::lesser);
        let pipeline = pipeline.exchanging(self.costs, exchange.unwrap_or_default());
        let gathered = bare_gathered.map(|least| least + at_ends.gathered);
        let slow_gathered = gathered.is_none_or(hopeless);
        let replicated = pipeline.least_time(Seconds::ZERO) + at_ends.replicated;
        let slow = !engines.replicated || hopeless(replicated);
        if slow && slow_gathered {
            return None;
        }
        let is_menu_early = is_ranked && one_split && entry.below > MENU_COST;
        let edges = || floors[0].gathered_edges(&self.pipelines, plan).unwrap_or_default();
        let gathered_ends = at_ends.gathered.max(if is_menu_early && !slow_gathered { edges() } else { Seconds::ZERO });
        let gathered = bare_gathered.map(|least| least + gathered_ends);
        let slow_gathered = slow_gathered
            || gathered.is_none_or(hopeless)
            || is_menu_early && {
                let too_slow = found.best.too_slow(&plan.layout);
                !floors[0].any_gathered_fits(&self.pipelines, plan, &pipeline, too_slow)
            };
        if slow && slow_gathered {
            return None;
        }
        // Where only whole weights on each replica are fast enough, plans are bounded by what makes them fit.
        let ends = |split: &SplitFloor| {
            if slow_gathered { split.ends(&self.pipelines, plan) } else { Seconds::ZERO }
        };
        let is_one = one_split && floors[0].unshared.is_of(stages) && slow_gathered;
        if is_one && hopeless(pipeline.least_time(Seconds::ZERO) + ends(&floors[0])) {
            return None;
        }
        // Critical paths bound the flow once for all recomputations.
        let flow = if is_one { self.known_flow(&pipeline, found).flow } else { Seconds::ZERO };
        let is_slow = |ends: Seconds| is_one && hopeless(pipeline.least_time(flow) + ends);
        let edges = || floors[0].edges(&self.pipelines, plan).unwrap_or_default();
        if is_slow(ends(&floors[0])) || is_ranked && entry.below > MENU_COST && is_one && is_slow(edges()) {
            return None;
        }
        let gathered = gathered.filter(|_| !slow_gathered).map(|step| GatheredBound { step, ends: gathered_ends });
        Some(OpenPipeline { bounded, pipeline, floors, flow, gathered })
    }
}
