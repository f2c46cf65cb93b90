//! The planner: which plans exist, which of them is fastest under the memory ceiling, and how sure the answer is.
//!
//! Entry points: [`catalog`] for the built-in models and clusters, [`space::Space`] for the legal plans,
//! [`search::search`] for the ranking with its certificate, [`advice`] for the plan to launch, [`refine`] for layers and
//! recomputation by stage, [`pools`] for heterogeneous GPUs, [`confidence`] for intervals, [`discrepancy`] for step times given
//! timed plans.

#![warn(clippy::disallowed_methods)]

pub mod advice;
pub mod catalog;
pub mod confidence;
pub mod discrepancy;
pub mod fnv;
pub mod limits;
pub mod median;
pub mod pools;
pub mod refine;
pub mod search;
pub mod space;
pub mod split_mix;
