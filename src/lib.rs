//! Finds the fastest parallel layout of a training run on a cluster, and says how sure it is.

pub mod catalog;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cluster;
pub mod collective;
pub mod cost;
pub mod emit;
pub mod express;
pub mod goodput;
pub mod gpu;
pub mod kernel;
pub mod model;
pub mod money;
pub mod plan;
pub mod problem;
pub mod report;
pub mod runs;
pub mod schedule;
pub mod search;
pub mod sources;
pub mod space;
pub mod stack;
pub mod suggest;
pub mod units;
pub mod validate;
pub mod workload;
