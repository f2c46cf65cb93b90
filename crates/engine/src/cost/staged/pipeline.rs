//! A block on a pipeline: its flow, its activations, and the price with a sharding.

use std::cell::OnceCell;

use super::block::{Layers, ROUNDING};
use super::least::least_flow;
use super::sharding::{Engine, Sharding};
use super::stages::{Class, Hold, Stages};
use crate::cost::footprint::Footprint;
use crate::cost::fsdp::Around;
use crate::cost::memory::Holding;
use crate::cost::pipeline::Flow;
use crate::cost::stage::{self, Work};
use crate::cost::{Costs, ShapeCost};
use crate::plan::{Offload, Plan, RankOrder, Recompute, ZeroStage};
use crate::units::{Bytes, Seconds};

/// Step time and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Of one step.
    pub time: Seconds,
    /// Of the fullest rank, as the device shows it.
    pub memory: Bytes,
}

/// Layers on a pipeline: the way of a step's micro-batches through it.
#[derive(Clone, Debug)]
pub struct Pipeline<'l> {
    /// The plan, but for its sharding.
    pub plan: Plan,
    /// Its layers.
    pub layers: &'l Layers,
    flow: Flow,
    /// What any way to play the schedule takes beyond the closed form's busy time, at the least; `None` where the closed form is
    /// all there is.
    least_bubble: Option<Seconds>,
    activations_exposed: Seconds,
}

impl<'l> Pipeline<'l> {
    /// Prices the flow of a plan's micro-batches through its pipeline; its sharding is not looked at.
    pub fn new(costs: &Costs, plan: &Plan, layers: &'l Layers, stages: &Stages) -> Self {
        let plan = Plan { zero: ZeroStage::One, shard_group: None, ..*plan };
        let works = &layers.works(plan.layout.pp).layers;
        let ranks: Vec<(Work, f64)> = stages
            .classes
            .iter()
            .map(|class| (work_of(costs, &plan, class, works, &layers.shape), class.count))
            .collect();
        let flow = costs.flow(&plan, ranks.iter().map(|(work, times)| (work, *times)));
        let least_bubble = least_flow(costs, &plan, stages, &ranks, works, &layers.shape).map(|least| {
            // A bidirectional pipeline may be busy for less than its closed form says.
            least * ROUNDING - (flow.busy.total() - flow.busy.pipeline_bubble)
        });
        let activations_exposed =
            costs.offloaded_activations(&plan, &layers.shape, &layers.kept.kinds, flow.micro_batches);
        Self { plan, layers, flow, least_bubble, activations_exposed }
    }

    /// The same flow with another share of its activations on the host.
    #[must_use]
    pub fn with_offloaded(&self, costs: &Costs, activations: f64) -> Self {
        let plan = Plan { offload: Offload { activations, ..self.plan.offload }, ..self.plan };
        let Self { layers, flow, least_bubble, .. } = *self;
        let (shape, kept) = (&layers.shape, &layers.kept.kinds);
        let activations_exposed = costs.offloaded_activations(&plan, shape, kept, flow.micro_batches);
        Self { plan, layers, flow, least_bubble, activations_exposed }
    }

