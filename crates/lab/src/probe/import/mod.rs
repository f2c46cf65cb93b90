//! Samples that others took: published tables, nccl-tests, traces of the PyTorch profiler.

pub mod kineto;
pub mod nccl_tests;
pub mod tables;

use super::kernel::Kernel;
use super::{Sample, Samples};

/// What an import brings, and what it left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// Samples by kernel, in the order of the file.
    pub samples: Vec<(Kernel, Sample)>,
    /// Rows that are not samples of something that the model knows, counted by reason.
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

    /// Adds the samples to others; what the file says of the machine fills what is not known of it yet.
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

/// A file that holds no samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is not of the form.
    #[error("this is no {what}: {why}")]
    Form {
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// One row is not.
    #[error("row {row}: {why}")]
    Row {
        /// Which, from 1, with the heading.
        row: usize,
        /// What is wrong.
        why: String,
    },
}
