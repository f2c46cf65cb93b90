//! Fits of global, physical constants: kernels and links to tables of measured silicon, then a few constants of whole steps
//! to published runs. Cross-validated by choice: all plans of one model, GPU and sequence are in one fold.

pub mod bounds;
mod descent;
pub mod free;
pub mod report;
pub mod silicon;
pub mod steps;
mod task;

/// Key of the source of constants fitted to runs.
pub const SOURCE: &str = "published-runs";
