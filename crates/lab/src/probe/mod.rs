//! Measurements on hardware: kernels to time, probes that time them, and curves fitted to the samples.

pub mod analytic;
pub mod calibration;
pub mod checked;
pub mod clocks;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod curves;
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
mod source;
pub mod tensors;
mod verdict;
pub mod verify;

pub use analytic::Analytic;
pub use calibration::Calibration;
pub use kernel::Kernel;
pub use recorded::Recorded;
pub use sample::{Machine, Sample, Samples};
pub use source::{Effort, Probe, ProbeError};
