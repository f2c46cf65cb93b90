//! Times of kernels from recorded samples, and the probe that answers with them, for hosts without a GPU.

use super::kernel::Kernel;
use super::sample::{Machine, Sample, Samples};
use super::source::{Effort, Probe, ProbeError};
use meshwright_engine::units::{Bytes, Seconds};

impl Samples {
    /// Median time of a kernel: its own, or that of the nearest streaming kernel, scaled.
    pub fn time(&self, kernel: &Kernel) -> Option<Seconds> {
        if let Some(sample) = self.of.get(kernel) {
            return Some(sample.median());
        }
        let near = self.of.iter().filter_map(|(timed, sample)| Some((kernel.relative_to(timed)?, sample)));
        let (ratio, sample) = near.min_by(|(a, _), (b, _)| a.ln().abs().total_cmp(&b.ln().abs()))?;
        Some(sample.median() * ratio)
    }

    /// Sample of these kernels as one run, or of a run whose streaming kernels have slightly other sizes.
    pub fn run(&self, kernels: &[Kernel]) -> Option<&Sample> {
        let is_similar = |timed: &[Kernel]| {
            timed.len() == kernels.len() && timed.iter().zip(kernels).all(|(a, b)| b.relative_to(a).is_some())
        };
        self.together.get(kernels).or_else(|| Some(self.together.iter().find(|(timed, _)| is_similar(timed))?.1))
    }
}

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
        let scaled = || Sample::new([self.samples.time(kernel)?]).ok();
        self.samples
            .of
            .get(kernel)
            .cloned()
            .or_else(scaled)
            .ok_or_else(|| ProbeError::NotRecorded { kernel: kernel.to_string(), known: self.samples.of.len() })
    }

    fn recorded(&self) -> Option<&Samples> {
        Some(&self.samples)
    }

    fn together(&mut self, kernels: &[Kernel], _: Effort) -> Result<Sample, ProbeError> {
        self.samples.run(kernels).cloned().ok_or_else(|| ProbeError::NotRecorded {
            kernel: format!("{} kernels one after another", kernels.len()),
            known: self.samples.together.len(),
        })
    }

    fn hold(&mut self, sizes: &[u64]) -> Result<Bytes, ProbeError> {
        let known = self.samples.held.get(sizes).map(|bytes| Bytes::new(*bytes as f64));
        known.ok_or_else(|| ProbeError::NotRecorded {
            kernel: format!("{} tensors", sizes.len()),
            known: self.samples.held.len(),
        })
    }
}
