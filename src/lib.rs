//! Finds the fastest parallel layout of a training run on a cluster, and says how sure it is.

pub mod units;
pub mod sources;
pub mod model;
pub mod gpu;
pub mod cluster;
pub mod stack;
pub mod workload;
pub mod schedule;
pub mod plan;
pub mod problem;
pub mod kernel;
pub mod collective;
pub mod cost;
pub mod catalog;
pub mod space;
pub mod search;
pub mod runs;
pub mod report;
#[cfg(feature = "cli")]
pub mod cli;
