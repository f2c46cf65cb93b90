//! Laboratory: published runs, scored predictions, fitted constants, and kernels timed on a GPU.
//!
//! Entry points: [`runs`] maps a published run to a problem and a plan, [`validate`] scores predictions, [`fit`] fits
//! constants, [`probe`] measures and calibrates, [`tuning`] learns the times of plans from those of timed ones.

pub mod fit;
pub mod least_squares;
pub mod probe;
pub mod runs;
pub mod tuning;
pub mod validate;
