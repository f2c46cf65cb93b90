//! Layouts of a shape and the pipelines of each, with lower bounds of their step time.

use std::rc::Rc;

use super::bounded::{BoundKey, BoundedLayout, BoundedPipeline, LeastEnds, PipelineBound};
use super::certificate::Counts;
use super::incumbents::Incumbents;
use super::menus::ReplicatedEnds;
use super::pipelines::Pipelines;
use super::recomputed::Recomputed;
use super::tables::{PipelineEntry, SearchShape};
use crate::space::legal;
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::incremental::{
    AroundFlow, Layers, LeastTime, Pipeline, Price, fullest_rank_bound, layer_bound,
};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::units::{Bytes, Seconds};

/// Pipelines of one layout and schedule with their lightest recomputation, which differ in the split of the layers alone.
struct OfSchedule<'s> {
    layout: &'s BoundedLayout,
    /// Lower bounds of the time at the ends of a step.
    ends: LeastEnds,
    /// Sends, stragglers and exchange around the flow.
    around: &'s Rc<AroundFlow>,
    /// Their plan, but for the split.
    plan: &'s Plan,
    /// Their lightest recomputation.
    lightest: Recompute,
    /// Index of that in the table.
    at: usize,
    /// Layers under that.
    layers: &'s Layers,
    /// Cost of the head under that, in layers.
    head: f64,
    /// Lower bound of the time of each under ZeRO 0 to 2, but for the ends.
    time: LeastTime<'s>,
}

impl<'e> Pipelines<'e> {
    /// Legal layouts of a shape by ascending layer bound; those of equal bound in the order of the space. Illegal ones
    /// are counted, and those left out that are too slow however few GPUs wait for stragglers. `most` = a limit of the
    /// memory, by which layouts may be left out.
    pub fn layouts(
        &self,
        shape: &SearchShape,
        most: Option<Bytes>,
        best: &Incumbents,
        counts: &mut Counts,
    ) -> Vec<BoundedLayout> {
        let SearchShape { plan: ref shape, parts } = *shape;
        let may_gather = self.tables.engines(2).gathered;
        let on_one = layer_bound(self.costs, shape, parts, &(1..=1), may_gather);
        let (mut all, mut next) = (Vec::new(), 0);
        for layout in self.space.layouts(shape) {
            let (gpus, number) = (layout.world_size(), next);
            let table = self.tables.pipelines(&Plan { layout, ..shape.clone() });
            next += table.entries.len() as u32;
            if best.too_slow(&layout)(on_one / f64::from(gpus)) {
                continue;
            }
            let plan = Plan { layout, recompute: Recompute::None, offload: Offload::NONE, ..shape.clone() };
            let shardings = self.tables.shardings(&layout);
            if shardings == 0 {
                continue;
            }
            let mut reasons = Vec::new();
            legal::batch(self.costs.problem, &plan, &mut reasons);
            legal::experts(self.costs.problem, &plan, &mut reasons);
            if let Some(reason) = reasons.first() {
                counts.reject(reason, table.below * shardings);
                continue;
            }
            let may_gather = layout.pp > 1 && self.tables.engines(layout.pp).gathered;
            let of_all = layer_bound(self.costs, &plan, parts, &(gpus..=gpus), may_gather);
            let flow = of_all.max(fullest_rank_bound(self.costs, &plan, parts, table.copies));
            // Without an objective, most layouts are left out by their memory.
            let is_ranked = best.objective().is_some();
            let ends = if is_ranked { self.tables.least_ends_of_layout(&plan) } else { ReplicatedEnds::default() };
            let time = if self.tables.engines(layout.pp).gathered { flow } else { flow + ends.time };
            let memory = most.map_or(Bytes::ZERO, |_| self.least_memory_of(&plan));
            all.push(BoundedLayout { plan, shardings, bound: Price { time, memory }, ends, number });
        }
        sort_by_numbers(&mut all, |layout| [layout.bound.time.get()]);
        all
    }

