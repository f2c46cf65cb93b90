//! Step time of a pipeline of stages, ZeRO 0–2.

use super::costs::Costs;
use super::data::{Exchange, RankParameters};
use super::groups;
use super::optimizer::Update;
use super::overlap::overlap;
use super::step::StepTime;
use super::windows::{Windows, mean_of_ranks};
use super::work::Work;
use crate::gpu::Collective;
use crate::plan::{Plan, ZeroStage};
use crate::schedule::closed::{Bidirectional, RankSummary, RankTime, SendMode, dual_pipe, exposed_sends};
use crate::units::{Bytes, Seconds};

/// Share of a pair's compute that hides expert traffic run beside it. Source: specification §5.5.
const BESIDE: f64 = 0.85;
/// Processors (SMs) that the overlapped dispatch kernels occupy. Source: specification §3.5 (DeepEP V1).
const DISPATCH_PROCESSORS: f64 = 20.0;

/// Flow of the micro-batches through a pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Work of the busiest rank, and its wait for other stages.
    pub busy: StepTime,
    /// Compute that may hide the edges.
    pub windows: Windows,
    /// Micro-batches.
    pub micro_batches: f64,
    /// Share by which stragglers lengthen the step.
    pub slow_down: f64,
}

/// Times at the two ends of a step, before overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Edges {
    /// Gradients and parameters between replicas.
    pub exchange: Exchange,
    /// Gradients of tied ends.
    pub tied: Seconds,
    /// The update.
    pub update: Update,
}

impl Edges {
    /// Whether no part takes longer than that of `other`.
    pub fn within(&self, other: &Self) -> bool {
        let Self { exchange, tied, update } = self;
        exchange.reduce <= other.exchange.reduce
            && exchange.gather <= other.exchange.gather
            && *tied <= other.tied
            && update.within(other.update)
    }

    /// Minimum, part by part.
    pub fn lesser(&self, other: &Self) -> Self {
        let Self { exchange, tied, update } = self;
        let exchange = exchange.lesser(other.exchange);
        Self { exchange, tied: tied.min(other.tied), update: update.lesser(other.update) }
    }
}

/// Effect of a pair's dispatch kernels and compute on each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PairEffect {
    /// Factor on the time of compute beside dispatch kernels, which take processors (κ).
    pub slower: f64,
    /// Share of expert traffic that compute hides (θ).
    pub hidden: f64,
}

/// Activations of one micro-batch between two stages.
#[derive(Clone, Copy, Debug)]
pub struct StagePayload {
    /// Bytes that one rank sends.
    pub sent: Bytes,
    /// Time in which the receivers gather scattered parts.
    pub gather: Seconds,
}

/// Relative difference below which two sums of the same times may differ by the order of their terms.
const ROUNDING: f64 = 1e-12;

/// Whether a rank takes longer than another by more than rounding, so that of ranks with the same time the first counts, whatever the order
/// in which their times were summed.
pub(super) fn takes_longer(time: Seconds, other: Seconds) -> bool {
    time > other * (1.0 + ROUNDING)
}

