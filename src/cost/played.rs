//! Unequal stages, played: the step time with the bubble that the schedule really leaves.

use super::stage::ShapeCost;
use super::step::Evaluation;
use super::{Costs, layer::LayerCost, recompute, straggler};
use crate::plan::{Plan, ZeroStage};
use crate::schedule::replay::{StageTime, makespan};
use crate::units::Seconds;

impl Costs<'_> {
    /// The price of a legal plan where its schedule is played, operation by operation, on its real unequal stages; the closed
    /// form where there is nothing to play: no pipeline, ZeRO 3, a schedule without a list of operations, micro-batches that
    /// are not whole.
    ///
    /// Sends between stages keep their closed form, which the replay reproduces where pp divides the micro-batches.
    pub fn evaluate_played(&self, plan: &Plan) -> Evaluation {
        let shape = self.shape(plan);
        let mut evaluation = self.evaluate_shaped(plan, &shape);
        if plan.zero != ZeroStage::Three
            && let Some(bubble) = self.played_bubble(plan, &shape)
        {
            let step = &mut evaluation.step;
            step.pipeline_bubble = bubble;
            step.stragglers = Seconds::ZERO;
            let (dp_comm, optimizer, offload) = (step.dp_comm, step.optimizer, step.offload);
            let flow = step.total() - dp_comm - optimizer - offload;
            step.stragglers = flow * self.slow_down(plan.layout.world_size());
        }
        evaluation
    }

    /// Time of each chunk on one micro-batch, in model order. Expert traffic that a rank could not hide lies on its chunks as
    /// their work does.
    pub fn stage_times(&self, plan: &Plan, shape: &ShapeCost) -> Vec<StageTime> {
        let ranks = self.rank_works(plan, shape);
        let exposed: Vec<f64> = ranks
            .iter()
            .map(|rank| {
                let busy = rank.forward() + rank.backward();
                if busy > Seconds::ZERO { self.beside(rank) / busy } else { 0.0 }
            })
            .collect();
        self.chunk_works(plan, shape)
            .iter()
            .enumerate()
            .map(|(chunk, work)| {
                let share = exposed[plan.schedule.rank_of(chunk as u32, plan.layout.pp) as usize];
                let (forward, backward) = (work.forward(), work.backward());
                StageTime { forward, backward: backward + (forward + backward) * share, wgrad: work.wgrad }
            })
            .collect()
    }

    /// What the busiest rank waits for other stages when the schedule is played, with sends that take no time.
    pub fn played_bubble(&self, plan: &Plan, shape: &ShapeCost) -> Option<Seconds> {
        let micro_batches = self.micro_batches(plan);
        let has_list = crate::schedule::ops::has_list(plan.schedule);
        if plan.layout.pp == 1 || !has_list || micro_batches.fract() != 0.0 || micro_batches < 1.0 {
            return None;
        }
        let stages = self.stage_times(plan, shape);
        let mut busy = vec![Seconds::ZERO; plan.layout.pp as usize];
        for (chunk, time) in stages.iter().enumerate() {
            busy[plan.schedule.rank_of(chunk as u32, plan.layout.pp) as usize] += time.forward + time.backward;
        }
        let most = busy.into_iter().fold(Seconds::ZERO, Seconds::max);
        let whole = makespan(plan.schedule, plan.layout.pp, micro_batches as u32, &stages, Seconds::ZERO)?;
        Some((whole - most * micro_batches).or_zero())
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
