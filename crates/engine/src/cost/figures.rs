//! Figures that follow from a step time and a footprint.

use super::step::Evaluation;
use crate::gpu::Format;
use crate::model::flops::AttentionConvention;
use crate::problem::Problem;
use crate::units::{Bytes, FlopsPerSec, Seconds};

/// Throughput, MFU and memory of a plan, for its user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Step time T.
    pub step: Seconds,
    /// Tokens per second and GPU.
    pub tokens_per_second: f64,
    /// Model FLOP/s of one GPU.
    pub rate: FlopsPerSec,
    /// Share of the dense bf16 peak, whatever the format of the GEMMs, as publications count it; 0 where the device has
    /// no such peak.
    pub mfu: f64,
    /// Peak memory of the fullest rank, as the device shows it.
    pub peak: Bytes,
    /// Memory budget of the HBM profile less the peak, in GiB; negative if the plan does not fit.
    pub headroom_gib: f64,
}

impl Figures {
    /// Figures of an evaluated plan.
    ///
    /// ```text
    /// tokens/s/GPU = B·s/(T·N)      FLOP/s = F(s)·tokens/s/GPU      MFU = FLOP/s / peak(bf16)
    /// ```
    ///
    /// B sequences of s tokens, N GPUs that the plan uses, F the causal model FLOPs of one token ([`Problem::flops_per_token`]).
    pub fn new(problem: &Problem, evaluation: &Evaluation) -> Self {
        let cluster = problem.cluster();
        let step = evaluation.step.total();
        let tokens = problem.workload().tokens_per_step() / f64::from(evaluation.plan.layout.world_size());
        let flops = problem.flops_per_token(AttentionConvention::Causal);
        let rate = flops * tokens / step;
        let peak = evaluation.footprint.peak();
        Self {
            step,
            tokens_per_second: tokens / step.get(),
            rate,
            mfu: cluster.gpu.peak_of(Format::Bf16).map_or(0.0, |most| rate / most),
            peak,
            headroom_gib: problem.headroom(peak).as_gib(),
        }
    }
}
