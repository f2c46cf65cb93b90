//! A block on a pipeline: its flow, its activations, and the price with a sharding.

use super::block::{Block, ROUNDING};
use super::sharding::{Engine, Sharding};
use super::stages::{Class, Stages};
use crate::cost::fsdp::Around;
use crate::cost::memory::Footprint;
use crate::cost::pipeline::Flow;
use crate::cost::stage::{self, Work};
use crate::cost::{Costs, ShapeCost, StepTime};
use crate::plan::{Plan, RankOrder, Recompute, ZeroStage};
use crate::schedule::Schedule;
use crate::units::{Bytes, Seconds};

/// Step time and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Of one step.
    pub time: Seconds,
    /// Of the fullest rank, as the device shows it.
    pub memory: Bytes,
}

/// A block on a pipeline under one recomputation and one share of offloaded activations.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The plan, but for its sharding.
    pub plan: Plan,
    /// Layers under its recomputation.
    pub shape: ShapeCost,
    flow: Flow,
    /// No shorter than any way to play the schedule; `None` where the closed form is all there is.
    least_bubble: Option<Seconds>,
    /// Exposed sends in each rank order.
    sends: [Seconds; 2],
    /// Layers of each kind where weights are gathered.
    works: Vec<Work>,
    activations_exposed: Seconds,
    /// Activations and working set of each class of ranks.
    held: Vec<(Bytes, Bytes)>,
    caches: Bytes,
}

impl Pipeline {
    /// Prices the flow of a plan's micro-batches through its pipeline; its sharding is not looked at.
    pub fn new(costs: &Costs, plan: &Plan, block: &Block, stages: &Stages) -> Self {
        let shape = block.shape(costs, plan);
        let plan = Plan { zero: ZeroStage::One, shard_group: None, ..*plan };
        let works = costs.works(&plan, &shape);
        let ranks: Vec<(Work, f64)> =
            stages.classes.iter().map(|class| (work_of(costs, class, &works, &shape), class.count)).collect();
        let flow = costs.flow(&plan, &ranks);
        let least_bubble = least_flow(costs, &plan, stages, &ranks, &works, &shape).map(|least| {
            let busy = flow.busy.total() - flow.busy.pipeline_bubble;
            (least * ROUNDING - busy).or_zero()
        });
        let works = (0..shape.layers.len()).map(|kind| costs.fsdp_layer(kind, &plan, &shape)).collect();
        let sends = ORDERS.map(|order| costs.exposed_stage_sends(&Plan { order, ..plan }));
        let activations_exposed = costs.offloaded_activations(&plan, &shape, flow.micro_batches);
        let held = held(costs, &plan, stages);
        Self { caches: costs.caches(&plan), plan, shape, flow, sends, least_bubble, works, activations_exposed, held }
    }

    /// Step time and memory with a sharding, by the closed forms: what [`Costs::evaluate`] says.
    pub fn price(&self, costs: &Costs, sharding: &Sharding) -> Price {
        let plan = sharding.of(&self.plan);
        Price { time: self.time(costs, &plan, sharding, None), memory: self.memory(sharding) }
    }

    /// The same, no longer than the schedule as it is played.
    pub fn bound(&self, costs: &Costs, sharding: &Sharding) -> Price {
        let plan = sharding.of(&self.plan);
        Price { time: self.time(costs, &plan, sharding, self.least_bubble), memory: self.memory(sharding) }
    }

    /// The same with the bubble as it was played.
    pub fn played(&self, costs: &Costs, sharding: &Sharding, bubble: Option<Seconds>) -> Price {
        let plan = sharding.of(&self.plan);
        Price { time: self.time(costs, &plan, sharding, bubble), memory: self.memory(sharding) }
    }

    /// Whether the schedule can be played.
    pub const fn is_played(&self) -> bool {
        self.least_bubble.is_some()
    }

    /// No step of this pipeline under ZeRO 0 to 2 is shorter, whatever its sharding.
    pub fn least_time(&self, costs: &Costs) -> Seconds {
        let busy = self.flow.busy.total();
        let flow = self.least_bubble.map_or(busy, |bubble| busy - self.flow.busy.pipeline_bubble + bubble);
        flow * ((1.0 + costs.slow_down(self.plan.layout.world_size())) * ROUNDING) + self.activations_exposed
    }

    fn time(&self, costs: &Costs, plan: &Plan, sharding: &Sharding, bubble: Option<Seconds>) -> Seconds {
        self.step(costs, plan, sharding, bubble).total()
    }

