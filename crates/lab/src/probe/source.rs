//! Sources of kernel times, and the reasons why there is no sample.

use super::kernel::Kernel;
use super::sample::{Machine, Sample, Samples};
use meshwright_engine::units::{Bytes, Seconds};

/// Number of repeats of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Number of runs before timing starts.
    pub warm_up: u32,
    /// Number of timed runs.
    pub repeats: u32,
    /// Time for which a kernel runs before it is timed, in milliseconds: clocks settle under its own power, as in a step.
    /// From rest they hold for 50 ms. Source: [meshwright-silicon].
    pub heat_ms: u32,
    /// Duration of the load before a sustained measurement, in seconds.
    pub soak_seconds: u32,
}

impl Effort {
    /// Effort for a quick check: minutes for a whole plan.
    pub const QUICK: Self = Self { warm_up: 3, repeats: 10, heat_ms: 100, soak_seconds: 2 };
    /// Effort for a calibration that others will use.
    pub const FULL: Self = Self { warm_up: 10, repeats: 50, heat_ms: 300, soak_seconds: 10 };
}

/// Source of kernel times: the cost model, a recording, or a GPU.
pub trait Probe {
    /// Machine of the samples.
    fn machine(&self) -> &Machine;

    /// Samples that were taken before, if the probe answers from them.
    fn recorded(&self) -> Option<&Samples> {
        None
    }

    /// Times one kernel.
    ///
    /// # Errors
    ///
    /// The kernel was not recorded, the device cannot run it, or the driver fails.
    fn time(&mut self, kernel: &Kernel, effort: Effort) -> Result<Sample, ProbeError>;

    /// Times kernels that run one after another, as one run.
    ///
    /// # Errors
    ///
    /// The run was not recorded, the device cannot run one of them, or the driver fails.
    fn together(&mut self, kernels: &[Kernel], _: Effort) -> Result<Sample, ProbeError> {
        Err(ProbeError::Unsupported {
            kernel: format!("{} kernels one after another", kernels.len()),
            why: "only a GPU runs them".into(),
        })
    }

    /// Allocates tensors of these sizes together, and returns the device memory that they take.
    ///
    /// # Errors
    ///
    /// There is no device, or its memory does not suffice.
    fn hold(&mut self, sizes: &[u64]) -> Result<Bytes, ProbeError> {
        Err(ProbeError::Unsupported {
            kernel: format!("{} tensors", sizes.len()),
            why: "only a GPU has memory to allocate".into(),
        })
    }
}

/// Reason why there is no sample.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// A driver, library or device is missing.
    #[error("{what}\n\nhint: {remedy}")]
    Missing {
        /// Name of the missing library or device.
        what: String,
        /// Instruction for the user.
        remedy: String,
    },
    /// The recording does not have the kernel.
    #[error("`{kernel}` is not among the {known} that were recorded")]
    NotRecorded {
        /// Requested kernel.
        kernel: String,
        /// Number of recorded kernels.
        known: usize,
    },
    /// The device or the probe cannot run the kernel.
    #[error("`{kernel}` cannot run here: {why}")]
    Unsupported {
        /// Requested kernel.
        kernel: String,
        /// Reason, as text.
        why: String,
    },
    /// A library call failed.
    #[error("{call} failed: {why}")]
    Failed {
        /// The call with its arguments.
        call: String,
        /// Error message of the library.
        why: String,
    },
    /// A time is below the device's physical limit, so the measurement is wrong.
    #[error("`{kernel}` took {time}, and {limit} allows no less than {floor}: the measurement is wrong")]
    BeatsPhysics {
        /// Kernel that was timed.
        kernel: String,
        /// Time that was measured.
        time: Seconds,
        /// Least possible time.
        floor: Seconds,
        /// Resource that limits the time.
        limit: &'static str,
    },
}
