//! Numbers from hardware: what can be timed, who times it, and how samples become the curves of a device.

pub mod analytic;
pub mod calibration;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
pub mod doctor;
pub mod fit;
pub mod import;
pub mod kernel;
pub mod parts;
pub mod ranks;
pub mod recorded;
pub mod roofline;
pub mod sample;
pub mod sdpa;
pub mod shapes;
pub mod tensors;
mod verdict;
pub mod verify;

use meshwright_engine::units::{Bytes, Seconds};

pub use analytic::Analytic;
pub use calibration::Calibration;
pub use kernel::Kernel;
pub use recorded::Recorded;
pub use sample::{Machine, Sample, Samples};

/// How often a kernel is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs before the clock starts.
    pub warm_up: u32,
    /// Timed runs.
    pub repeats: u32,
    /// How long a sustained load lasts before it is timed, in seconds.
    pub soak_seconds: u32,
}

impl Effort {
    /// For a look: minutes for a whole plan.
    pub const QUICK: Self = Self { warm_up: 3, repeats: 10, soak_seconds: 2 };
    /// For a calibration that others will use.
    pub const FULL: Self = Self { warm_up: 10, repeats: 50, soak_seconds: 10 };
}

/// Who can time a kernel: the cost model, a recording, or a GPU.
pub trait Probe {
    /// The machine that its samples are from.
    fn machine(&self) -> &Machine;

    /// Times one kernel.
    ///
    /// # Errors
    /// When the kernel was not recorded, the device cannot run it, or the driver fails.
    fn time(&mut self, kernel: &Kernel, effort: Effort) -> Result<Sample, ProbeError>;

    /// Allocates tensors of these sizes all at once, and says how much of the device's memory went.
    ///
    /// # Errors
    /// When there is no device, or not so much memory.
    fn hold(&mut self, sizes: &[u64]) -> Result<Bytes, ProbeError> {
        Err(ProbeError::Unsupported {
            kernel: format!("{} tensors", sizes.len()),
            why: "only a GPU has memory to allocate".into(),
        })
    }
}

/// Why there is no sample.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// A driver, library or device is not there.
    #[error("{what}\n\nhint: {remedy}")]
    Missing {
        /// What.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The recording does not hold it.
    #[error("`{kernel}` is not among the {known} recorded kernels")]
    NotRecorded {
        /// What was asked for.
        kernel: String,
        /// How many there are.
        known: usize,
    },
    /// The device, or this probe, cannot run it.
    #[error("`{kernel}` cannot run here: {why}")]
    Unsupported {
        /// What was asked for.
        kernel: String,
        /// Why not.
        why: String,
    },
    /// A call failed.
    #[error("{call} failed: {why}")]
    Failed {
        /// The call, with its arguments.
        call: String,
        /// The library's own words.
        why: String,
    },
    /// A time that the device cannot reach: the measurement is wrong, not the device fast.
    #[error("`{kernel}` took {time}, and {limit} allows no less than {floor}: the measurement is wrong")]
    BeatsPhysics {
        /// What was timed.
        kernel: String,
        /// What came out.
        time: Seconds,
        /// The least time.
        floor: Seconds,
        /// What bounds it.
        limit: &'static str,
    },
}
