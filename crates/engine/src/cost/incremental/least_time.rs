//! Lower bounds on the time of pipelines by the passes of their layers, before a flow is computed.

use smallvec::SmallVec;

use super::block::{EndPasses, Layers, ROUNDING};
use super::exchange::{ByOrder, LeastExchange, Unhidden};
use super::stages::{Stages, WorkClass};
use crate::cost::costs::Costs;
use crate::cost::layer::PassTimes;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::units::Seconds;

/// Lower bound of the part of a step that the sends between stages, stragglers and the exchange between replicas take,
/// for all pipelines of a layout under ZeRO 0 to 2.
#[derive(Clone, Copy, Debug)]
pub struct AroundFlow {
    /// Time of a send in each rank order where the last rank sends nothing to the first.
    send: ByOrder<Seconds>,
    /// Time of a send in each rank order where the last rank sends to the first, as with virtual stages.
    looped_send: ByOrder<Seconds>,
    /// Factor of stragglers, and of rounding.
    slower: f64,
    /// Exchange between replicas, as far as it is known.
    pub exchange: LeastExchange,
}

impl AroundFlow {
    /// Sends and stragglers of the layout and micro-batch of a plan.
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        let of_schedule =
            |schedule: Schedule| ByOrder::new(|order| costs.stage_send(&Plan { schedule, order, ..plan.clone() }));
        Self {
            send: of_schedule(Schedule::OneFOneB),
            looped_send: of_schedule(Schedule::Interleaved { virtual_stages: 2 }),
            slower: (1.0 + costs.slow_down(plan.layout.world_size())) * ROUNDING,
            exchange: LeastExchange::default(),
        }
    }

    /// This with the exchange between replicas.
    #[must_use]
    pub const fn exchanging(self, exchange: LeastExchange) -> Self {
        Self { exchange, ..self }
    }
}

/// Lower bound on the time of the pipelines of a plan's schedule under ZeRO 0 to 2, before their flow is computed: `least_flow`
/// without overlapped expert traffic, and with the path to a rank only if the schedule is simulated; of bidirectional schedules
/// without the flow.
#[derive(Debug)]
pub struct LeastTime<'l> {
    costs: &'l Costs<'l>,
    plan: &'l Plan,
    layers: &'l Layers,
    around: &'l AroundFlow,
    flow: Option<LeastFlow>,
    /// Exposed sends in each rank order.
    sends: ByOrder<Seconds>,
}

impl<'l> LeastTime<'l> {
    /// Bounds of the schedule and the layers of a plan; its split is not read.
    pub fn new(costs: &'l Costs, plan: &'l Plan, layers: &'l Layers, around: &'l AroundFlow) -> Self {
        let sends = if plan.pipeline().loops() { around.looped_send } else { around.send };
        let sends = ByOrder::new(|order| costs.exposed_sends_of(plan, sends.of(order)));
        Self { costs, plan, layers, around, flow: LeastFlow::new(costs, plan, layers), sends }
    }

    /// Bound of the pipeline with these stages.
    pub fn of(&self, stages: &Stages) -> Seconds {
        let Self { costs, plan, layers, around, ref flow, sends } = *self;
        let flow = flow.as_ref().map_or(Seconds::ZERO, |flow| flow.of(stages));
        let unhidden = Unhidden::new(costs, plan, layers, stages, around.exchange);
        unhidden.least_step(flow, sends, around.slower, unhidden.windows_of(flow))
    }
}

/// Lower bound of one pipeline, as [`LeastTime`] has it.
pub fn least_time_of_flow(
    costs: &Costs,
    plan: &Plan,
    layers: &Layers,
    stages: &Stages,
    around: &AroundFlow,
) -> Seconds {
    LeastTime::new(costs, plan, layers, around).of(stages)
}

/// Lower bound on the time that the micro-batches of a plan take through its pipeline, as [`LeastTime`] has it before sends and
/// stragglers.
pub fn least_flow_of_passes(costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages) -> Seconds {
    LeastFlow::new(costs, plan, layers).map_or(Seconds::ZERO, |flow| flow.of(stages))
}

/// Lower bound of [`least_flow_of_passes`], ready for any split of the layers over the ranks.
#[derive(Debug)]
struct LeastFlow {
    micro_batches: f64,
    /// Passes of one layer of each choice.
    whole: PerChoice,
    /// Passes of the embedding.
    embedding: Seconds,
    /// Passes of the output heads.
    heads: Seconds,
    /// Where the schedule is simulated.
    wait: Option<Wait>,
}

/// Passes that a rank waits for before its first and behind its last, and a micro-batch's way through all ranks.
#[derive(Debug)]
struct Wait {
    /// Passes of one layer of each choice on another rank.
    of_layer: PerChoice,
    /// Passes of the embedding on another rank.
    embedding: Seconds,
    trip: RoundTrip,
}

