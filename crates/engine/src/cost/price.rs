//! Evaluation of a plan: work, parameters and memory of each rank, and the step time.

use std::borrow::Cow;

use super::costs::Costs;
use super::counts::{Classes, Counted, each_rank};
use super::data::{RankParameters, heaviest};
use super::footprint::{Footprint, fullest};
use super::fsdp::{Around, GatheredLayers};
use super::memory::CountedBytes;
use super::optimizer::Update;
use super::pipeline::Flow;
use super::shape::{CountedPlan, ShapeCost};
use super::step::{Evaluation, StepTime};
use super::straggler;
use super::work::Work;
use crate::plan::{Offload, Plan, ZeroStage};
use crate::schedule::Schedule;
use crate::schedule::closed::RankTime;
use crate::schedule::replay::{StageTime, busy};
use crate::schedule::replays::SimulatorKey;
use crate::units::Seconds;

/// Method for the time of a step's micro-batches through the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Closed form of the schedule.
    ClosedForm,
    /// Simulation, operation by operation, of the real stages; the closed form if there is nothing to simulate: no pipeline,
    /// ZeRO 3, fractional micro-batches, a schedule that cannot run them.
    Simulated,
}

/// Works, parameters and memory of classes of ranks, and the works of their virtual stages.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// Ranks of each class.
    pub classes: Classes,
    /// Work of a rank of each class, all its virtual stages together.
    pub works: Vec<Work>,
    /// Work of each virtual stage; empty if not requested.
    pub chunks: Vec<Work>,
    /// Parameters of a rank of each class.
    pub parameters: Vec<RankParameters>,
    /// Memory of the rank of each class that needs the most.
    pub footprints: Vec<Footprint>,
}

