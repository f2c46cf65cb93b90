//! Fits of the attention curves, and of the occupancy that they share.

use std::collections::{BTreeMap, BTreeSet};

use super::{log_error, medians, minimise};
use crate::probe::curves::rounded;
use crate::probe::kernel::{Attention, Fused, Kernel, Mask};
use crate::probe::sample::Sample;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::{AttentionCurve, AttentionKernel, AttentionOccupancy, Format, Gpu};
use meshwright_engine::kernel::{Device, Pass, PassTimes};
use meshwright_engine::stack::Stack;
use meshwright_engine::units::{FlopsPerSec, Seconds};

/// Fewest lengths for fitting the half-way length; one shape suffices for a rate.
const LEAST: usize = 3;
/// Head dimension with a speed of its own.
const NARROW: u64 = 64;
/// Largest number of shapes of one direction that differ only in length, for which the occupancy is not fitted.
const OCCUPANCIES: usize = 3;

/// Parameter of the joint fit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parameter {
    Forward(AttentionKernel),
    Backward(AttentionKernel),
    HalfSequence(AttentionKernel),
    NarrowHeads(AttentionKernel),
    OccupancyForward,
    OccupancyBackward,
}

impl Parameter {
    /// Kernel whose curve the parameter belongs to; `None` for the occupancy, which all kernels share.
    const fn kernel(self) -> Option<AttentionKernel> {
        match self {
            Self::Forward(kernel) | Self::Backward(kernel) | Self::HalfSequence(kernel) | Self::NarrowHeads(kernel) => {
                Some(kernel)
            }
            Self::OccupancyForward | Self::OccupancyBackward => None,
        }
    }
}

fn value(parameter: Parameter, gpu: &Gpu) -> f64 {
    let curve = |kernel| &gpu.attention[&kernel];
    match parameter {
        Parameter::Forward(kernel) => curve(kernel).forward.get(),
        Parameter::Backward(kernel) => curve(kernel).backward.get(),
        Parameter::HalfSequence(kernel) => curve(kernel).half_sequence,
        Parameter::NarrowHeads(kernel) => curve(kernel).narrow_heads,
        Parameter::OccupancyForward => gpu.attention_occupancy.forward,
        Parameter::OccupancyBackward => gpu.attention_occupancy.backward,
    }
}

fn set(parameter: Parameter, value: f64, gpu: &mut Gpu) {
    let mut curve = |kernel, change: &dyn Fn(&mut AttentionCurve)| {
        if let Some(curve) = gpu.attention.get_mut(&kernel) {
            change(curve);
        }
    };
    match parameter {
        Parameter::Forward(kernel) => curve(kernel, &|curve| curve.forward = FlopsPerSec::new(value)),
        Parameter::Backward(kernel) => curve(kernel, &|curve| curve.backward = FlopsPerSec::new(value)),
        Parameter::HalfSequence(kernel) => curve(kernel, &|curve| curve.half_sequence = value),
        Parameter::NarrowHeads(kernel) => curve(kernel, &|curve| curve.narrow_heads = value),
        Parameter::OccupancyForward => gpu.attention_occupancy.forward = value,
        Parameter::OccupancyBackward => gpu.attention_occupancy.backward = value,
    }
}

/// Timed library kernel.
struct TimedAttention {
    kernel: AttentionKernel,
    core: Attention,
    time: Seconds,
}

/// Attention curves and occupancy that samples determine.
pub struct AttentionFit {
    /// Curves of the kernels whose rates were fitted or raised.
    pub curves: BTreeMap<AttentionKernel, AttentionCurve>,
    /// Occupancy, if the number of heads varies.
    pub occupancy: Option<AttentionOccupancy>,
}

