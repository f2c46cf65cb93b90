//! Unequal stages, played: the step time with the bubble that the schedule really leaves.

use super::stage::{ShapeCost, Work};
use super::step::{Evaluation, StepTime};
use super::{Costs, layer::LayerCost, recompute, straggler};
use crate::plan::{Plan, ZeroStage};
use crate::schedule::Schedule;
use crate::schedule::closed::RankTime;
use crate::schedule::replay::{StageTime, busy, makespan};
use crate::units::Seconds;

impl Costs<'_> {
    /// The price of a legal plan where its schedule is played, operation by operation, on its real unequal stages; the closed
    /// form where there is nothing to play: no pipeline, ZeRO 3, micro-batches that are not whole.
    ///
    /// Sends between stages keep their closed form, which the replay reproduces where pp divides the micro-batches.
    pub fn evaluate_played(&self, plan: &Plan) -> Evaluation {
        let shape = self.shape(plan);
        let mut evaluation = self.evaluate_shaped(plan, &shape);
        if plan.zero != ZeroStage::Three
            && let Some(flow) = self.played_flow(plan, &shape)
        {
            let closed = evaluation.step;
            let none = Seconds::ZERO;
            let (dp_comm, optimizer, offload) = (none, none, none);
            let busy = self.busiest_played(plan, &shape).unwrap_or(closed);
            let mut step = StepTime {
                pipeline_bubble: none,
                pp_comm: none,
                stragglers: none,
                dp_comm,
                optimizer,
                offload,
                ..busy
            };
            step.pipeline_bubble = (flow - step.total()).or_zero();
            step.pp_comm = closed.pp_comm;
            step.stragglers = step.total() * self.slow_down(plan.layout.world_size());
            let StepTime { dp_comm, optimizer, offload, .. } = closed;
            evaluation.step = StepTime { dp_comm, optimizer, offload, ..step };
        }
        evaluation
    }

    /// Time of each chunk on one micro-batch, in model order. Expert traffic that a rank could not hide lies on its chunks as
    /// their work does; in a bidirectional pipeline only pairs hide any.
    pub fn stage_times(&self, plan: &Plan, shape: &ShapeCost) -> Vec<StageTime> {
        let chunks = self.chunk_works(plan, shape);
        if plan.schedule.is_bidirectional() && plan.layout.pp > 1 {
            return self.paired_times(plan, &chunks);
        }
        let ranks = self.rank_works(plan, shape);
        let exposed: Vec<f64> = ranks
            .iter()
            .map(|rank| {
                let busy = rank.forward() + rank.backward();
                if busy > Seconds::ZERO { self.beside(rank) / busy } else { 0.0 }
            })
            .collect();
        chunks
            .iter()
            .enumerate()
            .map(|(chunk, work)| {
                let share = exposed[plan.schedule.rank_of(chunk as u32, plan.layout.pp) as usize];
                let (forward, backward) = (work.forward(), work.backward());
                let backward = backward + (forward + backward) * share;
                StageTime { forward, backward, wgrad: work.wgrad, ..StageTime::default() }
            })
            .collect()
    }

    /// Times of the chunks of a bidirectional pipeline: a rank that holds the s-th holds the s-th last too, and the forward of
    /// either may run beside the backward of the other.
    pub(super) fn paired_times(&self, plan: &Plan, chunks: &[Work]) -> Vec<StageTime> {
        let pairs = chunks.iter().zip(chunks.iter().rev());
        pairs
            .map(|(own, other)| {
                let RankTime { forward, backward, wgrad } = own.alone();
                StageTime { forward, backward, wgrad, paired: self.pair(plan, &own.beside(other)) }
            })
            .collect()
    }

    /// How long the schedule takes as it is played, with sends that take no time; `None` where there is nothing to play.
    pub fn played_flow(&self, plan: &Plan, shape: &ShapeCost) -> Option<Seconds> {
        self.played_stages(plan, &self.stage_times(plan, shape))
    }

    /// The same on stages of these times.
    pub fn played_stages(&self, plan: &Plan, stages: &[StageTime]) -> Option<Seconds> {
        let micro_batches = self.whole_micro_batches(plan).filter(|_| plan.layout.pp > 1)?;
        makespan(plan.schedule, plan.layout.pp, micro_batches, stages, Seconds::ZERO)
    }

    /// The number of micro-batches, where it is whole.
    pub fn whole_micro_batches(&self, plan: &Plan) -> Option<u32> {
        let micro_batches = self.micro_batches(plan);
        (micro_batches.fract() == 0.0 && micro_batches >= 1.0).then_some(micro_batches as u32)
    }

    /// What the rank of a bidirectional pipeline does that works longest, pairs and passes alone as its list has them.
    fn busiest_played(&self, plan: &Plan, shape: &ShapeCost) -> Option<StepTime> {
        if !plan.schedule.is_bidirectional() {
            return None;
        }
        let micro_batches = self.whole_micro_batches(plan)?;
        let (works, times) = (self.rank_works(plan, shape), self.stage_times(plan, shape));
        let (work, exposed) = self.busiest_rank(plan, micro_batches, &works, &times)?;
        Some(StepTime::busy(&work, exposed, f64::from(micro_batches)))
    }

    /// The rank of a bidirectional pipeline that works longest: what it does with a micro-batch, on average, and what of its
    /// expert traffic stays exposed. `works` are those of the stages that [`Schedule::rank_of`] gives each rank.
    pub(super) fn busiest_rank(
        &self,
        plan: &Plan,
        micro_batches: u32,
        works: &[Work],
        times: &[StageTime],
    ) -> Option<(Work, Seconds)> {
        let busy = busy(plan.schedule, plan.layout.pp, micro_batches, times)?;
        let rank = (0..busy.len()).reduce(|a, b| if busy[b] > busy[a] { b } else { a })?;
        let mut work = works[rank];
        if plan.schedule == Schedule::DualPipe {
            // Half of the micro-batches come through its stage, half through its copy of another.
            work = Work::default();
            work.add(&works[rank], 0.5);
            work.add(&works[works.len() - 1 - rank], 0.5);
        }
        let exposed = if work.ep_beside > Seconds::ZERO || self.pairing(plan).0 > 1.0 {
            (busy[rank] / f64::from(micro_batches) - work.forward() - work.backward()).or_zero()
        } else {
            Seconds::ZERO
        };
        Some((work, exposed))
    }

    /// Share by which stragglers lengthen a step on so many GPUs (J).
    #[allow(clippy::unused_self)] // a law of the problem, whatever it reads of it
    pub(crate) fn slow_down(&self, gpus: u32) -> f64 {
        straggler::slow_down(gpus, self.device.stack.jitter)
    }

    /// What forgetting one whole layer costs, where only the first layers of a chunk are forgotten.
    #[allow(clippy::unused_self)] // as above
    pub(crate) fn forgotten(&self, cost: &LayerCost) -> Seconds {
        recompute::full(cost)
    }
}
