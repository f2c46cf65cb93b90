//! Roofline bound: the least time that the datasheet of a device allows a kernel. A measurement below it is wrong.

use super::kernel::{Fused, Gemm, HostTransfer, Kernel};
use super::sample::Sample;
use super::source::ProbeError;
use meshwright_engine::gpu::{Format, Gpu};
use meshwright_engine::units::{Bytes, FlopsPerSec, Seconds};

/// Factor by which a sample may exceed the datasheet: its peaks are at the boost clock (1830 MHz on an H100 SXM), the
/// driver may clock higher (1980 MHz, `nvidia-smi -q -d CLOCK`), and single times jitter.
const ABOVE_DATASHEET: f64 = 1.1;

/// Least time of a kernel by a device's datasheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RooflineTime {
    /// Lower bound of the kernel's time.
    pub time: Seconds,
    /// Limit of the datasheet that sets it, in words.
    pub limit: &'static str,
}

/// Least time of a kernel; none where the datasheet says nothing about it.
///
/// ```text
/// GEMM, attention      FLOPs / peak          streaming   bytes / HBM bandwidth        transfer   bytes / host link
/// collective           S·(n−1)/n / B, B the scale-up bandwidth of one GPU: each rank takes in the rest of the tensor
/// ```
///
/// A GEMM's operands may lie in the cache, so that only its FLOPs bound it. Collectives across nodes are bounded by
/// the same links or slower ones.
pub fn least_time(kernel: &Kernel, gpu: &Gpu) -> Option<RooflineTime> {
    let (time, limit) = match kernel {
        Kernel::Gemm(gemm) | Kernel::Contended(gemm) | Kernel::Sustained(gemm) => {
            let Gemm { format, .. } = gemm;
            (gemm.flops() / gpu.peak_of(*format)?, "the peak of the datasheet")
        }
        Kernel::Attention(core) if core.kernel == Fused::Own => {
            (core.flops() / gpu.peak_of(Format::Bf16)?, "the peak of the datasheet")
        }
        Kernel::Attention(core) => {
            let peak = gpu.peak.values().map(|peak| peak.value).fold(FlopsPerSec::ZERO, FlopsPerSec::max);
            (core.flops() / peak, "the highest peak of the datasheet")
        }
        Kernel::Stream { .. } => (kernel.streamed() / gpu.hbm_bandwidth.value, "the HBM bandwidth"),
        Kernel::Transfer(HostTransfer { bytes, .. }) => {
            (Bytes::new(*bytes as f64) / gpu.host_link.value, "the host link")
        }
        Kernel::Launch => return None,
        Kernel::Collective { op: _, ranks, nodes: _, bytes } => {
            let ranks = *ranks as f64;
            let taken_in = (ranks - 1.0) / ranks;
            (Bytes::new(*bytes as f64) * taken_in / gpu.scale_up.bandwidth, "the scale-up bandwidth")
        }
    };
    Some(RooflineTime { time, limit })
}

/// Checks that the median of a sample is not below the least time.
///
/// # Errors
///
/// Names the kernel, its time and the least one.
pub fn check(kernel: &Kernel, sample: &Sample, gpu: &Gpu) -> Result<(), ProbeError> {
    let Some(RooflineTime { time: floor, limit }) = least_time(kernel, gpu) else { return Ok(()) };
    let time = sample.median();
    if time * ABOVE_DATASHEET < floor {
        return Err(ProbeError::BeatsPhysics { kernel: kernel.to_string(), time, floor, limit });
    }
    Ok(())
}
