//! Sweeps: workloads × purchase options, each with its own best plan, and conclusions for the buyer.
//!
//! A sweep file lists workloads and options ([`file`]); lists and ranges multiply ([`axis`]). Axes that change the machine
//! come before those that only change its price, so that all prices of one machine are adjacent and share one search
//! ([`solve`]). Results are written as they are computed ([`store`]); the finished file is in the order of the options on
//! any number of threads.

pub mod axis;
pub mod choice;
pub mod digest;
mod done;
mod error;
pub mod file;
pub mod fleet;
pub mod front;
pub mod insight;
pub mod machine;
mod networks;
mod part;
mod problem;
mod product;
pub mod record;
mod results;
pub mod run;
pub mod select;
mod shard;
pub mod slurm;
pub mod solve;
pub mod store;
mod task;
pub mod tornado;

pub use choice::Choice;
pub use error::{MOST_OPTIONS, SweepError};
pub use file::Sweep;
pub use networks::{UnpricedNetworks, unpriced_networks};
pub use record::{OptionStatus, Record};
pub use shard::Shard;
pub use task::Task;
