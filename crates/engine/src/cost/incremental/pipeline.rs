//! A block on a pipeline: its flow, its activations, and the price with a sharding.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::block::{Layers, ROUNDING};
use super::exchange::{ByOrder, LeastExchange, LongestWindows, Unhidden};
use super::least::least_flow;
use super::rank_memory::RankMemory;
use super::sharding::{Engine, Sharding};
use super::stages::{Stages, WorkClass};
use crate::cost::costs::Costs;
use crate::cost::counts::LayerChoice;
use crate::cost::fsdp::{Around, GatheredLayers};
use crate::cost::pipeline::Flow;
use crate::cost::shape::{CountedPlan, ShapeCost};
use crate::cost::stage;
use crate::cost::step::StepTime;
use crate::cost::work::Work;
use crate::plan::{Plan, ZeroStage};
use crate::schedule::RankBytes;
use crate::schedule::replay::StageTime;
use crate::units::{Bytes, Seconds};

/// Step time and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Time of one step.
    pub time: Seconds,
    /// Memory of the fullest rank, as the device shows it.
    pub memory: Bytes,
}

/// Flow of a step's micro-batches through a pipeline of these layers.
#[derive(Clone, Debug)]
pub struct Pipeline<'l> {
    /// The plan, but for its sharding.
    pub plan: Plan,
    /// Its layers.
    pub layers: &'l Layers,
    flow: Flow,
    /// Work of the busiest rank, without its wait for other stages.
    busy: Seconds,
    /// Lower bound on the simulated time of the flow; `None` if there is the closed form only.
    least_simulated: Option<Seconds>,
    /// Its classes of ranks.
    stages: &'l Stages,
    /// Exposed sends in each rank order.
    sends: ByOrder<Seconds>,
    /// Exchange between replicas that its windows cannot hide, as far as it is known.
    unhidden: Unhidden,
    /// Its layers under ZeRO 3, counted when asked for.
    gathered: OnceCell<GatheredLayers>,
}

impl<'l> Pipeline<'l> {
    /// Prices the flow of a plan's micro-batches through its pipeline; its sharding is not looked at.
    pub fn new(costs: &Costs, plan: &Plan, layers: &'l Layers, stages: &'l Stages) -> Self {
        let sends = ByOrder::new(|order| costs.exposed_stage_sends(&Plan { order, ..plan.clone() }));
        Self::with_sends(costs, plan, layers, stages, sends)
    }

    /// Pipeline of the same degrees, schedule and micro-batch with other layers, whose sends are the same. So is the
    /// exchange where the ranks hold the same layers; elsewhere it is left unknown.
    #[must_use]
    pub fn with_layers<'n>(&self, costs: &Costs, plan: &Plan, layers: &'n Layers, stages: &'n Stages) -> Pipeline<'n> {
        let same_split = self.stages.last_chunk() == stages.last_chunk();
        let unhidden = if same_split { self.unhidden } else { Unhidden::default() };
        Pipeline { unhidden, ..Pipeline::with_sends(costs, plan, layers, stages, self.sends) }
    }

    /// This pipeline with the exchange between replicas that its windows cannot hide, whatever its sharding,
    /// recomputation and offload.
    #[must_use]
    pub fn exchanging(self, costs: &Costs, exchange: LeastExchange) -> Self {
        Self { unhidden: Unhidden::new(costs, &self.plan, self.layers, self.stages, exchange), ..self }
    }

    fn with_sends(costs: &Costs, plan: &Plan, layers: &'l Layers, stages: &'l Stages, sends: ByOrder<Seconds>) -> Self {
        let plan = Plan { zero: ZeroStage::One, shard_group: None, ..plan.clone() };
        let on_host = plan.offload.activations;
        let works = with_transfers(costs, &plan, layers, &layers.works(plan.layout.pp).layers, on_host);
        let ranks: Vec<(Work, f64)> = stages
            .work_classes
            .iter()
            .map(|class| (work_of(costs, &plan, class, &works, &layers.shape), class.count))
            .collect();
        let flow = costs.flow(&plan, ranks.iter().map(|(work, times)| (work, *times)));
        let busy = StepTime { pipeline_bubble: Seconds::ZERO, ..flow.busy }.total();
        let least_simulated =
            least_flow(costs, &plan, stages, &ranks, &works, &layers.shape).map(|flow| flow * ROUNDING);
        let (unhidden, gathered) = (Unhidden::default(), OnceCell::new());
        Self { plan, layers, flow, busy, least_simulated, stages, sends, unhidden, gathered }
    }