    fn step(&self, costs: &Costs, plan: &Plan, sharding: &Sharding, bubble: Option<Seconds>) -> StepTime {
        match &sharding.engine {
            Engine::Replicated(edges) => {
                let mut flow = self.flow;
                if let Some(bubble) = bubble {
                    flow.busy.pipeline_bubble = bubble;
                }
                costs.flow_step(plan, &flow, self.sends(sharding.order), edges, self.activations_exposed)
            }
            Engine::Sharded(sharded) => {
                let around = Around {
                    ends: self.shape.ends,
                    sends: self.sends(sharding.order),
                    slow_down: self.flow.slow_down,
                    activations: self.activations_exposed,
                };
                costs.sharded_step(plan, &self.works, sharded, &around)
            }
        }
    }

    fn sends(&self, order: RankOrder) -> Seconds {
        self.sends[usize::from(order == ORDERS[1])]
    }

    /// Memory of the fullest rank.
    fn memory(&self, sharding: &Sharding) -> Bytes {
        self.held
            .iter()
            .zip(&sharding.states)
            .map(|(&(activations, working), &states)| {
                Footprint::of_rank(0, states, activations, working + sharding.gathered, self.caches).device()
            })
            .fold(Bytes::ZERO, Bytes::max)
    }

    /// Memory that no sharding of these goes below.
    pub fn least_memory(&self, shardings: &[Sharding]) -> Bytes {
        shardings.iter().map(|sharding| self.memory(sharding)).reduce(Bytes::min).unwrap_or(Bytes::ZERO)
    }
}

const ORDERS: [RankOrder; 2] = [RankOrder::PipelineOutermost, RankOrder::DataOutermost];

/// What a class of ranks does with one micro-batch.
fn work_of(costs: &Costs, class: &Class, works: &[Work], shape: &ShapeCost) -> Work {
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
    if class.last {
        let depth = f64::from(model.mtp_depth);
        work.add(&stage::loss(&shape.ends), 1.0 + depth);
        work.add(&works[model.last_kind()], depth);
    }
    work
}

/// A time that no way to play the flow beats:
///
/// ```text
/// max over ranks i of  m·(F_i + B_i) + Σ over chunks before i's first of (F + B)          specification §4.2
/// ```
///
/// Rank i begins when a micro-batch has come through the chunks before its own, works through all its micro-batches, and ends
/// with a backward that has still to go back through those chunks. Where weight gradients are passes of their own the rank
/// may end with one of them: then only the way there counts. One micro-batch at a time is its closed form. `None` for
/// schedules without a list of operations.
fn least_flow(
    costs: &Costs,
    plan: &Plan,
    stages: &Stages,
    ranks: &[(Work, f64)],
    works: &[Work],
    shape: &ShapeCost,
) -> Option<Seconds> {
    if plan.layout.pp == 1 {
        return None;
    }
    let back = match plan.schedule {
        Schedule::GPipe | Schedule::OneFOneB | Schedule::Interleaved { .. } | Schedule::LoopedBfs { .. } => 1.0,
        Schedule::ZbH1 | Schedule::ZbH2 => 0.0,
        Schedule::Naive | Schedule::ZbV | Schedule::DualPipe | Schedule::DualPipeV => return None,
    };
    let micro_batches = costs.micro_batches(plan);
    let embedding = stage::embedding(&shape.ends);
    stages
        .classes
        .iter()
        .zip(ranks)
        .map(|(class, (work, _))| {
            let own = work.forward() + work.backward() + costs.beside(work);
            let mut before = Seconds::ZERO;
            for (kind, &times) in class.before.iter().enumerate() {
                before += (works[kind].forward() + works[kind].backward() * back) * times;
                before += costs.forgotten(&shape.layers[kind]) * (class.forgotten_before[kind] * back);
            }
            if class.embedding_before {
                before += embedding.forward() + embedding.backward() * back;
            }
            own * micro_batches + before
        })
        .reduce(Seconds::max)
}

/// Activations and working set of each class of ranks.
fn held(costs: &Costs, plan: &Plan, stages: &Stages) -> Vec<(Bytes, Bytes)> {
    let kept = costs.kept_by_kind(plan);
    let working = |is_last| costs.working_set(is_last, plan);
    let (middle, last) = (working(false), working(true));
    let working = |is_last: bool| if is_last { last } else { middle };
    if let Recompute::FirstLayers(_) = plan.recompute {
        let ranks = costs.holdings(plan);
        let most = |rank: &u32| costs.activations(&ranks[*rank as usize], &kept, plan);
        return stages
            .holds
            .iter()
            .map(|hold| (hold.ranks.iter().map(most).fold(Bytes::ZERO, Bytes::max), working(hold.holding.is_last)))
            .collect();
    }
    stages
        .holds
        .iter()
        .map(|hold| (costs.activations(&hold.holding, &kept, plan), working(hold.holding.is_last)))
        .collect()
}
