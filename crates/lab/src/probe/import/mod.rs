//! Import of samples from other tools: published tables, nccl-tests, traces of the PyTorch profiler.

pub mod kineto;
pub mod nccl_tests;
pub mod tables;

use super::kernel::Kernel;
use super::sample::{Sample, Samples};

/// Imported samples, with counts of the rows left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// Samples by kernel, in the order of the file.
    pub samples: Vec<(Kernel, Sample)>,
    /// Number of rows that are not samples of a known kernel, by reason.
    pub left: std::collections::BTreeMap<String, usize>,
    /// Device, if the file names it.
    pub device: Option<String>,
    /// Version of the software, if the file names it.
    pub driver: Option<String>,
}

impl Import {
    fn leave(&mut self, why: impl Into<String>) {
        *self.left.entry(why.into()).or_default() += 1;
    }

    /// Adds the samples to others; the file's description of the machine fills empty fields.
    pub fn into_samples(self, samples: &mut Samples) {
        let Self { samples: new, left: _, device, driver } = self;
        for (kernel, sample) in new {
            samples.add(kernel, sample);
        }
        let machine = &mut samples.machine;
        if machine.device.is_empty() {
            machine.device = device.unwrap_or_default();
        }
        if machine.driver.is_empty() {
            machine.driver = driver.unwrap_or_default();
        }
    }
}

/// Reason why a file has no samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleImportError {
    /// The file has the wrong format.
    #[error("this is not a valid {what}: {why}")]
    Form {
        /// Expected format.
        what: &'static str,
        /// Reason, as text.
        why: String,
    },
    /// A row of the file is invalid.
    #[error("row {row}: {why}")]
    Row {
        /// Number of the row, from 1, including the header.
        row: usize,
        /// Reason, as text.
        why: String,
    },
}
