//! A probe that plays samples back: what runs where no GPU is.

use super::{Effort, Kernel, Machine, Probe, ProbeError, Sample, Samples};

/// Samples, as if they were taken now.
#[derive(Clone, Debug)]
pub struct Recorded {
    samples: Samples,
}

impl Recorded {
    /// Plays these samples back.
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
