//! Reasons why a question cannot be asked.

use std::path::PathBuf;

use meshwright_engine::money::MoneyError;
use meshwright_engine::problem::ProblemError;
use meshwright_engine::range::OutOfRange;
use meshwright_frameworks::import::ImportError;
use meshwright_lab::runs::RunsError;
use meshwright_planner::catalog::CatalogError;

/// Reason why a question cannot be asked; its text names the option or the file, and often a remedy.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// A name of the catalogue is unknown, or a file is invalid.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Model, cluster and workload make no valid problem.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The market has no price for the GPUs.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// A launch file does not parse, or launches no training.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A file of runs is invalid.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A calibration file does not apply.
    #[error("--calibration {}: {why}", path.display())]
    Calibration {
        /// File named by the user.
        path: PathBuf,
        /// Reason, with its causes.
        why: String,
    },
    /// A number is outside the range of its kind.
    #[error(transparent)]
    Range(#[from] OutOfRange),
    /// A value of the answer has no JSON form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// An option has a value outside its range, or does not go with another.
    #[error("{0}")]
    Refused(String),
}

impl QuestionError {
    /// Refusal of an option, in a sentence that begins with its name.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}
