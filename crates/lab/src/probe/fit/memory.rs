//! Fits of single figures: streaming bandwidth, host link, contention and launches.

use std::collections::BTreeMap;

use super::{medians, minimise};
use crate::probe::curves::rounded;
use crate::probe::kernel::{Direction, HostTransfer, Kernel, StreamOp};
use crate::probe::sample::Sample;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::units::{BytesPerSec, Seconds};
use meshwright_planner::median::upper_median;

/// Fewest copies for fitting the streaming bandwidth.
const LEAST: usize = 3;
/// Duration of the shortest kernel, in gaps, up to which the gap can be fitted.
const GAPS: f64 = 10.0;
/// Bytes below which a transfer is bound by its latency, not by the link.
const LARGE_TRANSFER: u64 = 16 << 20;

/// Share of the HBM bandwidth that copies reach (`e_mem`), and the gap between kernels (`t_op`) if short copies were timed.
///
/// Copies stand for the streaming kernels of a plan, whose further traffic is the stack's (EW). The probe's other
/// kernels, such as its cross-entropy at 59 % of the bandwidth, are its own and no stack's.
///
/// ```text
/// T = bytes/(BW·e_mem) + t_op          specification §2.4
/// ```
pub fn streaming(samples: &BTreeMap<Kernel, Sample>, gpu: &Gpu) -> (Option<f64>, Option<Seconds>) {
    let timed = medians(samples, |kernel| match kernel {
        Kernel::Stream { op: StreamOp::Copy, .. } => Some(kernel.streamed() / gpu.hbm_bandwidth.value),
        _ => None,
    });
    if timed.len() < LEAST {
        return (None, None);
    }
    let gap = gpu.kernel_gap.value;
    let short = timed.iter().any(|(_, time)| *time < gap * GAPS);
    let residuals = |p: &[f64]| {
        let gap = p.get(1).map_or(gap.get(), |p| p.exp());
        timed.iter().map(|(floor, time)| ((floor.get() / p[0].exp() + gap) / time.get()).ln()).collect::<Vec<_>>()
    };
    let start = gpu.hbm_efficiency.value.ln();
    let start = if short && timed.len() > LEAST { vec![start, gap.get().max(1e-7).ln()] } else { vec![start] };
    let Some((found, _)) = minimise(&[start], &residuals) else { return (None, None) };
    (Some(rounded(found[0].exp()).min(1.0)), found.get(1).map(|gap| Seconds::new(rounded(gap.exp()))))
}

/// Bandwidth of the host link: that of large transfers in the slower direction.
pub fn host_link(samples: &BTreeMap<Kernel, Sample>) -> Option<BytesPerSec> {
    let mut fastest: BTreeMap<Direction, f64> = BTreeMap::new();
    for (kernel, sample) in samples {
        if let Kernel::Transfer(transfer) = kernel
            && transfer.bytes >= LARGE_TRANSFER
            && *transfer == HostTransfer::alone(transfer.direction, transfer.bytes)
        {
            let rate = transfer.bytes as f64 / sample.median().get();
            let known = fastest.entry(transfer.direction).or_default();
            *known = known.max(rate);
        }
    }
    fastest.values().copied().reduce(f64::min).map(|rate| BytesPerSec::new(rounded(rate)))
}

/// Contention (σ): relative slow-down of GEMMs beside a copy, as the median of all shapes timed both ways.
///
/// It is a lower bound: copies on one GPU use none of NVLink, whose traffic draws power and memory bandwidth too.
pub fn contention(samples: &BTreeMap<Kernel, Sample>) -> Option<f64> {
    let more: Vec<f64> = samples
        .iter()
        .filter_map(|(kernel, beside)| {
            let Kernel::Contended(gemm) = kernel else { return None };
            let alone = samples.get(&Kernel::Gemm(*gemm))?;
            Some((beside.median() / alone.median() - 1.0).max(0.0))
        })
        .collect();
    upper_median(more).map(rounded)
}

/// Host time of one launch.
pub fn launch(samples: &BTreeMap<Kernel, Sample>) -> Option<Seconds> {
    samples.get(&Kernel::Launch).map(|sample| Seconds::new(rounded(sample.median().get())))
}