impl Costs<'_> {
    /// Evaluation of a legal plan by the closed forms; `plan.zero = 3` is FSDP.
    pub fn evaluate(&self, plan: &Plan) -> Evaluation {
        self.evaluate_shaped(plan, &self.shape(plan))
    }

    /// Evaluation of a plan whose shape costs are known.
    pub fn evaluate_shaped(&self, plan: &Plan, shape: &ShapeCost) -> Evaluation {
        self.price(plan, shape, Method::ClosedForm)
    }

    /// Evaluation of a legal plan with its schedule simulated on its real stages. Plans are ranked by it, and every command
    /// shows it.
    ///
    /// Sends between stages keep their closed form, which the simulation reproduces where pp divides the micro-batches.
    pub fn evaluate_simulated(&self, plan: &Plan) -> Evaluation {
        self.price(plan, &self.shape(plan), Method::Simulated)
    }

    /// Evaluation of a legal plan by one method.
    pub fn price(&self, plan: &Plan, shape: &ShapeCost, method: Method) -> Evaluation {
        let counted = match method {
            Method::ClosedForm => Counted::Ranks,
            Method::Simulated => Counted::Chunks,
        };
        let counts = self.stage_counts(plan, Some(shape), counted);
        let offload = |_| plan.offload;
        // The two stages of a rank in a bidirectional pipeline are those of two ranks.
        let is_apart = self.splits_unknown || plan.schedule.is_bidirectional();
        let classes = if is_apart { each_rank(plan.layout.pp) } else { counts.classes(plan) };
        let counted = CountedPlan { plan, shape, counts: &counts };
        let ranks = self.ranks(counted, classes, method, offload);
        let simulate = |times: &[StageTime]| match method {
            Method::ClosedForm => None,
            Method::Simulated => self.simulated_flow(plan, times),
        };
        let step = self.step(counted, &ranks, offload, simulate);
        Evaluation { plan: plan.clone(), step, footprint: fullest(&ranks.footprints) }
    }

    /// Work, parameters and memory of each class of ranks; `offload` = shares that a rank keeps on the host.
    pub(super) fn ranks(
        &self,
        counted: CountedPlan,
        classes: Classes,
        method: Method,
        offload: impl Fn(usize) -> Offload,
    ) -> Ranks {
        let CountedPlan { plan, shape, counts } = counted;
        let (mut works, mut chunks) = (Vec::new(), Vec::new());
        if plan.zero != ZeroStage::Three {
            let of_choice = self.works(plan, shape, &counts.choices);
            works = self.works_of_ranks(counted, &of_choice, &classes);
            self.expose_by_rank(plan, &mut works);
            if method == Method::Simulated {
                chunks = self.works_of_chunks(counted, &of_choice);
            }
        }
        let even;
        let resident = if self.splits_unknown {
            even = self.even_counts(plan);
            &even
        } else {
            counts
        };
        let parameters = self.parameters_of(plan, resident, &classes);
        let bytes = self.bytes(plan, shape, &counts.choices);
        let footprints =
            self.footprints_of(plan, CountedBytes { counts: resident, bytes: &bytes }, &classes, &parameters, offload);
        Ranks { classes, works, chunks, parameters, footprints }
    }

    /// Step time; `simulate` = how long the schedule takes on stages of these times, where it can be simulated.
    pub(super) fn step(
        &self,
        counted: CountedPlan,
        ranks: &Ranks,
        offload: impl Fn(usize) -> Offload,
        simulate: impl FnOnce(&[StageTime]) -> Option<Seconds>,
    ) -> StepTime {
        let CountedPlan { plan, shape, counts } = counted;
        let heaviest = heaviest(&ranks.parameters);
        let updating = self.updating(&ranks.parameters, &heaviest);
        let offloads = ranks.classes.iter().map(|class| offload(class.start as usize));
        let update = self.longest_update(plan, updating.iter().zip(offloads));
        let sends = self.exposed_stage_sends(plan);
        if plan.zero == ZeroStage::Three {
            let works: Vec<Work> = counts
                .choices
                .iter()
                .map(|choice| self.gathered_work_of(plan, &shape.layers[choice.kind], choice))
                .collect();
            let on_ranks = if self.splits_unknown { Cow::Borrowed(&counts.ranks) } else { counts.all_on_ranks(plan) };
            let last = plan.pipeline().last_rank();
            let on_ranks = on_ranks.each().zip(0..).map(|(layers, rank)| (layers, 1.0, rank == last));
            let layers = GatheredLayers::new(&counts.choices, &works, on_ranks);
            let around = Around { ends: shape.ends, sends, slow_down: self.slow_down(plan.layout.world_size()) };
            return self.sharded_step(plan, &layers, &self.sharded(plan, &heaviest, update), &around);
        }
        let numbers = ranks.classes.iter().map(|class| class.len() as f64);
        let closed = self.flow(plan, ranks.works.iter().zip(numbers));
        let flow = self.simulated(plan, ranks, closed, simulate).unwrap_or(closed);
        self.flow_step(plan, plan.zero, &flow, sends, &self.edges(plan, &heaviest, update))
    }

    /// Parts of a step outside the pipeline under ZeRO 0 to 2: the exposed exchange between replicas of these ranks, and the
    /// longest update.
    pub(super) fn exchange_and_update(
        &self,
        plan: &Plan,
        works: &[Work],
        parameters: &[RankParameters],
        offload: impl Fn(usize) -> Offload,
    ) -> (Seconds, Update) {
        let m = self.micro_batches(plan);
        let updated = parameters.iter().enumerate().map(|(rank, parameters)| (parameters, offload(rank)));
        let update = self.longest_update(plan, updated);
        let edges = self.edges(plan, &heaviest(parameters), update);
        let windows = self.dp_windows(plan, works.iter().map(|work| (work, 1.0)), m);
        (self.exposed_exchange(plan, plan.zero, edges.exchange, &windows, m) + edges.tied, update)
    }

    /// The closed-form flow with the busy time and the bubble of the simulated schedule; `None` where nothing is simulated.
    fn simulated(
        &self,
        plan: &Plan,
        ranks: &Ranks,
        closed: Flow,
        simulate: impl FnOnce(&[StageTime]) -> Option<Seconds>,
    ) -> Option<Flow> {
        if ranks.chunks.is_empty() || plan.layout.pp == 1 {
            return None;
        }
        let times = self.times_of(plan, &ranks.chunks);
        let makespan = simulate(&times)?;
        let busy = self.busy_simulated(plan, &ranks.works, &times).unwrap_or(closed.busy);
        let busy = StepTime { pipeline_bubble: Seconds::ZERO, ..busy };
        Some(Flow { busy: StepTime { pipeline_bubble: (makespan - busy.total()).or_zero(), ..busy }, ..closed })
    }

    /// Time of each virtual stage on one micro-batch, in model order.
    pub fn stage_times(&self, plan: &Plan, shape: &ShapeCost) -> Vec<StageTime> {
        self.times_of(plan, &self.chunk_works(plan, shape))
    }

    /// Time of each virtual stage on one micro-batch, given its work. Expert traffic that a layer's compute could not hide lies
    /// on its backward; in a bidirectional pipeline only pairs hide any.
    pub(super) fn times_of(&self, plan: &Plan, chunks: &[Work]) -> Vec<StageTime> {
        if plan.schedule.is_bidirectional() && plan.layout.pp > 1 {
            return self.paired_times(plan, chunks);
        }
        chunks.iter().map(StageTime::from).collect()
    }

    /// Times of the virtual stages of a bidirectional pipeline: a rank that holds the s-th holds the s-th last too, and the
    /// forward of either may run beside the backward of the other.
    fn paired_times(&self, plan: &Plan, chunks: &[Work]) -> Vec<StageTime> {
        let pairs = chunks.iter().zip(chunks.iter().rev());
        pairs
            .map(|(own, other)| {
                let RankTime { forward, backward, wgrad } = own.unpaired_time();
                StageTime { forward, backward, wgrad, paired: self.pair(plan, &own.paired_with(other)) }
            })
            .collect()
    }

    /// Makespan of the simulated schedule on stages of these times, with sends that take no time; `None` where there is nothing
    /// to simulate.
    pub fn simulated_flow(&self, plan: &Plan, stages: &[StageTime]) -> Option<Seconds> {
        let micro_batches = self.whole_micro_batches(plan).filter(|_| plan.layout.pp > 1)?;
        self.flows.time(SimulatorKey { pipeline: plan.pipeline(), micro_batches }, stages)
    }

    /// The number of micro-batches, where it is whole.
    pub fn whole_micro_batches(&self, plan: &Plan) -> Option<u32> {
        let micro_batches = self.micro_batches(plan);
        (micro_batches.fract() == 0.0 && micro_batches >= 1.0).then_some(micro_batches as u32)
    }

    /// Work of the rank of a bidirectional pipeline that works longest, pairs and passes alone as its list has them.
    pub(super) fn busy_simulated(&self, plan: &Plan, works: &[Work], times: &[StageTime]) -> Option<StepTime> {
        if !plan.schedule.is_bidirectional() {
            return None;
        }
        let micro_batches = self.whole_micro_batches(plan)?;
        let busy = busy(plan.pipeline(), micro_batches, times)?;
        let rank = (0..busy.len()).reduce(|a, b| if busy[b] > busy[a] { b } else { a })?;
        let mut work = works[rank];
        if plan.schedule == Schedule::DualPipe {
            // Half of the micro-batches come through its stage, half through its copy of another.
            work = Work::default();
            work.add(&works[rank], 0.5);
            work.add(&works[works.len() - 1 - rank], 0.5);
        }
        let exposed = if work.ep_beside > Seconds::ZERO || self.pair_effect(plan).slower > 1.0 {
            (busy[rank] / f64::from(micro_batches) - work.forward() - work.backward()).or_zero()
        } else {
            Seconds::ZERO
        };
        Some(StepTime::busy(&work, exposed, f64::from(micro_batches)))
    }

    /// Share by which stragglers lengthen a step on `gpus` GPUs (J).
    pub(crate) fn slow_down(&self, gpus: u32) -> f64 {
        let is_all = gpus == self.problem.cluster().gpus;
        if is_all { self.slow_down_of_all } else { straggler::slow_down(gpus, self.device.stack.jitter) }
    }
}

impl From<&Work> for StageTime {
    /// Work as a schedule of one direction runs it.
    fn from(work: &Work) -> Self {
        let (forward, backward) = (work.forward(), work.backward() + work.ep_exposed);
        Self { forward, backward, wgrad: work.wgrad, ..Self::default() }
    }
}
