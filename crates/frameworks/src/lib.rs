//! Training frameworks: a plan as launch files, launch files as a plan, and what is wrong with them on a cluster.
//!
//! Entry points: [`emit`], [`import`], [`lint`].

pub mod emit;
pub mod import;
pub mod lint;
