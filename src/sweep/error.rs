//! Errors of a sweep file or a results file.

use crate::files::FileError;
use meshwright_planner::catalog::CatalogError;

/// Largest number of options of one sweep.
pub const MOST_OPTIONS: u64 = 10_000_000;

/// Error in a sweep file or a results file.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file cannot be read, or is not a sweep file.
    #[error("{origin}: {why}")]
    File {
        /// Path of the file.
        origin: String,
        /// Error and its position.
        why: String,
    },
    /// A name is not in the catalogue.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A value of the sweep is invalid.
    #[error("{key}: {why}")]
    Value {
        /// Key of the value.
        key: String,
        /// Reason why it is invalid.
        why: String,
    },
    /// The sweep has no options.
    #[error("the sweep expands to no option: {0}")]
    Empty(String),
    /// The sweep has too many options.
    #[error("the sweep expands to {count} options, over {MOST_OPTIONS}\n\nhint: the axes have {axes} values")]
    TooMany {
        /// Number of options.
        count: String,
        /// Number of values of each axis.
        axes: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Written(#[from] FileError),
    /// A limit of time or memory was reached before every option was solved.
    #[error(
        "stopped at --time-limit or --memory-limit before every option was solved\n\nhint: results that were written are kept: \
         go on with --resume, or with a higher limit or fewer options"
    )]
    Stopped,
    /// A results file cannot be used.
    #[error("{path}: {why}")]
    Results {
        /// Path of the file.
        path: String,
        /// Reason, in words.
        why: String,
    },
}

impl SweepError {
    /// Error of a value that does not fit its key.
    pub fn value(key: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::Value { key: key.into(), why: why.to_string() }
    }

    /// Error of a results file that cannot be used.
    pub fn results(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self::Results { path: path.display().to_string(), why: why.to_string() }
    }
}
