//! Compute that may hide the exchange between replicas at the ends of a step.

use super::costs::Costs;
use super::layer::PassTimes;
use super::work::Work;
use crate::plan::Plan;
use crate::schedule::BackwardRun;
use crate::units::Seconds;

/// Parts of a forward and backward pair, by FLOPs: one is forward, two are backward. Source: specification §1.3.
pub(super) const PARTS: f64 = 3.0;

/// Compute that may hide the communication at the ends of a step: the last backward and the first forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Windows {
    /// Backward that hides gradients.
    pub backward: Seconds,
    /// Forward that hides parameters.
    pub forward: Seconds,
    /// Backward of one micro-batch on the busiest rank.
    pub micro_backward: Seconds,
    /// Number of micro-batches whose backward passes go through a virtual stage one after another.
    pub run: f64,
    /// Number of layers of a rank (nb), each of which exchanges one bucket.
    pub layers: f64,
}

impl Costs<'_> {
    /// Windows that hide the exchange at the ends of the step, from the longest passes of the ranks; each rank comes
    /// with the number of identical ranks. Under interleaving, the gradients of earlier chunks are complete before
    /// those of later ones:
    ///
    /// ```text
    /// window = M_B·(1 + (v−1)/v·(min(p, m) − 1))          specification §5.2, version 1.1
    /// ```
    pub(super) fn dp_windows<'w>(
        &self,
        plan: &Plan,
        ranks: impl Iterator<Item = (&'w Work, f64)> + Clone,
        micro_batches: f64,
    ) -> Windows {
        let PassTimes { forward, backward } = if plan.schedule.is_bidirectional() && plan.layout.pp > 1 {
            self.elapsed(plan, &mean_of_ranks(ranks))
        } else {
            ranks.fold(PassTimes::default(), |longest, (work, _)| {
                let PassTimes { forward, backward } = self.elapsed(plan, work);
                PassTimes { forward: longest.forward.max(forward), backward: longest.backward.max(backward) }
            })
        };
        let wide = self.passes_of_windows(plan, micro_batches);
        let run = backward_run(plan, micro_batches);
        let layers = self.layers_of_rank(plan);
        Windows { backward: backward * wide, forward: forward * wide, micro_backward: backward, run, layers }
    }

    /// Layers of a rank on average, one at least.
    pub(super) fn layers_of_rank(&self, plan: &Plan) -> f64 {
        (f64::from(self.problem.model().layers()) / f64::from(plan.layout.pp)).max(1.0)
    }

    /// Number of passes of a rank that a window spans.
    pub(super) fn passes_of_windows(&self, plan: &Plan, micro_batches: f64) -> f64 {
        let v = f64::from(plan.schedule.virtual_stages());
        if plan.schedule.takes_chunks() && v > 1.0 && self.device.stack.overlap.dp_interleaved_window {
            1.0 + (v - 1.0) / v * (f64::from(plan.layout.pp).min(micro_batches) - 1.0)
        } else {
            1.0
        }
    }

    /// Time that passes during one forward and during one backward of a rank. Where expert traffic runs beside compute, the two
    /// passes of a pair take turns, and a pass lasts as long as the traffic does: a third and two thirds of the pair, as by
    /// their FLOPs (specification §5.5). So the same compute does not hide two exchanges.
    fn elapsed(&self, plan: &Plan, work: &Work) -> PassTimes {
        if work.ep_beside <= Seconds::ZERO {
            return work.passes();
        }
        let pair = if plan.schedule.is_bidirectional() {
            self.pair(plan, work)
        } else {
            work.forward() + work.backward() + work.ep_exposed
        };
        PassTimes { forward: pair / PARTS, backward: pair * (2.0 / PARTS) }
    }
}

/// Number of micro-batches whose backward passes go through a virtual stage one after another, so that its gradients need one
/// reduction for all of them.
///
/// ```text
/// interleaved    min(p, m)        breadth first, GPipe    m        else    1
/// ```
fn backward_run(plan: &Plan, micro_batches: f64) -> f64 {
    let run = match plan.schedule.backward_run() {
        BackwardRun::One => 1.0,
        BackwardRun::Ranks => f64::from(plan.layout.pp),
        BackwardRun::Step => micro_batches,
    };
    run.min(micro_batches).max(1.0)
}

/// Mean work of ranks, each with the number of identical ones: that of every rank of a bidirectional pipeline, which
/// holds a stage from each end.
pub(super) fn mean_of_ranks<'w>(ranks: impl Iterator<Item = (&'w Work, f64)> + Clone) -> Work {
    let all: f64 = ranks.clone().map(|(_, times)| times).sum();
    let mut mean = Work::default();
    for (work, times) in ranks {
        mean.add(work, times / all);
    }
    mean
}
