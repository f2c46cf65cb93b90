//! A device under one software stack, and its streaming kernels.

use super::call::{Call, Meter};
use crate::gpu::{Format, Gpu, Host};
use crate::stack::Stack;
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Device with the software that drives it.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// GPU or other accelerator.
    pub gpu: &'a Gpu,
    /// Software stack of the framework.
    pub stack: &'a Stack,
    /// Format of most GEMMs.
    pub format: Format,
    /// Processor of the hosts.
    pub host: Host,
    /// Observer of all kernel calls; none by default.
    pub meter: Option<&'a dyn Meter>,
}

/// Remaining share of kernel gaps, and of the host's work, when CUDA graphs replay the kernels.
///
/// Source: specification §2.1 (gaps) and §2.9 of version 1.1 (host floor).
mod graphs {
    pub const GAP: f64 = 0.3;
    pub const HOST: f64 = 0.12;
}

impl Device<'_> {
    /// Time of a kernel: predicted, or replaced by the meter.
    pub(super) fn metered(&self, call: &Call, predicted: Seconds) -> Seconds {
        self.meter.map_or(predicted, |meter| meter.time(call, predicted))
    }

    /// Gap before each streaming kernel.
    pub fn gap(&self) -> Seconds {
        self.gpu.kernel_gap.value * if self.stack.cuda_graphs { graphs::GAP } else { 1.0 }
    }

    /// Bandwidth of streaming kernels, without the extra passes of the stack.
    pub fn streaming_bandwidth(&self) -> BytesPerSec {
        self.gpu.hbm_bandwidth.value * self.gpu.hbm_efficiency.value
    }

    /// Time of `kernels` streaming kernels that move `traffic` bytes together.
    ///
    /// ```text
    /// T = EW·bytes/(BW·e_mem) + kernels·t_op          specification §2.4
    /// ```
    ///
    /// EW is the stack's traffic against perfectly fused kernels.
    pub fn stream(&self, traffic: Bytes, kernels: f64) -> Seconds {
        let traffic = traffic * self.stack.traffic;
        let predicted = traffic / self.streaming_bandwidth() + self.gap() * kernels;
        self.metered(&Call::Stream { traffic, kernels }, predicted)
    }

    /// Time of streaming kernels that every stack fuses equally (optimizer, gradient norms).
    pub fn stream_fused(&self, traffic: Bytes, kernels: f64) -> Seconds {
        let predicted = traffic / self.streaming_bandwidth() + self.gpu.kernel_gap.value * kernels;
        self.metered(&Call::Stream { traffic, kernels }, predicted)
    }

    /// Host time of `launches` kernel launches, a lower bound of a layer's time (specification §2.9).
    pub fn host_floor(&self, launches: f64) -> Seconds {
        self.stack.launches.host_time(self.host) * (launches * self.replayed())
    }

    /// Share of the host's work that CUDA graphs leave.
    pub fn replayed(&self) -> f64 {
        if self.stack.cuda_graphs { graphs::HOST } else { 1.0 }
    }
}
