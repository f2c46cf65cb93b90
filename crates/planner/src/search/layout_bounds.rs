//! Lower bounds of the plans of one layout, whatever their pipeline: of memory, and of the update on the host of what memory has no
//! room for.
//!
//! ```text
//! T ≥ T_flow + min over ZeRO stages of T_host(o),   o = the least share of the optimizer on the host with which the states fit
//! ```
//!
//! Where model states fill the memory, this is a large part of every step, and without it most pipelines would seem as fast as the
//! answer.

use super::bounded::{BoundOrder, LeastEnds};
use super::on_host::shares_on_host;
use super::pipelines::Pipelines;
use meshwright_engine::cost::incremental::{
    Price, least_host_update_of_layers, least_memory_of_layers, least_parameters,
};
use meshwright_engine::plan::{Layout, Offload, Plan, ZeroStage};
use meshwright_engine::stack::Dispatcher;
use meshwright_engine::units::{Bytes, Seconds};

/// Settings of a shape that determine its bounds over all layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LayoutBoundsKey {
    layout: Layout,
    dispatcher: Dispatcher,
    /// Micro-batch where GPUs may stay idle: it limits the number of replicas that the batch allows.
    micro_batch: Option<u32>,
}

impl Pipelines<'_> {
    /// Settings of a shape that determine its bounds over all layouts.
    pub fn layout_bounds_key(&self, shape: &Plan) -> LayoutBoundsKey {
        let micro_batch = self.space.allows_idle().then_some(shape.micro_batch);
        LayoutBoundsKey { layout: shape.layout, dispatcher: shape.dispatcher, micro_batch }
    }

    /// Lower bound of a shape's plans, over all layouts and shardings: of their memory, or of the time at the ends of a step.
    pub fn beside_layers(&self, shape: &Plan, order: BoundOrder) -> Price {
        match order {
            BoundOrder::Memory => Price { time: Seconds::ZERO, memory: self.least_memory(shape) },
            BoundOrder::Time => Price { time: self.least_ends_of(shape), memory: Bytes::ZERO },
        }
    }

    /// Lower bound of the memory of a shape's plans, over all layouts and shardings.
    fn least_memory(&self, shape: &Plan) -> Bytes {
        let of_layout = |layout: Layout| self.least_memory_of(&Plan { layout, ..shape.clone() });
        self.space.layouts(shape).into_iter().map(of_layout).reduce(Bytes::min).unwrap_or_default()
    }

    /// Whether plans may fit only with a share of the optimizer on the host, which takes time at the ends of a step.
    pub fn has_ends(&self) -> bool {
        self.is_tight && self.space.most_optimizer_on_host() > 0.0
    }

    /// Lower bound of the time at the ends of a step of a shape's plans, over all layouts and shardings.
    fn least_ends_of(&self, shape: &Plan) -> Seconds {
        let of_layout = |layout: Layout| {
            let (engines, ends) = (self.tables.engines(layout.pp), self.least_ends(&Plan { layout, ..shape.clone() }));
            let replicated = engines.replicated.then_some(ends.replicated);
            replicated.into_iter().chain(engines.gathered.then_some(ends.gathered)).reduce(Seconds::min)
        };
        self.space.layouts(shape).into_iter().filter_map(of_layout).reduce(Seconds::min).unwrap_or_default()
    }

    /// Lower bounds of the time at the ends of a step of the plans of a layout: with the least share of its optimizer
    /// on the host with which the states of its layers fit; zero where they never do.
    pub fn least_ends(&self, plan: &Plan) -> LeastEnds {
        if !self.has_ends() {
            return LeastEnds::default();
        }
        let parameters = least_parameters(self.costs, plan);
        let of_stage = |zero: ZeroStage| {
            let with_share =
                |optimizer: f64| Plan { zero, offload: Offload { optimizer, ..plan.offload }, ..plan.clone() };
            let fits =
                |share: &f64| least_memory_of_layers(self.costs, &with_share(*share), &parameters) <= self.hbm_budget;
            let shares = shares_on_host(self.space, &with_share(0.0), &parameters);
            let least = shares.iter().copied().filter(fits).reduce(f64::min);
            least.map(|share| least_host_update_of_layers(self.costs, &with_share(share), &parameters))
        };
        let stages = self.space.zero_stages(plan.layout.pp);
        let (gathered, replicated): (Vec<_>, Vec<_>) = stages.into_iter().partition(|zero| *zero == ZeroStage::Three);
        let least =
            |stages: Vec<ZeroStage>| stages.into_iter().filter_map(of_stage).reduce(Seconds::min).unwrap_or_default();
        LeastEnds { replicated: least(replicated), gathered: least(gathered) }
    }

    /// Lower bound of the memory of the plans of a layout, over all shardings.
    pub fn least_memory_of(&self, plan: &Plan) -> Bytes {
        let parameters = least_parameters(self.costs, plan);
        let of_stage = |zero: ZeroStage| {
            let plan = Plan { zero, ..plan.clone() };
            let shares = shares_on_host(self.space, &plan, &parameters);
            let offload = Offload { optimizer: shares.iter().copied().reduce(f64::max)?, ..plan.offload };
            Some(least_memory_of_layers(self.costs, &Plan { offload, ..plan }, &parameters))
        };
        self.space.zero_stages(plan.layout.pp).into_iter().filter_map(of_stage).reduce(Bytes::min).unwrap_or_default()
    }
}