    /// The same flow with the fewest bytes that any recomputation keeps: half of a layer's input, less what is offloaded.
    pub fn leanest<'f>(&self, floor: &'f Layers, activations: f64) -> Pipeline<'f> {
        let offload = Offload { activations, ..self.plan.offload };
        let plan = Plan { offload, recompute: Recompute::None, ..self.plan };
        let Self { flow, least_bubble, activations_exposed, .. } = *self;
        Pipeline { plan, layers: floor, flow, least_bubble, activations_exposed }
    }

    /// Whether the schedule can be played.
    pub const fn is_played(&self) -> bool {
        self.least_bubble.is_some()
    }

    /// What the closed form's rank works.
    fn closed_busy(&self) -> Seconds {
        self.flow.busy.total() - self.flow.busy.pipeline_bubble
    }

    /// No step of this pipeline under ZeRO 3 is shorter, whatever its sharding.
    pub fn least_gathered_time(&self, costs: &Costs) -> Seconds {
        let around = Around {
            ends: self.layers.shape.ends,
            sends: Seconds::ZERO,
            slow_down: self.flow.slow_down,
            activations: self.activations_exposed,
            again: costs.first_layers_again(&self.plan, &self.layers.shape),
        };
        let plan = Plan { zero: ZeroStage::Three, ..self.plan };
        costs.least_sharded_step(&plan, &self.layers.works(plan.layout.pp).gathered, &around) * ROUNDING
    }

    /// No step of this pipeline under ZeRO 0 to 2 is shorter, whatever its sharding.
    pub fn least_time(&self) -> Seconds {
        let busy = self.flow.busy.total();
        let flow = self.least_bubble.map_or(busy, |bubble| busy - self.flow.busy.pipeline_bubble + bubble);
        self.least_time_played(flow)
    }

    /// The same where the micro-batches take `flow` through the pipeline at the least.
    pub fn least_time_played(&self, flow: Seconds) -> Seconds {
        flow * ((1.0 + self.flow.slow_down) * ROUNDING) + self.activations_exposed
    }
}

/// A pipeline with what each class of its ranks holds, ready for shardings.
#[derive(Clone, Debug)]
pub struct Loaded<'l> {
    /// The pipeline.
    pub pipeline: Pipeline<'l>,
    /// Exposed sends in each rank order.
    sends: [Seconds; 2],
    /// The first layers of each chunk, computed again under ZeRO 3; worked out when a sharding asks.
    again: OnceCell<Seconds>,
    /// Of each class of ranks.
    held: Vec<Held>,
}

/// What a class of ranks holds beside its states.
#[derive(Clone, Copy, Debug)]
struct Held {
    rank: u32,
    activations: Bytes,
    working_set: Bytes,
}

const ORDERS: [RankOrder; 2] = [RankOrder::PipelineOutermost, RankOrder::DataOutermost];

impl<'l> Loaded<'l> {
    /// Sizes a pipeline.
    pub fn new(costs: &Costs, pipeline: Pipeline<'l>, stages: &Stages) -> Self {
        let plan = &pipeline.plan;
        let sends = ORDERS.map(|order| costs.exposed_stage_sends(&Plan { order, ..*plan }));
        Self { sends, again: OnceCell::new(), held: held(costs, plan, pipeline.layers, stages), pipeline }
    }

    /// Step time and memory with a sharding, by the closed forms: what [`Costs::evaluate`] says.
    pub fn price(&self, costs: &Costs, sharding: &Sharding) -> Price {
        Price { time: self.time(costs, sharding, None), memory: self.memory(sharding).0 }
    }

    /// Step time with a sharding, no longer than the schedule as it is played.
    pub fn bound(&self, costs: &Costs, sharding: &Sharding) -> Seconds {
        self.time(costs, sharding, self.pipeline.least_bubble)
    }

    /// Step time with a sharding and a flow as it was played ([`Costs::played_flow`]); the closed form without one.
    ///
    /// A rank that never waits is played for as long as it works, but for the rounding of its passes: what is left of that is no
    /// bubble. A bidirectional pipeline may be busy for less than its closed form says.
    pub fn played(&self, costs: &Costs, sharding: &Sharding, flow: Option<Seconds>) -> Seconds {
        let bubble = flow.map(|flow| flow - self.pipeline.closed_busy());
        let is_bidirectional = self.pipeline.plan.schedule.is_bidirectional();
        self.time(costs, sharding, bubble.map(|bubble| if is_bidirectional { bubble } else { bubble.or_zero() }))
    }