    /// Its layers under ZeRO 3.
    fn gathered(&self, costs: &Costs) -> &GatheredLayers {
        self.gathered.get_or_init(|| {
            let works = self.layers.gathered(costs, &self.plan);
            let works = with_transfers(costs, &self.plan, self.layers, works, self.plan.offload.activations);
            let classes = self.stages.work_classes.iter().map(|class| (&class.layers, class.count, class.has_head));
            GatheredLayers::new(&self.layers.choices, &works, classes)
        })
    }

    /// Parts of a step under ZeRO 3 around its layers.
    fn around(&self, sends: Seconds) -> Around {
        Around { ends: self.layers.shape.ends, sends, slow_down: self.flow.slow_down }
    }

    /// Whether the schedule can be simulated.
    pub const fn is_simulated(&self) -> bool {
        self.least_simulated.is_some()
    }

    /// Time of each virtual stage on one micro-batch, in model order: [`Costs::stage_times`].
    pub fn stage_times(&self, costs: &Costs) -> Vec<StageTime> {
        self.stage_times_of(costs, self.layers)
    }

    /// Time of each virtual stage on one micro-batch, in model order, where its layers are `layers`.
    pub fn stage_times_of(&self, costs: &Costs, layers: &Layers) -> Vec<StageTime> {
        let Self { plan, stages, .. } = self;
        let works = &layers.works(plan.layout.pp).layers;
        let works = with_transfers(costs, plan, layers, works, plan.offload.activations);
        let counted = CountedPlan { plan, shape: &layers.shape, counts: &stages.counts };
        if plan.schedule.is_bidirectional() && plan.layout.pp > 1 {
            return costs.times_of(plan, &costs.works_of_chunks(counted, &works));
        }
        costs.times_of_chunks(counted, &works)
    }

    /// Time of the flow by the closed form.
    fn closed_flow(&self) -> Seconds {
        self.busy + self.flow.busy.pipeline_bubble
    }

    /// Lower bound on the step time of this pipeline under ZeRO 3, over all shardings.
    pub fn least_gathered_time(&self, costs: &Costs) -> Seconds {
        let plan = Plan { zero: ZeroStage::Three, ..self.plan.clone() };
        costs.least_sharded_step(&plan, self.gathered(costs), &self.around(self.least_sends())) * ROUNDING
    }

    /// Lower bound on the step time of this pipeline under ZeRO 0 to 2, over all shardings, where the micro-batches take at least
    /// `flow` through the pipeline: zero if nothing is known of it.
    pub fn least_time(&self, flow: Seconds) -> Seconds {
        let flow = self.least_flow().max(flow);
        self.unhidden.least_step(flow, self.sends, self.slower(), self.unhidden.windows_of(flow))
    }

    /// Lower bound of the flow.
    fn least_flow(&self) -> Seconds {
        self.least_simulated.unwrap_or_else(|| self.closed_flow())
    }

    /// Factor of stragglers, and of rounding.
    fn slower(&self) -> f64 {
        (1.0 + self.flow.slow_down) * ROUNDING
    }

    /// Lower bound of the step time as [`Self::least_time`] has it, of plans of this pipeline whose windows are no
    /// longer than those of `other`.
    pub fn least_time_within(&self, other: &Pipeline) -> Seconds {
        let windows = LongestWindows { backward: other.flow.windows.backward, forward: other.flow.windows.forward };
        self.unhidden.least_step(self.least_flow(), self.sends, self.slower(), Some(windows))
    }

    /// Exposed sends in the rank order where they take less.
    fn least_sends(&self) -> Seconds {
        let [first, second] = self.sends.both();
        first.min(second)
    }
}

/// A pipeline with the memory of its ranks, ready to be priced with shardings.
#[derive(Clone, Debug)]
pub struct Loaded<'l> {
    /// The pipeline.
    pub pipeline: Pipeline<'l>,
    /// Memory of its ranks.
    pub memory: RankMemory,
}

impl<'l> Loaded<'l> {
    /// A pipeline with the memory of its ranks computed.
    pub fn new(costs: &Costs, pipeline: Pipeline<'l>, stages: &Stages) -> Self {
        let memory = RankMemory::new(costs, &pipeline.plan, pipeline.layers, stages);
        Self::with_memory(pipeline, memory)
    }

    /// A pipeline whose memory is known.
    pub const fn with_memory(pipeline: Pipeline<'l>, memory: RankMemory) -> Self {
        Self { pipeline, memory }
    }

