//! Decisions of integer programs, against enumeration, and the dynamic programs of refinement against HiGHS.
//!
//! Nothing else depends on feature `highs`: `cargo test --features highs --test programs`.
#![cfg(feature = "programs")]

#[path = "../random/mod.rs"]
mod random;

mod fleet;
#[cfg(feature = "highs")]
mod oracle;
mod placement;