    fn time(&self, costs: &Costs, sharding: &Sharding, bubble: Option<Seconds>) -> Seconds {
        let Pipeline { plan, layers, flow, activations_exposed, .. } = &self.pipeline;
        let plan = sharding.of(plan);
        let sends = self.sends[usize::from(sharding.order == ORDERS[1])];
        let step = match &sharding.engine {
            Engine::Replicated(edges) => {
                let mut flow = *flow;
                if let Some(bubble) = bubble {
                    flow.busy.pipeline_bubble = bubble;
                }
                costs.flow_step(&plan, &flow, sends, edges, *activations_exposed)
            }
            Engine::Sharded(sharded) => {
                let around = Around {
                    ends: layers.shape.ends,
                    sends,
                    slow_down: flow.slow_down,
                    activations: *activations_exposed,
                    again: *self.again.get_or_init(|| costs.first_layers_again(&plan, &layers.shape)),
                };
                costs.sharded_step(&plan, &layers.works(plan.layout.pp).gathered, sharded, &around)
            }
        };
        step.total()
    }

    /// Memory of the fullest rank, and which that is.
    pub fn memory(&self, sharding: &Sharding) -> (Bytes, u32) {
        let mut most = (Bytes::ZERO, 0);
        for (held, &states) in self.held.iter().zip(&sharding.states) {
            let transient = held.working_set + sharding.gathered;
            let (caches, all) = (self.pipeline.layers.caches, (states, Bytes::ZERO, Bytes::ZERO));
            let needed = Footprint::of_rank(held.rank, all, held.activations, transient, caches).device();
            if needed > most.0 {
                most = (needed, held.rank);
            }
        }
        most
    }

    /// Memory that no sharding goes below which leaves at least `states` to each class of ranks.
    pub fn least_memory(&self, states: &[Bytes]) -> (Bytes, u32) {
        let mut most = (Bytes::ZERO, 0);
        for (held, &states) in self.held.iter().zip(states) {
            let (caches, all) = (self.pipeline.layers.caches, (states, Bytes::ZERO, Bytes::ZERO));
            let needed = Footprint::of_rank(held.rank, all, held.activations, held.working_set, caches).device();
            if needed * ROUNDING > most.0 {
                most = (needed * ROUNDING, held.rank);
            }
        }
        most
    }
}

/// What a class of ranks does with one micro-batch.
fn work_of(costs: &Costs, plan: &Plan, class: &Class, works: &[Work], shape: &ShapeCost) -> Work {
    let model = costs.problem.model();
    let mut work = Work::default();
    for (kind, &times) in class.layers.iter().enumerate() {
        if times > 0.0 {
            work.add(&works[kind], times);
        }
        if class.forgotten[kind] > 0.0 {
            work.recompute += costs.forgotten(&shape.layers[kind]) * class.forgotten[kind];
        }
    }
    if class.first {
        work.add(&stage::embedding(&shape.ends), 1.0);
    }
    if let Some(amax) = costs.maxima(plan) {
        work.add(&Work { amax, ..Work::default() }, f64::from(plan.schedule.virtual_stages()));
    }
    let depth = f64::from(model.mtp_depth);
    if class.last {
        work.add(&stage::loss(&shape.ends), 1.0 + depth);
    }
    if class.mtp {
        work.add(&works[model.last_kind()], depth);
    }
    work
}

/// Activations and working set of each class of ranks.
fn held(costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages) -> Vec<Held> {
    let kept = &layers.kept;
    // Where only first layers are forgotten, ranks of one class may keep different ones.
    let ranks = if let Recompute::FirstLayers(_) = plan.recompute { costs.holdings(plan) } else { Vec::new() };
    let of_class = |hold: &Hold| {
        let Holding { rank, is_last, .. } = hold.holding;
        let most = |a: (u32, Bytes), b: (u32, Bytes)| if b.1 > a.1 { b } else { a };
        let each = hold.ranks.iter().filter_map(|rank| ranks.get(*rank as usize));
        let (rank, activations) = each
            .map(|holding| (holding.rank, costs.activations(holding, kept, plan)))
            .reduce(most)
            .unwrap_or_else(|| (rank, costs.activations(&hold.holding, kept, plan)));
        let working_set = if is_last { layers.working_set.1 } else { layers.working_set.0 };
        Held { rank, activations, working_set }
    };
    stages.holds.iter().map(of_class).collect()
}