/// Fits the curves of the timed kernels for which the device has a curve, and the occupancy if the number of heads varies.
///
/// A direction that was not timed keeps its rate, unless its prediction is slower than the probe's own kernel on some
/// shape: then its rate is raised until it is not.
pub fn fit(samples: &BTreeMap<Kernel, Sample>, cluster: &Cluster, stack: &Stack) -> AttentionFit {
    let timed: Vec<TimedAttention> = medians(samples, |kernel| match kernel {
        Kernel::Attention(core) => match core.kernel {
            Fused::Library(kernel) if cluster.gpu.attention.contains_key(&kernel) => Some((kernel, *core)),
            Fused::Library(_) | Fused::Own => None,
        },
        _ => None,
    })
    .into_iter()
    .map(|((kernel, core), time)| TimedAttention { kernel, core, time })
    .collect();
    let own = medians(samples, |kernel| match kernel {
        Kernel::Attention(core) if core.kernel == Fused::Own => Some(*core),
        _ => None,
    });
    let mut gpu = cluster.gpu.clone();
    if let Some(curve) = gpu.gemm.get_mut(&Format::Bf16) {
        curve.sustained = 1.0; // times of short loops, at full clocks
    }
    // Rates of cast formats are a ratio in the stack; loops are timed in bf16.
    let stack = Stack { fp8_attention: false, ..stack.clone() };
    let fitted = fit_timed(&timed, &mut gpu, cluster, &stack);
    let raised = raise(&own, &timed, &mut gpu, cluster, &stack);
    let kernels: BTreeSet<AttentionKernel> =
        fitted.iter().filter_map(|parameter| parameter.kernel()).chain(raised).collect();
    AttentionFit {
        curves: kernels.into_iter().map(|kernel| (kernel, curve(kernel, &gpu, &fitted))).collect(),
        occupancy: fitted.contains(&Parameter::OccupancyForward).then(|| AttentionOccupancy {
            forward: rounded(gpu.attention_occupancy.forward),
            backward: rounded(gpu.attention_occupancy.backward),
            source: String::new(),
        }),
    }
}

/// Fits the parameters that the timed kernels determine together, and sets them on the device; returns those that were fitted.
fn fit_timed(timed: &[TimedAttention], gpu: &mut Gpu, cluster: &Cluster, stack: &Stack) -> Vec<Parameter> {
    let parameters = parameters(timed);
    if parameters.is_empty() {
        return parameters;
    }
    let curve_of = |logs: &[f64]| {
        let mut gpu = gpu.clone();
        for (parameter, log) in parameters.iter().zip(logs) {
            set(*parameter, log.exp(), &mut gpu);
        }
        gpu
    };
    let errors = |logs: &[f64]| errors(timed, &curve_of(logs), cluster, stack);
    let start: Vec<f64> = parameters.iter().map(|parameter| value(*parameter, gpu).max(1e-3).ln()).collect();
    let Some((found, _)) = minimise(&[start], &errors) else { return Vec::new() };
    let found: Vec<f64> = found.iter().map(|log| rounded(log.exp()).ln()).collect();
    *gpu = curve_of(&found);
    parameters
}

/// Curve of a kernel as a file states it: rounded, and heads of 64 only where their speed was fitted.
fn curve(kernel: AttentionKernel, gpu: &Gpu, fitted: &[Parameter]) -> AttentionCurve {
    let AttentionCurve { forward, backward, half_sequence, narrow_heads, source: _ } = gpu.attention[&kernel];
    let narrow_is_fitted = fitted.contains(&Parameter::NarrowHeads(kernel));
    AttentionCurve {
        forward: FlopsPerSec::new(rounded(forward.get())),
        backward: FlopsPerSec::new(rounded(backward.get())),
        half_sequence: rounded(half_sequence),
        narrow_heads: if narrow_is_fitted { rounded(narrow_heads) } else { narrow_heads },
        source: String::new(),
    }
}

/// Parameters that the samples determine: each timed rate, the half-way length if lengths vary, the speed of heads of 64 where
/// they were timed beside others, and the occupancy if the number of blocks varies at one length.
fn parameters(timed: &[TimedAttention]) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let kernels: BTreeSet<AttentionKernel> = timed.iter().map(|of| of.kernel).collect();
    for kernel in kernels {
        let timed_in = |pass| timed.iter().filter(move |of| of.kernel == kernel && of.core.pass == pass);
        if timed_in(Pass::Forward).next().is_some() {
            parameters.push(Parameter::Forward(kernel));
        }
        if timed_in(Pass::Dgrad).next().is_some() {
            parameters.push(Parameter::Backward(kernel));
        }
        let lengths: BTreeSet<u64> = timed.iter().filter(|of| of.kernel == kernel).map(|of| of.core.queries).collect();
        if lengths.len() >= LEAST && !parameters.is_empty() {
            parameters.push(Parameter::HalfSequence(kernel));
        }
        let causal = timed.iter().filter(|of| of.kernel == kernel && of.core.mask == Mask::Causal);
        let all = causal.clone().count();
        let narrow = causal.filter(|of| of.core.qk_dim == NARROW).count();
        if narrow >= LEAST && all - narrow >= LEAST {
            parameters.push(Parameter::NarrowHeads(kernel));
        }
    }
    let mut heads_at: BTreeMap<(Pass, u64), BTreeSet<u64>> = BTreeMap::new();
    for TimedAttention { core, .. } in timed {
        heads_at.entry((core.pass, core.queries)).or_default().insert(core.heads * core.sequences);
    }
    let varied = |pass| heads_at.iter().any(|((of, _), heads)| *of == pass && heads.len() > OCCUPANCIES);
    if !parameters.is_empty() && varied(Pass::Forward) {
        parameters.push(Parameter::OccupancyForward);
        if varied(Pass::Dgrad) {
            parameters.push(Parameter::OccupancyBackward);
        }
    }
    parameters
}