    /// Legal pipelines of a layout that are open by their bound. Illegal ones are counted; if the states of the layout exceed `most`,
    /// all are left out, and the number of their plans returned.
    pub fn of_layout(
        &self,
        layout: &BoundedLayout,
        layers: &Recomputed,
        most: Option<Bytes>,
        counts: &mut Counts,
        mut is_open: impl FnMut(&PipelineBound) -> bool,
    ) -> (Vec<BoundedPipeline<'e>>, u64) {
        let BoundedLayout { ref plan, shardings, bound, .. } = *layout;
        let too_large = most.is_some_and(|most| bound.memory > most);
        let table = self.tables.pipelines(plan);
        let legal = table.legal(self.costs.problem, plan);
        for (reason, below) in &legal.rejected {
            counts.reject(reason, below * shardings);
        }
        let entry = |at: &u32| &table.entries[*at as usize];
        if too_large {
            return (Vec::new(), legal.indices.iter().map(|at| entry(at).below * shardings).sum());
        }
        let on_host = self.least_ends(plan);
        let ends = LeastEnds { replicated: on_host.replicated.max(layout.ends.time), ..on_host };
        let around = Rc::new(AroundFlow::new(self.costs, plan).exchanging(layout.ends.exchange));
        let mut open = Vec::new();
        for indices in legal.indices.chunk_by(|a, b| entry(a).plan.schedule == entry(b).plan.schedule) {
            let first = entry(&indices[0]);
            // A step is shortest without recomputation; with a single recomputation on the list, that one gives the bound.
            let (lightest, at) =
                if let [only] = &first.recomputes[..] { (only.recompute, only.at) } else { (Recompute::None, 0) };
            let plan = &Plan { schedule: first.plan.schedule, ..plan.clone() };
            let (head, layers) = (layers.head(at), layers.at(at));
            let time = LeastTime::new(self.costs, plan, layers, &around);
            let of_schedule = OfSchedule { layout, ends, around: &around, plan, lightest, at, layers, head, time };
            open.extend(indices.iter().filter_map(|at| {
                let number = layout.number + at;
                self.bounded(&of_schedule, entry(at), number, &mut is_open)
            }));
        }
        (open, 0)
    }

    /// Bounds one pipeline of a layout and schedule, where it is open; `number` counts the pipelines of the shape.
    fn bounded(
        &self,
        of: &OfSchedule,
        entry: &'e PipelineEntry,
        number: u32,
        is_open: &mut impl FnMut(&PipelineBound) -> bool,
    ) -> Option<BoundedPipeline<'e>> {
        let OfSchedule { layout, ends, around, plan, lightest, at, layers, head, ref time } = *of;
        let stages = self.tables.stages(plan, entry, lightest, head);
        let bound = time.of(stages);
        let engines = self.tables.engines(plan.layout.pp);
        let bound = if engines.gathered || plan.schedule.is_bidirectional() {
            let light = Plan { split: entry.plan.split.clone(), recompute: lightest, ..plan.clone() };
            let pipeline = Pipeline::new(self.costs, &light, layers, stages);
            let gathered = engines.gathered.then(|| pipeline.least_gathered_time(self.costs) + ends.gathered);
            let replicated =
                engines.replicated.then(|| pipeline.least_time(Seconds::ZERO).max(bound) + ends.replicated);
            [gathered, replicated].into_iter().flatten().reduce(Seconds::min).unwrap_or_default()
        } else {
            bound + ends.replicated
        };
        let (bound, memory) = (bound.max(layout.bound.time), layout.bound.memory);
        let shardings = layout.shardings;
        let price = Price { time: bound, memory };
        let plans = entry.below * shardings;
        if !is_open(&PipelineBound { price, plans, key: BoundKey::new(bound, number) }) {
            return None;
        }
        let (plan, around) = (Plan { split: entry.plan.split.clone(), ..plan.clone() }, Rc::clone(around));
        Some(BoundedPipeline { plan, lightest, at, entry, shardings, stages, ends, around, bound, memory, number })
    }
}
