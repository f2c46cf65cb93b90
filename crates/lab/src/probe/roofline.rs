//! Roofline: the least time that a device's datasheet allows a kernel; a faster measurement is wrong.

use super::kernel::{Fused, Gemm, HostTransfer, Kernel};
use super::sample::Sample;
use super::source::ProbeError;
use meshwright_engine::gpu::{Format, Gpu};
use meshwright_engine::units::{Bytes, FlopsPerSec, Seconds};

/// Factor by which a sample may exceed the datasheet: its peaks are at the boost clock (1830 MHz on an H100 SXM), the
/// driver may clock higher (1980 MHz, `nvidia-smi -q -d CLOCK`), and single times jitter.
const ABOVE_DATASHEET: f64 = 1.1;

/// The least time of a kernel and what sets it; none where the datasheet says nothing about it.
///
/// ```text
/// GEMM, attention      FLOPs / peak          streaming   bytes / HBM bandwidth        transfer   bytes / host link
/// collective           S·(n−1)/n / B, B the scale-up bandwidth of one GPU: each rank takes in the rest of the tensor
/// ```
///
/// A GEMM's operands may lie in the cache, so that only its FLOPs bound it. Collectives across nodes are bounded by
/// the same links or slower ones.
pub fn floor(kernel: &Kernel, gpu: &Gpu) -> Option<(Seconds, &'static str)> {
    match kernel {
        Kernel::Gemm(gemm) | Kernel::Contended(gemm) | Kernel::Sustained(gemm) => {
            let Gemm { format, .. } = gemm;
            gpu.peak_of(*format).map(|peak| (gemm.flops() / peak, "the peak of the datasheet"))
        }
        Kernel::Attention(core) if core.kernel == Fused::Own => {
            gpu.peak_of(Format::Bf16).map(|peak| (core.flops() / peak, "the peak of the datasheet"))
        }
        Kernel::Attention(core) => {
            let peak = gpu.peak.values().map(|peak| peak.value).fold(FlopsPerSec::ZERO, FlopsPerSec::max);
            Some((core.flops() / peak, "the highest peak of the datasheet"))
        }
        Kernel::Stream { .. } => Some((kernel.streamed() / gpu.hbm_bandwidth.value, "the HBM bandwidth")),
        Kernel::Transfer(HostTransfer { bytes, .. }) => {
            Some((Bytes::new(*bytes as f64) / gpu.host_link.value, "the host link"))
        }
        Kernel::Launch => None,
        Kernel::Collective { op: _, ranks, nodes: _, bytes } => {
            let ranks = *ranks as f64;
            let taken_in = (ranks - 1.0) / ranks;
            Some((Bytes::new(*bytes as f64) * taken_in / gpu.scale_up.bandwidth, "the scale-up bandwidth"))
        }
    }
}

/// Checks that the median of a sample is not below the least time.
///
/// # Errors
///
/// Names the kernel, its time and the least one.
pub fn check(kernel: &Kernel, sample: &Sample, gpu: &Gpu) -> Result<(), ProbeError> {
    let Some((floor, limit)) = floor(kernel, gpu) else { return Ok(()) };
    let time = sample.median();
    if time * ABOVE_DATASHEET < floor {
        return Err(ProbeError::BeatsPhysics { kernel: kernel.to_string(), time, floor, limit });
    }
    Ok(())
}
