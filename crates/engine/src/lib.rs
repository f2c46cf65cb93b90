//! The cost model: time and memory of one parallel plan of one model on one cluster.
//!
//! Pure functions over values: no file, clock, environment or thread, and the same digits on every platform. Entry
//! point: [`cost::Costs::evaluate`], for a [`problem::Problem`] and a [`plan::Plan`].

#![warn(clippy::disallowed_methods)]

pub mod ascending;
pub mod cluster;
pub mod collective;
pub mod cost;
pub mod distinct;
pub mod goodput;
pub mod gpu;
pub mod kernel;
pub mod model;
pub mod money;
pub mod plan;
pub mod problem;
pub mod range;
pub mod schedule;
pub mod sources;
pub mod split;
pub mod stack;
pub mod stages;
pub mod suggest;
pub mod transport;
pub mod units;
pub mod workload;
