//! One step as it is played: every operation of every rank, and what the memory of each rank holds meanwhile.

use super::stage::Work;
use super::step::StepTime;
use super::{Costs, Footprint};
use crate::plan::Plan;
use crate::schedule::ops::Pass;
use crate::schedule::replay::{Event, Trace, replay};
use crate::units::{Bytes, Seconds};

/// Shares of one pass of a chunk, by what the time is spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Kernels, what is computed again, and waiting for the host.
    pub compute: Seconds,
    /// Exposed tensor-parallel collectives.
    pub tp: Seconds,
    /// Exposed context-parallel exchange.
    pub cp: Seconds,
    /// Exposed expert exchange.
    pub ep: Seconds,
}

/// One step of one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The plan.
    pub plan: Plan,
    /// Terms of the step, the bubble as played.
    pub step: StepTime,
    /// Every operation.
    pub events: Vec<Event>,
    /// When the last operation ends.
    pub makespan: Seconds,
    /// One way between neighbouring stages.
    pub send: Seconds,
    /// Of each chunk: forward and backward.
    pub parts: Vec<(Parts, Parts)>,
    /// Memory of each rank at its peak.
    pub footprints: Vec<Footprint>,
    /// Activations that one micro-batch leaves on each chunk.
    pub kept: Vec<Bytes>,
}

impl Costs<'_> {
    /// Plays a step; `None` for schedules without a list of operations and for micro-batches that are not whole.
    ///
    /// ZeRO 3 gathers layer by layer: its gathers are not operations of the schedule, and count in the step alone.
    pub fn timeline(&self, plan: &Plan) -> Option<Timeline> {
        let micro_batches = self.micro_batches(plan);
        if micro_batches.fract() != 0.0 || micro_batches < 1.0 {
            return None;
        }
        let shape = self.shape(plan);
        let stages = self.stage_times(plan, &shape);
        let send = self.stage_send(plan);
        let trace = replay(plan.schedule, plan.layout.pp, micro_batches as u32, &stages, send)?;
        let works = self.chunk_works(plan, &shape);
        let parts = works
            .iter()
            .zip(&stages)
            .map(|(work, time)| {
                let Work { compute: _, recompute: _, tp, cp, ep, host: _, ep_beside: _, wgrad: _ } = *work;
                let forward = Parts { compute: Seconds::ZERO, tp: tp.forward, cp: cp.forward, ep: ep.forward }
                    .filled(time.forward);
                let beside = time.backward - work.backward();
                let backward =
                    Parts { compute: Seconds::ZERO, tp: tp.backward, cp: cp.backward, ep: ep.backward + beside }
                        .filled(time.backward);
                (forward, backward)
            })
            .collect();
        let footprints = self.footprints(plan);
        let flying: Vec<f64> = (0..plan.layout.pp).map(|rank| peak_in_flight(&trace.events, rank)).collect();
        let chunks = f64::from(plan.schedule.virtual_stages());
        let kept = (0..works.len() as u32)
            .map(|chunk| {
                let rank = plan.schedule.rank_of(chunk, plan.layout.pp) as usize;
                // Passes in flight count chunks, and the rank's peak is shared out among them.
                footprints[rank].activations / flying[rank].max(1.0 / chunks)
            })
            .collect();
        let step = self.evaluate_played(plan).step;
        let Trace { makespan, events } = trace;
        Some(Timeline { plan: *plan, step, events, makespan, send, parts, footprints, kept })
    }
}

impl Parts {
    /// The rest of a pass is compute.
    fn filled(self, whole: Seconds) -> Self {
        Self { compute: (whole - self.tp - self.cp - self.ep).or_zero(), ..self }
    }

    /// The parts with the names of their streams.
    pub const fn streams(&self) -> [(&'static str, Seconds); 4] {
        let Self { compute, tp, cp, ep } = *self;
        [("compute", compute), ("TP", tp), ("CP", cp), ("EP", ep)]
    }
}

/// The most passes whose activations a rank holds at once.
fn peak_in_flight(events: &[Event], rank: u32) -> f64 {
    let (mut now, mut most) = (0_i64, 0);
    for event in events.iter().filter(|event| event.rank == rank) {
        match event.op.pass {
            Pass::Forward => now += 1,
            Pass::Backward => now -= 1,
            Pass::Wgrad => {}
        }
        most = most.max(now);
    }
    most as f64
}
