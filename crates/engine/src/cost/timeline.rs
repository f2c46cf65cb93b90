//! Timeline of a simulated step: every operation of every rank, and the memory of each rank over time.

use super::costs::Costs;
use super::footprint::Footprint;
use super::step::StepTime;
use super::work::Work;
use crate::plan::Plan;
use crate::schedule::replay::{Event, StageTime, Trace, replay};
use crate::schedule::slot::Pass;
use crate::units::{Bytes, Seconds};

/// Shares of one pass of a chunk, by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassParts {
    /// Kernels, recomputation, and waiting for the host.
    pub compute: Seconds,
    /// Exposed tensor-parallel collectives, and the maxima of FP8 tensors.
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
    /// Terms of the step, with the simulated bubble.
    pub step: StepTime,
    /// Every operation.
    pub events: Vec<Event>,
    /// Time at which the last operation ends.
    pub makespan: Seconds,
    /// Time of a send between neighbouring stages.
    pub send: Seconds,
    /// Parts of the forward and of the backward of each chunk, each pass alone.
    pub parts: Vec<(PassParts, PassParts)>,
    /// Expert traffic of one pass of each chunk that a pair hides, part of `parts`.
    pub hideable: Vec<Seconds>,
    /// Memory of each rank at its peak.
    pub footprints: Vec<Footprint>,
    /// Activations that a micro-batch leaves on each rank when it goes forward through one of its chunks.
    pub kept: Vec<Bytes>,
}

impl Costs<'_> {
    /// Simulates a step; `None` if the schedule cannot run it, or its micro-batches are fractional.
    ///
    /// ZeRO 3 gathers layer by layer: its gathers are not operations of the schedule, and count in the step alone.
    pub fn timeline(&self, plan: &Plan) -> Option<Timeline> {
        let micro_batches = self.whole_micro_batches(plan)?;
        let shape = self.shape(plan);
        let stages = self.stage_times(plan, &shape);
        let send = self.stage_send(plan);
        let trace = replay(plan.pipeline(), micro_batches, &stages, send)?;
        let works = self.chunk_works(plan, &shape);
        let parts = works.iter().zip(&stages).map(|(work, time)| pass_parts(work, time)).collect();
        let bidirectional = plan.schedule.is_bidirectional() && plan.layout.pp > 1;
        let hideable = |work: &Work| if bidirectional { work.ep_beside / 2.0 } else { Seconds::ZERO };
        let hideable = works.iter().map(hideable).collect();
        let footprints = self.footprints(plan);
        // Passes in flight count chunks, and the rank's peak is shared out among them.
        let kept = footprints
            .iter()
            .map(|footprint| footprint.activations / peak_in_flight(&trace.events, footprint.rank))
            .collect();
        let step = self.evaluate_simulated(plan).step;
        let Trace { makespan, events } = trace;
        Some(Timeline { plan: plan.clone(), step, events, makespan, send, parts, hideable, footprints, kept })
    }
}

/// Parts of the forward and of the backward of one chunk. Time beyond the chunk's own work is expert traffic.
fn pass_parts(work: &Work, time: &StageTime) -> (PassParts, PassParts) {
    let Work { compute: _, recompute: _, tp, cp, ep, amax, host: _, ep_beside: _, ep_exposed: _, wgrad: _, link: _ } =
        *work;
    let parts = |whole: Seconds, tp: Seconds, cp: Seconds, ep: Seconds| PassParts {
        compute: (whole - tp - cp - ep).or_zero(),
        tp,
        cp,
        ep,
    };
    let (exposed, exposed_back) = (time.forward - work.forward(), time.backward - work.backward());
    (
        parts(time.forward, tp.forward + amax.forward, cp.forward, ep.forward + exposed),
        parts(time.backward, tp.backward + amax.backward, cp.backward, ep.backward + exposed_back),
    )
}

impl PassParts {
    /// The parts with the names of their streams.
    pub const fn streams(&self) -> [(&'static str, Seconds); 4] {
        let Self { compute, tp, cp, ep } = *self;
        [("compute", compute), ("TP", tp), ("CP", cp), ("EP", ep)]
    }
}

/// Largest number of passes of a rank that are between their forward and their backward, one at the least.
fn peak_in_flight(events: &[Event], rank: u32) -> f64 {
    let (mut now, mut most) = (0_i64, 1);
    for op in events.iter().filter(|event| event.rank == rank).flat_map(|event| event.slot.ops()) {
        match op.pass {
            Pass::Forward => now += 1,
            Pass::Backward | Pass::Input => now -= 1,
            Pass::Wgrad => {}
        }
        most = most.max(now);
    }
    most as f64
}
