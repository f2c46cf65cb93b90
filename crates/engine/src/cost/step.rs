//! The named terms of a step and their one sum.

use serde::Serialize;

use super::footprint::Footprint;
use super::optimizer::Update;
use super::term::Term;
use super::work::Work;
use crate::plan::Plan;
use crate::units::Seconds;

/// Time of one optimizer step by term. Communication counts as far as it is exposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// Kernels of the model on the busiest rank.
    pub compute: Seconds,
    /// Recomputation in backward.
    pub recompute: Seconds,
    /// Tensor-parallel collectives.
    pub tp_comm: Seconds,
    /// Context-parallel exchange.
    pub cp_comm: Seconds,
    /// Expert dispatch and combine.
    pub ep_comm: Seconds,
    /// Waiting for the maxima of FP8 tensors under delayed scaling.
    pub amax_comm: Seconds,
    /// Waiting for the host to launch kernels.
    pub host: Seconds,
    /// Waiting for other stages.
    pub pipeline_bubble: Seconds,
    /// Stage-to-stage sends.
    pub pp_comm: Seconds,
    /// Waiting for the slowest of many nodes.
    pub stragglers: Seconds,
    /// Gradients and parameters between replicas.
    pub dp_comm: Seconds,
    /// The update.
    pub optimizer: Seconds,
    /// Traffic with the host.
    pub offload: Seconds,
}

impl StepTime {
    /// Every term with its name: the one list behind [`total`](Self::total), the tables and the JSON.
    pub fn terms(&self) -> [(Term, Seconds); 13] {
        let Self {
            compute,
            recompute,
            tp_comm,
            cp_comm,
            ep_comm,
            amax_comm,
            host,
            pipeline_bubble,
            pp_comm,
            stragglers,
            dp_comm,
            optimizer,
            offload,
        } = *self;
        [
            (Term::Compute, compute),
            (Term::Recompute, recompute),
            (Term::TpComm, tp_comm),
            (Term::CpComm, cp_comm),
            (Term::EpComm, ep_comm),
            (Term::AmaxComm, amax_comm),
            (Term::Host, host),
            (Term::PipelineBubble, pipeline_bubble),
            (Term::PpComm, pp_comm),
            (Term::Stragglers, stragglers),
            (Term::DpComm, dp_comm),
            (Term::Optimizer, optimizer),
            (Term::Offload, offload),
        ]
    }

    /// The step time.
    pub fn total(&self) -> Seconds {
        self.terms().into_iter().map(|(_, time)| time).sum()
    }

    /// Step of a flow with its sends: stragglers lengthen all of it, then the exchange between replicas and the update are
    /// added. Steps are assembled here only.
    pub(super) fn with_edges(self, slow_down: f64, replicas: Seconds, update: Update) -> Self {
        let stragglers = self.total() * slow_down;
        let Update { device: optimizer, host: offload } = update;
        Self { stragglers, dp_comm: self.dp_comm + replicas, optimizer, offload, ..self }
    }

    /// Total of [`Self::with_edges`] where the flow and its sends take `flow`.
    pub(super) fn total_with_edges(flow: Seconds, slow_down: f64, replicas: Seconds, update: Update) -> Seconds {
        flow + flow * slow_down + replicas + update.device + update.host
    }

    /// `micro_batches` of a rank's work, with `ep` of expert traffic that the schedule could not hide in each.
    pub(super) fn busy(work: &Work, ep: Seconds, micro_batches: f64) -> Self {
        let Work {
            compute,
            recompute,
            tp,
            cp,
            ep: in_line,
            amax,
            host,
            ep_beside: _,
            ep_exposed: _,
            wgrad: _,
            link: _,
        } = *work;
        Self {
            compute: compute.sum() * micro_batches,
            recompute: recompute * micro_batches,
            tp_comm: tp.sum() * micro_batches,
            cp_comm: cp.sum() * micro_batches,
            ep_comm: (in_line.sum() + ep) * micro_batches,
            amax_comm: amax.sum() * micro_batches,
            host: host.sum() * micro_batches,
            ..Self::default()
        }
    }
}

/// Plan with its step time and memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The plan.
    pub plan: Plan,
    /// Its step time.
    pub step: StepTime,
    /// Memory of its fullest rank.
    pub footprint: Footprint,
}