/// Logarithmic errors of the predicted times of timed kernels.
fn errors(timed: &[TimedAttention], gpu: &Gpu, cluster: &Cluster, stack: &Stack) -> Vec<f64> {
    timed.iter().map(|of| log_error(predicted(of.kernel, &of.core, gpu, cluster, stack), of.time)).collect()
}

fn predicted(kernel: AttentionKernel, core: &Attention, gpu: &Gpu, cluster: &Cluster, stack: &Stack) -> Seconds {
    let device = Device { gpu, stack, format: Format::Bf16, host: cluster.host, meter: None };
    let PassTimes { forward, backward } = device.attention(&core.into(), kernel);
    if core.pass == Pass::Forward { forward } else { backward }
}

/// Raises the rates of untimed directions whose prediction is slower than the probe's own kernel; returns the kernels whose
/// rates changed.
fn raise(
    own: &[(Attention, Seconds)],
    timed: &[TimedAttention],
    gpu: &mut Gpu,
    cluster: &Cluster,
    stack: &Stack,
) -> Vec<AttentionKernel> {
    let mut raised = Vec::new();
    for kernel in gpu.attention.keys().copied().collect::<Vec<_>>() {
        for (pass, rate) in [(Pass::Forward, Parameter::Forward(kernel)), (Pass::Dgrad, Parameter::Backward(kernel))] {
            if timed.iter().any(|of| of.kernel == kernel && of.core.pass == pass) {
                continue;
            }
            let slower = own
                .iter()
                .filter(|(core, _)| {
                    core.pass == pass && Attention { kernel: Fused::Library(kernel), ..*core }.bound().is_some()
                })
                .map(|(core, time)| predicted(kernel, core, gpu, cluster, stack) / *time)
                .fold(1.0, f64::max);
            if slower > 1.0 {
                set(rate, value(rate, gpu) * slower, gpu);
                raised.push(kernel);
            }
        }
    }
    raised
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::kernel::Mask;
    use meshwright_planner::catalog::{self, Overrides};

    const KERNEL: AttentionKernel = AttentionKernel::Fa2;
    const CORE: Attention = Attention {
        kernel: Fused::Own,
        pass: Pass::Forward,
        sequences: 1,
        heads: 32,
        kv_heads: 8,
        queries: 8192,
        keys: 8192,
        qk_dim: 128,
        v_dim: 128,
        mask: Mask::Causal,
    };

    /// Rates of forward and backward before and after [`raise`], and the kernels that it raised.
    struct Raised {
        before: [f64; 2],
        after: [f64; 2],
        kernels: Vec<AttentionKernel>,
    }

    /// Outcome if the probe's own kernel took this share of the predicted forward time.
    fn raised(share: f64, library_timed: bool) -> Raised {
        let sets = Overrides::default();
        let cluster = catalog::cluster("dgx-h100-8", &sets).unwrap();
        let stack = catalog::stack("nemo-25", &sets).unwrap();
        let mut gpu = cluster.gpu.clone();
        let rates = |gpu: &Gpu| [Parameter::Forward(KERNEL), Parameter::Backward(KERNEL)].map(|rate| value(rate, gpu));
        let before = rates(&gpu);
        let own = [(CORE, predicted(KERNEL, &CORE, &gpu, &cluster, &stack) * share)];
        let library = Attention { kernel: Fused::Library(KERNEL), ..CORE };
        let timed = [TimedAttention { kernel: KERNEL, core: library, time: own[0].1 }];
        let kernels = raise(&own, if library_timed { &timed } else { &[] }, &mut gpu, &cluster, &stack);
        Raised { before, after: rates(&gpu), kernels }
    }

    #[test]
    fn a_library_is_not_slower_than_the_probe_s_own_kernel() {
        let Raised { before, after, kernels } = raised(0.5, false);
        assert!((after[0] / before[0] - 2.0).abs() < 1e-9, "{before:?} {after:?}");
        assert_eq!(after[1].to_bits(), before[1].to_bits());
        assert!(kernels.contains(&KERNEL) && !kernels.contains(&AttentionKernel::Unfused));
    }

    #[test]
    fn a_slower_kernel_of_the_probe_says_nothing_and_a_timed_rate_stays() {
        for (share, library_timed) in [(1.5, false), (0.5, true)] {
            let Raised { before, after, kernels } = raised(share, library_timed);
            assert_eq!(before.map(f64::to_bits), after.map(f64::to_bits));
            assert!(!kernels.contains(&KERNEL));
        }
    }
}