    /// Step time and memory with a sharding, by the closed forms, equal to those of [`Costs::evaluate`].
    pub fn price(&self, costs: &Costs, sharding: &Sharding) -> Price {
        Price { time: self.time(costs, sharding, self.pipeline.closed_flow()), memory: self.memory(sharding).bytes }
    }

    /// Lower bound of the simulated step time with a sharding, where the micro-batches take `flow` through the pipeline at the
    /// least: zero if nothing is known of it.
    pub fn bound(&self, costs: &Costs, sharding: &Sharding, flow: Seconds) -> Seconds {
        let least = self.pipeline.least_simulated.map(|least| least.max(flow * ROUNDING));
        self.time(costs, sharding, least.unwrap_or_else(|| self.pipeline.closed_flow()))
    }

    /// Lower bound of the step time with a sharding under ZeRO 3, of these layers and of any that take no less.
    pub fn least_gathered_time(&self, costs: &Costs, sharding: &Sharding) -> Seconds {
        self.time(costs, sharding, self.pipeline.closed_flow()) * ROUNDING
    }

    /// Step time with a sharding and a simulated flow ([`Costs::simulated_flow`]); the closed form without one.
    ///
    /// The simulated time of a rank that never waits is its work but for the rounding of its passes, which is no bubble. A
    /// bidirectional pipeline may be busy for less than its closed form says.
    pub fn simulated_time(&self, costs: &Costs, sharding: &Sharding, flow: Option<Seconds>) -> Seconds {
        let is_bidirectional = self.pipeline.plan.schedule.is_bidirectional();
        let simulated = flow.map(|flow| if is_bidirectional { flow } else { flow.max(self.pipeline.busy) });
        self.time(costs, sharding, simulated.unwrap_or_else(|| self.pipeline.closed_flow()))
    }

    /// Step time with a sharding where the micro-batches take `pipe` through the pipeline, which ZeRO 3 does not read.
    fn time(&self, costs: &Costs, sharding: &Sharding, pipe: Seconds) -> Seconds {
        let Pipeline { plan, flow, .. } = &self.pipeline;
        let sends = self.pipeline.sends.of(sharding.order);
        match &sharding.engine {
            Engine::Replicated(edges) => {
                let replicas = costs.exposed_edges(plan, sharding.zero, flow, edges);
                StepTime::total_with_edges(pipe + sends, flow.slow_down, replicas, edges.update)
            }
            Engine::Sharded(sharded) => {
                let (plan, layers) = (sharding.applied_to(plan), self.pipeline.gathered(costs));
                costs.sharded_step(&plan, layers, sharded, &self.pipeline.around(sends)).total()
            }
        }
    }

    /// Memory of the fullest rank.
    pub fn memory(&self, sharding: &Sharding) -> RankBytes {
        self.memory.with_sharding(sharding)
    }
}

/// Work of a class of ranks on one micro-batch.
fn work_of(costs: &Costs, plan: &Plan, class: &WorkClass, works: &[Work], shape: &ShapeCost) -> Work {
    let mut work = Work::default();
    for (kind, &times) in class.layers.iter().enumerate() {
        if times > 0.0 {
            work.add(&works[kind], times);
        }
    }
    if class.has_embedding {
        work.add(&stage::embedding(&shape.ends), 1.0);
    }
    if let Some(amax) = costs.maxima(plan) {
        work.add(&Work { amax, ..Work::default() }, f64::from(plan.schedule.virtual_stages()));
    }
    if class.has_head {
        work.add(&stage::loss(&shape.ends), 1.0 + f64::from(costs.problem.model().mtp_depth));
    }
    work
}

/// Work of one layer of each choice with a share of its activations on the host and its lone passes exposed, as
/// [`Costs::works`] has it.
fn with_transfers<'w>(costs: &Costs, plan: &Plan, layers: &Layers, works: &'w [Work], on_host: f64) -> Cow<'w, [Work]> {
    if on_host <= 0.0 {
        return costs.with_lone_passes(plan, Cow::Borrowed(works));
    }
    let with_transfer = |(work, choice): (&Work, &LayerChoice)| {
        let (choice, mut work) = (LayerChoice { on_host, ..*choice }, *work);
        let plan = plan.recomputing(choice.recompute);
        costs.add_transfer(&mut work, &layers.shape.layers[choice.kind], &plan, &choice);
        work
    };
    costs.with_lone_passes(plan, Cow::Owned(works.iter().zip(&layers.choices).map(with_transfer).collect()))
}