impl Wait {
    /// Time for which a class of ranks waits.
    fn before(&self, class: &WorkClass) -> Seconds {
        let layers = of_layers(&self.of_layer, &class.layers_before);
        if class.embedding_before { layers + self.embedding } else { layers }
    }
}

impl LeastFlow {
    /// Passes of the layers of a plan's schedule; `None` if that is bidirectional.
    fn new(costs: &Costs, plan: &Plan, layers: &Layers) -> Option<Self> {
        if plan.schedule.is_bidirectional() {
            return None;
        }
        let passes = layers.least_passes(costs, plan);
        let EndPasses { embedding, loss, loss_on_the_way } = layers.ends;
        let whole: PerChoice = passes.iter().map(|passes| passes.sum()).collect();
        let depth = f64::from(costs.problem.model().mtp_depth);
        let wait = way_back(plan.schedule).map(|back| {
            let ahead = |passes: &PassTimes| passes.forward + passes.backward * back;
            let trip = if plan.schedule.splits_backward() {
                let of_layer = SmallVec::from_slice(&layers.works(plan.layout.pp).on_the_way);
                RoundTrip { of_layer, embedding: embedding.forward, loss: loss_on_the_way }
            } else {
                RoundTrip { of_layer: whole.clone(), embedding: embedding.sum(), loss }
            };
            Wait { of_layer: passes.iter().map(ahead).collect(), embedding: ahead(&embedding), trip }
        });
        let (micro_batches, heads) = (costs.micro_batches(plan), loss * (1.0 + depth));
        Some(Self { micro_batches, whole, embedding: embedding.sum(), heads, wait })
    }

    /// Bound of the pipeline with these stages.
    fn of(&self, stages: &Stages) -> Seconds {
        let Self { micro_batches, ref whole, embedding, heads, ref wait } = *self;
        let of_class = |class: &WorkClass| {
            let mut own = of_layers(whole, &class.layers);
            if class.has_embedding {
                own += embedding;
            }
            if class.has_head {
                own += heads;
            }
            own * micro_batches + wait.as_ref().map_or(Seconds::ZERO, |wait| wait.before(class))
        };
        let first = wait.as_ref().map_or(Seconds::ZERO, |wait| wait.trip.least_flow(stages, micro_batches));
        stages.work_classes.iter().map(of_class).fold(first, Seconds::max) * ROUNDING
    }
}

/// Time in one layer of each choice.
pub(super) type PerChoice = SmallVec<[Seconds; 4]>;

/// Time in so many layers of each choice, by that in one of each.
fn of_layers(times: &[Seconds], layers: &[f64]) -> Seconds {
    times.iter().zip(layers).fold(Seconds::ZERO, |sum, (time, count)| sum + *time * *count)
}

/// Times of one micro-batch on its way through a pipeline and back, without weight gradients where they are separate passes.
#[derive(Debug)]
pub(super) struct RoundTrip {
    /// Time in one layer of each choice.
    pub of_layer: PerChoice,
    /// Time in the embedding.
    pub embedding: Seconds,
    /// Time in the loss.
    pub loss: Seconds,
}

impl RoundTrip {
    /// Lower bound on the simulated time of a flow by the way of a micro-batch through all chunks and back, with what
    /// the others take on the last chunk in between:
    ///
    /// ```text
    /// Σ over chunks c of (F_c + B_c)  +  (m − 1)·(F_last + B_last)
    /// ```
    ///
    /// The last chunk begins when the first micro-batch has come through all others, works on one micro-batch after
    /// another, and its last backward has still to go back through all others.
    pub fn least_flow(&self, stages: &Stages, micro_batches: f64) -> Seconds {
        let Self { of_layer: ref times, embedding, loss } = *self;
        let mut all = embedding + loss;
        for class in &stages.work_classes {
            for (&time, &count) in times.iter().zip(&class.layers) {
                all += time * (count * class.count);
            }
        }
        let shortest = times.iter().copied().reduce(Seconds::min).unwrap_or_default();
        all + (loss + shortest * f64::from(stages.last_chunk())) * (micro_batches - 1.0).max(0.0)
    }
}

/// Share of the path to a rank that its last pass returns along; `None` if the schedule is not simulated.
pub(super) const fn way_back(schedule: Schedule) -> Option<f64> {
    match schedule {
        Schedule::GPipe | Schedule::OneFOneB | Schedule::Interleaved { .. } | Schedule::LoopedBfs { .. } => Some(1.0),
        Schedule::ZbH1 | Schedule::ZbH2 | Schedule::ZbV | Schedule::DualPipeV => Some(0.0),
        Schedule::Naive | Schedule::DualPipe => None,
    }
}