impl Costs<'_> {
    /// Time of a send from a stage to the next: b·s·h·2/c bytes, a tp-th of it under sequence parallelism or scatter-gather.
    ///
    /// Source: specification §3.8; without sequence parallelism the receivers all-gather the scattered parts.
    pub(crate) fn stage_send(&self, plan: &Plan) -> Seconds {
        if plan.layout.pp == 1 {
            return Seconds::ZERO;
        }
        let StagePayload { sent, gather } = self.stage_payload(plan);
        self.fabric.pipeline_send(sent, groups::stage_distance(plan), plan.layout.pp, plan.pipeline().loops()) + gather
    }

    /// Activations of one micro-batch between two stages.
    pub fn stage_payload(&self, plan: &Plan) -> StagePayload {
        let whole = Bytes::new(self.tokens(plan) * f64::from(self.problem.model().hidden) * 2.0);
        let scattered = self.device.stack.scatter_gather && !plan.sequence_parallel;
        let shards = if scattered || plan.sequence_parallel { f64::from(plan.layout.tp) } else { 1.0 };
        let gather = if scattered {
            self.fabric.time(Collective::AllGather, whole, groups::tp(plan), 1.0)
        } else {
            Seconds::ZERO
        };
        StagePayload { sent: whole / shards, gather }
    }

    /// Stage-to-stage sends of a step that nothing hides.
    pub(super) fn exposed_stage_sends(&self, plan: &Plan) -> Seconds {
        self.exposed_sends_of(plan, self.stage_send(plan))
    }

    /// Stage-to-stage sends of a step that nothing hides, of which each takes `send`.
    pub(super) fn exposed_sends_of(&self, plan: &Plan, send: Seconds) -> Seconds {
        let mode = if self.device.stack.overlap.pp { SendMode::Asynchronous } else { SendMode::Blocking };
        exposed_sends(plan.pipeline(), self.micro_batches(plan), send, mode)
    }

    /// Flow of the micro-batches through the pipeline; each rank comes with the number of identical ranks.
    pub(super) fn flow<'w>(&self, plan: &Plan, ranks: impl Iterator<Item = (&'w Work, f64)> + Clone) -> Flow {
        let micro_batches = self.micro_batches(plan);
        let busy = if plan.schedule.is_bidirectional() && plan.layout.pp > 1 {
            self.bidirectional(plan, ranks.clone(), micro_batches)
        } else {
            Self::flushed(plan, ranks.clone(), micro_batches)
        };
        let slow_down = self.slow_down(plan.layout.world_size());
        Flow { busy, windows: self.dp_windows(plan, ranks, micro_batches), micro_batches, slow_down }
    }

    /// Time at the two ends of a step, before the windows of its flow hide any.
    pub(super) fn edges(&self, plan: &Plan, heaviest: &RankParameters, update: Update) -> Edges {
        Edges { exchange: self.exchange(plan, heaviest), tied: self.tied_ends(plan), update }
    }

    /// Lower bound on the exposed edges of a step, with infinite windows. A longer window never exposes more, for contention
    /// (σ < 1) costs less than it hides.
    pub(super) fn least_edges(&self, plan: &Plan, zero: ZeroStage, edges: &Edges) -> Seconds {
        self.least_exchange(plan, zero, edges.exchange) + edges.tied + edges.update.device + edges.update.host
    }

    /// Lower bound on the exposed part of an exchange, with infinite windows: a share of it.
    pub(super) fn least_exchange(&self, plan: &Plan, zero: ZeroStage, exchange: Exchange) -> Seconds {
        let endless = Seconds::new(f64::INFINITY);
        let layers = self.layers_of_rank(plan);
        let windows = Windows { backward: endless, forward: endless, micro_backward: endless, run: 1.0, layers };
        self.exposed_exchange(plan, zero, exchange, &windows, 1.0)
    }

    /// A flow, its sends and its edges under `zero` as one step. The plan's own sharding is not read.
    ///
    /// ```text
    /// T_pipe = m·M + bubble + sends          T_step = T_pipe·(1 + J) + T_dp,exposed + T_opt + T_offload
    /// ```
    ///
    /// Source: specification §4.6.
    pub(super) fn flow_step(
        &self,
        plan: &Plan,
        zero: ZeroStage,
        flow: &Flow,
        sends: Seconds,
        edges: &Edges,
    ) -> StepTime {
        let replicas = self.exposed_edges(plan, zero, flow, edges);
        StepTime { pp_comm: sends, ..flow.busy }.with_edges(flow.slow_down, replicas, edges.update)
    }

    /// Exposed part of a step's communication between replicas beside this flow, under `zero`.
    #[inline]
    pub(super) fn exposed_edges(&self, plan: &Plan, zero: ZeroStage, flow: &Flow, edges: &Edges) -> Seconds {
        self.exposed_exchange(plan, zero, edges.exchange, &flow.windows, flow.micro_batches) + edges.tied
    }

    /// Step of a schedule whose ranks compute and wait: the busiest rank sets the pace, and the bubble is its wait.
    fn flushed<'w>(plan: &Plan, ranks: impl Iterator<Item = (&'w Work, f64)>, micro_batches: f64) -> StepTime {
        let simulated = |work: &Work| {
            let time = work.rank_time();
            RankTime { backward: time.backward + work.ep_exposed, ..time }
        };
        let idle = (Work::default(), RankTime::default());
        let mut busiest = (&idle.0, idle.1);
        let all = RankSummary::of(ranks.map(|(work, times)| {
            let time = simulated(work);
            if takes_longer(time.both(), busiest.1.both()) {
                busiest = (work, time);
            }
            (time, times)
        }));
        let waiting = if plan.layout.pp == 1 { Seconds::ZERO } else { all.bubble(plan.schedule, micro_batches) };
        StepTime { pipeline_bubble: waiting, ..StepTime::busy(busiest.0, busiest.0.ep_exposed, micro_batches) }
    }

    /// Expert traffic of one layer run beside its compute that stays exposed, E = dispatch and combine of both passes.
    ///
    /// ```text
    /// (1−θ)·E + max(0, θ·E − 0.85·(F+B)) + σ·min(θ·E, F+B)          specification §5.5
    /// ```
    pub(super) fn exposed_beside(&self, work: &Work) -> Seconds {
        let (theta, sigma) = (self.device.stack.overlap.ep, self.device.gpu.contention.value);
        let busy = work.forward() + work.backward();
        let hidden = work.ep_beside * theta;
        let free = (busy * BESIDE - work.link.sum()).or_zero();
        work.ep_beside * (1.0 - theta) + (hidden - free).or_zero() + hidden.min(busy) * sigma
    }

    /// Counts as exposed the expert traffic of passes that run alone, beside no other micro-batch. Ranks begin with forwards and end with
    /// backwards: rank i of 1F1B with p − i micro-batches of each, those of interleaved 1F1B with p on average.
    ///
    /// ```text
    /// E_exposed = (1−s)·X + s·E      s = min(1, a/m)        a = (p+1)/2, interleaved p        specification §5.5
    /// ```
    ///
    /// X: [`Self::exposed_beside`]. E: the traffic of both passes.
    pub(super) fn expose_alone(&self, plan: &Plan, work: &mut Work) {
        let stages = f64::from(plan.layout.pp);
        let first = if plan.schedule.virtual_stages() == 1 { stages.midpoint(1.0) } else { stages };
        let alone = (first / self.micro_batches(plan)).min(1.0);
        work.ep_exposed += (work.ep_beside - work.ep_exposed).or_zero() * alone;
    }

    /// One forward and one backward that hide each other's expert traffic (`DualPipe`):
    ///
    /// ```text
    /// FB = overlap(F+B, θ·E, 0)·SM/(SM − 20) + (1−θ)·E          specification §5.5
    /// ```
    pub(super) fn pair(&self, plan: &Plan, work: &Work) -> Seconds {
        let PairEffect { slower, hidden: theta } = self.pair_effect(plan);
        let busy = work.forward() + work.backward();
        overlap(busy, work.ep_beside * theta, 0.0) * slower + work.ep_beside * (1.0 - theta)
    }

    /// Effect of a pair's dispatch kernels and compute on each other.
    pub(super) fn pair_effect(&self, plan: &Plan) -> PairEffect {
        let processors = f64::from(self.device.gpu.processors.value);
        let slower = if plan.layout.ep > 1 { processors / (processors - DISPATCH_PROCESSORS).max(1.0) } else { 1.0 };
        PairEffect { slower, hidden: self.device.stack.overlap.ep }
    }

    /// Step of a bidirectional schedule: stages are averaged, for every rank holds one from each end.
    fn bidirectional<'w>(
        &self,
        plan: &Plan,
        ranks: impl Iterator<Item = (&'w Work, f64)> + Clone,
        micro_batches: f64,
    ) -> StepTime {
        let mean = mean_of_ranks(ranks);
        let (pair, busy) = (self.pair(plan, &mean), mean.forward() + mean.backward());
        let Bidirectional { unpaired, bubble } = dual_pipe(plan.pipeline(), micro_batches, pair, mean.unpaired_time());
        let share = unpaired / micro_batches;
        let exposed = (pair - busy) * (1.0 - share) + mean.ep_beside * share;
        StepTime { pipeline_bubble: bubble, ..StepTime::busy(&mean, exposed, micro_batches) }
    }
}
