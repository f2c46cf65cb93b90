//! Sweeps: workloads × purchase options, each with its own best plan, and what follows for who buys.
//!
//! A sweep file lists workloads and options ([`file`]); lists and ranges multiply ([`axis`]). Axes that change the machine come
//! before those that only change its price, so that all prices of one machine are neighbours and share one search ([`solve`]).
//! Results go to disk as they come ([`store`]); the finished file is in the order of the options, whatever the threads did.

pub mod axis;
pub mod choice;
pub mod digest;
pub mod file;
pub mod fleet;
pub mod front;
pub mod insight;
pub mod machine;
mod product;
pub mod record;
pub mod run;
pub mod select;
pub mod solve;
pub mod store;
pub mod tornado;

pub use choice::Choice;
pub use file::{Sweep, Task};
pub use record::{Record, Status};

use meshwright_planner::catalog::CatalogError;

/// Most options of one sweep.
pub const MOST_OPTIONS: u64 = 10_000_000;

/// A sweep that cannot be run, or a results file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file cannot be read, or is not of its form.
    #[error("{origin}: {why}")]
    File {
        /// The file.
        origin: String,
        /// What is wrong, and where.
        why: String,
    },
    /// A name of the catalogue.
    #[error("{0}")]
    Catalog(#[from] CatalogError),
    /// A value of the sweep that does not make an option.
    #[error("{key}: {why}")]
    Value {
        /// Where it stands.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// No option.
    #[error("the sweep expands to no option: {0}")]
    Empty(String),
    /// Too many options.
    #[error("the sweep expands to {count} options, over {MOST_OPTIONS}\n\nhint: the axes have {axes} values")]
    TooMany {
        /// How many.
        count: String,
        /// Values of each axis.
        axes: String,
    },
    /// A results file.
    #[error("{path}: {why}")]
    Results {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
}

impl SweepError {
    /// A value that does not fit its key.
    pub fn value(key: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::Value { key: key.into(), why: why.to_string() }
    }

    /// A results file that cannot be used.
    pub fn results(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self::Results { path: path.display().to_string(), why: why.to_string() }
    }
}
