//! Probe that answers from recorded samples, for hosts without a GPU.

use super::kernel::Kernel;
use super::sample::{Machine, Sample, Samples};
use super::source::{Effort, Probe, ProbeError};

/// Probe that answers from recorded samples.
#[derive(Clone, Debug)]
pub struct Recorded {
    samples: Samples,
}

impl Recorded {
    /// Creates a probe from samples.
    pub const fn new(samples: Samples) -> Self {
        Self { samples }
    }
}

impl Probe for Recorded {
    fn machine(&self) -> &Machine {
        &self.samples.machine
    }

    fn time(&mut self, kernel: &Kernel, _: Effort) -> Result<Sample, ProbeError> {
        self.samples
            .of
            .get(kernel)
            .cloned()
            .ok_or_else(|| ProbeError::NotRecorded { kernel: kernel.to_string(), known: self.samples.of.len() })
    }
}
