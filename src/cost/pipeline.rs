//! Step time of a pipeline of stages, ZeRO 0–2.

use super::stage::{ShapeCost, Work};
use super::step::StepTime;
use super::{Costs, groups, overlap::overlap, straggler};
use crate::gpu::Collective;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::schedule::closed::{RankTime, bubble, dual_pipe, exposed_sends};
use crate::units::{Bytes, Seconds};

/// Share of a pair's compute that hides expert traffic run beside it. Source: specification §5.5.
const BESIDE: f64 = 0.85;
/// Processors that the overlapped dispatch kernels keep. Source: specification §3.5 (DeepEP V1).
const DISPATCH_PROCESSORS: f64 = 20.0;

impl Costs<'_> {
    /// One way from a stage to the next: b·s·h·2/c bytes, a tp-th of it under sequence parallelism or scatter-gather.
    ///
    /// Source: specification §3.8; without sequence parallelism the receiver gathers what was scattered.
    pub fn stage_send(&self, plan: &Plan) -> Seconds {
        if plan.layout.pp == 1 {
            return Seconds::ZERO;
        }
        let whole = Bytes::new(self.tokens(plan) * f64::from(self.problem.model().hidden) * 2.0);
        let scattered = self.device.stack.scatter_gather && !plan.sequence_parallel;
        let shards = if scattered || plan.sequence_parallel { f64::from(plan.layout.tp) } else { 1.0 };
        let send = self.fabric.send(whole / shards, groups::stage_distance(plan));
        let gather = if scattered {
            self.fabric.time(Collective::AllGather, whole, groups::tp(plan), 1.0)
        } else {
            Seconds::ZERO
        };
        send + gather
    }

    /// Step time.
    ///
    /// ```text
    /// T_pipe = m·M + bubble + sends          T_step = T_pipe·(1 + J) + T_dp,exposed + T_opt + T_offload
    /// ```
    ///
    /// Source: specification §4.6.
    pub(super) fn pipeline_step(&self, plan: &Plan, shape: &ShapeCost) -> StepTime {
        let micro_batches = self.micro_batches(plan);
        let ranks = self.rank_works(plan, shape);
        let sends = exposed_sends(
            plan.schedule,
            plan.layout.pp,
            micro_batches,
            self.stage_send(plan),
            self.device.stack.overlap.pp,
        );
        let bidirectional = matches!(plan.schedule, Schedule::DualPipe | Schedule::DualPipeV) && plan.layout.pp > 1;
        let mut step = if bidirectional {
            self.bidirectional(plan, &ranks, micro_batches)
        } else {
            self.flushed(plan, &ranks, micro_batches)
        };
        step.pp_comm = sends;
        step.stragglers = step.total() * straggler::slow_down(plan.layout.world_size(), self.device.stack.jitter);
        let windows = self.dp_windows(plan, &ranks, micro_batches);
        step.dp_comm = self.data_parallel(plan, &windows, micro_batches);
        step.optimizer = self.optimizer_step(plan);
        step.offload = self.offloaded(plan, shape, &windows, micro_batches);
        step
    }

    /// Schedules whose ranks compute and wait: the busiest rank sets the pace, the bubble is what it waits.
    fn flushed(&self, plan: &Plan, ranks: &[Work], micro_batches: f64) -> StepTime {
        let exposed: Vec<Seconds> = ranks.iter().map(|work| self.beside(work)).collect();
        let times: Vec<RankTime> = ranks
            .iter()
            .zip(&exposed)
            .map(|(work, &ep)| {
                let time = work.rank_time();
                RankTime { backward: time.backward + ep, ..time }
            })
            .collect();
        let busiest =
            (0..times.len()).reduce(|a, b| if times[b].both() > times[a].both() { b } else { a }).unwrap_or(0);
        let waiting = if times.len() == 1 { Seconds::ZERO } else { bubble(plan.schedule, &times, micro_batches) };
        StepTime { pipeline_bubble: waiting, ..StepTime::busy(&ranks[busiest], exposed[busiest], micro_batches) }
    }

    /// Expert traffic run beside compute that stays exposed, E = dispatch and combine of both passes.
    ///
    /// ```text
    /// (1−θ)·E + max(0, θ·E − 0.85·(F+B)) + σ·min(θ·E, F+B)          specification §5.5
    /// ```
    fn beside(&self, work: &Work) -> Seconds {
        let (theta, sigma) = (self.device.stack.overlap.ep, self.device.gpu.contention.value);
        let busy = work.forward() + work.backward();
        let hidden = work.ep_beside * theta;
        work.ep_beside * (1.0 - theta) + (hidden - busy * BESIDE).or_zero() + hidden.min(busy) * sigma
    }

    /// `DualPipe`: stages are averaged, for every rank holds one from each end.
    ///
    /// ```text
    /// FB = overlap(F+B, θ·E, 0)·SM/(SM − 20) + (1−θ)·E          specification §5.5
    /// ```
    fn bidirectional(&self, plan: &Plan, ranks: &[Work], micro_batches: f64) -> StepTime {
        let mut mean = Work::default();
        for work in ranks {
            mean.add(work, 1.0 / ranks.len() as f64);
        }
        let theta = self.device.stack.overlap.ep;
        let processors = f64::from(self.device.gpu.processors.value);
        let kept = if plan.layout.ep > 1 { processors / (processors - DISPATCH_PROCESSORS).max(1.0) } else { 1.0 };
        let busy = mean.forward() + mean.backward();
        let pair = overlap(busy, mean.ep_beside * theta, 0.0) * kept + mean.ep_beside * (1.0 - theta);
        let half = mean.ep_beside / 2.0;
        let alone = RankTime { forward: mean.forward() + half, backward: mean.backward() + half, wgrad: mean.wgrad };
        let (_, waiting) = dual_pipe(plan.layout.pp, micro_batches, pair, alone);
        StepTime { pipeline_bubble: waiting, ..StepTime::busy(&mean, pair - busy, micro_batches) }
    }
}
