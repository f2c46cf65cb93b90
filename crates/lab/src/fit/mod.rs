//! Fitting global, physical constants: kernels and links to tables of measured silicon, then a few constants of whole steps
//! to published runs, cross-validated by choice: all plans of one model, GPU and sequence in one fold.

pub mod bounds;
pub mod free;
pub mod report;
pub mod silicon;
pub mod steps;

/// Key of the source of what is fitted to runs.
pub const SOURCE: &str = "published-runs";
