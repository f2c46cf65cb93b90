//! Work of a rank, a virtual stage or a layer on one micro-batch, by kind of work.

use super::layer::PassTimes;
use crate::schedule::closed::RankTime;
use crate::units::Seconds;

/// Work on one micro-batch, by kind: compute, recomputation, each communication, waits for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Kernels of the model.
    pub compute: PassTimes,
    /// Recomputation, in backward.
    pub recompute: Seconds,
    /// Tensor-parallel collectives.
    pub tp: PassTimes,
    /// Context-parallel exchange.
    pub cp: PassTimes,
    /// Expert exchange that nothing hides.
    pub ep: PassTimes,
    /// Waiting for the maxima of FP8 tensors.
    pub amax: PassTimes,
    /// Waiting for the host.
    pub host: PassTimes,
    /// Expert exchange that the stack runs beside compute (forward and backward), not in the sums below.
    pub ep_beside: Seconds,
    /// Part of `ep_beside` that a layer's own compute does not hide; not in the sums below either.
    pub ep_exposed: Seconds,
    /// Weight gradients, a part of `compute`.
    pub wgrad: Seconds,
    /// Copies between the device and an x86 host, on the link that the device shares with its NIC; not in the sums below.
    pub link: PassTimes,
}

impl Work {
    /// Forward time, exposed communication included.
    pub fn forward(&self) -> Seconds {
        let Self { compute, recompute: _, tp, cp, ep, amax, host, ep_beside: _, ep_exposed: _, wgrad: _, link: _ } =
            self;
        compute.forward + tp.forward + cp.forward + ep.forward + amax.forward + host.forward
    }

    /// Backward time, exposed communication included.
    pub fn backward(&self) -> Seconds {
        let Self { compute, recompute, tp, cp, ep, amax, host, ep_beside: _, ep_exposed: _, wgrad: _, link: _ } = self;
        compute.backward + *recompute + tp.backward + cp.backward + ep.backward + amax.backward + host.backward
    }

    /// Times of forward and backward, exposed communication included.
    pub(super) fn passes(&self) -> PassTimes {
        PassTimes { forward: self.forward(), backward: self.backward() }
    }

    /// Times of a rank, as the schedules take them.
    pub(crate) fn rank_time(&self) -> RankTime {
        RankTime { forward: self.forward(), backward: self.backward(), wgrad: self.wgrad }
    }

    /// Times of a rank in a bidirectional schedule if no pair hides its expert traffic: half of it in each pass.
    pub(super) fn unpaired_time(&self) -> RankTime {
        let half = self.ep_beside / 2.0;
        RankTime { forward: self.forward() + half, backward: self.backward() + half, wgrad: self.wgrad }
    }

    /// Work of a pair of passes: the forward of `self` and the backward of `other`.
    #[must_use]
    pub(super) fn paired_with(&self, other: &Self) -> Self {
        let pair = |forward: PassTimes, backward: PassTimes| PassTimes {
            forward: forward.forward,
            backward: backward.backward,
        };
        let Self { compute, recompute, tp, cp, ep, amax, host, ep_beside, ep_exposed, wgrad, link } = *other;
        Self {
            compute: pair(self.compute, compute),
            recompute,
            tp: pair(self.tp, tp),
            cp: pair(self.cp, cp),
            ep: pair(self.ep, ep),
            amax: pair(self.amax, amax),
            host: pair(self.host, host),
            ep_beside: (self.ep_beside + ep_beside) / 2.0,
            ep_exposed: (self.ep_exposed + ep_exposed) / 2.0,
            wgrad,
            link: pair(self.link, link),
        }
    }

    /// Adds `times` of `other`.
    pub fn add(&mut self, other: &Self, times: f64) {
        let pair = |to: &mut PassTimes, from: PassTimes| {
            to.forward += from.forward * times;
            to.backward += from.backward * times;
        };
        let Self { compute, recompute, tp, cp, ep, amax, host, ep_beside, ep_exposed, wgrad, link } = *other;
        pair(&mut self.compute, compute);
        pair(&mut self.link, link);
        self.recompute += recompute * times;
        pair(&mut self.tp, tp);
        pair(&mut self.cp, cp);
        pair(&mut self.ep, ep);
        pair(&mut self.amax, amax);
        pair(&mut self.host, host);
        self.ep_beside += ep_beside * times;
        self.ep_exposed += ep_exposed * times;
        self.wgrad += wgrad * times;
    }
}
