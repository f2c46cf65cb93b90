//! `tune.toml`: the question of a study, and its stopping rule.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::FileError;
use crate::question::{Question, QuestionError};
use meshwright_engine::range;
use meshwright_planner::catalog::{CatalogError, parse_toml};

/// Name of the file of the question.
pub(super) const STUDY: &str = "tune.toml";
/// Version of the form of the folder.
const SCHEMA: u32 = 1;

/// Question of a study and its limits.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Version of the form.
    pub schema: u32,
    /// Framework whose files are written for a trial; none are where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// Relative loss of step time that does not matter.
    pub tolerance: f64,
    /// Most trials.
    pub budget: u32,
    /// Number of GPUs of a trial, where it is less than the problem's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_gpus: Option<u32>,
    /// Model, cluster, workload and stack.
    pub problem: Question,
}

/// Error of a study's folder.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The folder is no study.
    #[error("{}: no study is there: {} is missing\n\nhint: meshwright tune init MODEL CLUSTER --dir \
    {}", .0.display(), STUDY, .0.display())]
    Missing(PathBuf),
    /// A study is there already.
    #[error("{}: a study is there already\n\nhint: --force replaces it, and forgets its trials", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read.
    #[error("{}: cannot be read: {why}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause; part of the message.
        why: std::io::Error,
    },
    /// A file is there, but not in its form.
    #[error("{}{}: {why}", path.display(), line.map_or_else(String::new, |line| format!(", line {line}")))]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1, where one is at fault.
        line: Option<u64>,
        /// Reason, in words.
        why: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Written(#[from] FileError),
    /// The question cannot be asked.
    #[error(transparent)]
    Question(#[from] QuestionError),
    /// A name of the catalogue is unknown.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A trial, a log or a row does not fit the study.
    #[error("{0}")]
    Refused(String),
}

impl TuneError {
    /// Error of a file that is not in its form.
    pub(super) fn invalid(path: &Path, line: Option<u64>, why: impl std::fmt::Display) -> Self {
        Self::Invalid { path: path.to_owned(), line, why: why.to_string() }
    }
}

impl Study {
    /// Study of a question.
    pub const fn new(
        problem: Question,
        framework: Option<String>,
        tolerance: f64,
        budget: u32,
        trial_gpus: Option<u32>,
    ) -> Self {
        Self { schema: SCHEMA, framework, tolerance, budget, trial_gpus, problem }
    }

    /// Reads the text of `tune.toml`.
    ///
    /// # Errors
    ///
    /// The text is no study of this version, with the line at fault.
    pub fn parse(text: &str, path: &Path) -> Result<Self, TuneError> {
        let study: Self = parse_toml(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() as u64 + 1);
            TuneError::invalid(path, line, error.message())
        })?;
        if study.schema != SCHEMA {
            return Err(TuneError::invalid(
                path,
                None,
                format!(
                    "schema {} cannot be read: this version reads schema {SCHEMA}\n\nhint: meshwright tune init starts a new study",
                    study.schema
                ),
            ));
        }
        study.check().map_err(|why| TuneError::invalid(path, None, why))?;
        Ok(study)
    }

    /// Checks the limits.
    ///
    /// # Errors
    ///
    /// Names the limit that is outside its range.
    pub fn check(&self) -> Result<(), String> {
        if !(self.tolerance > 0.0 && self.tolerance < 1.0) {
            return Err(format!("tolerance {}: must be a share above 0 and below 1, such as 0.05", self.tolerance));
        }
        range::COUNT.check("budget", f64::from(self.budget)).map_err(|why| why.to_string())?;
        if self.budget == 0 {
            return Err("budget 0: at least one trial is needed".into());
        }
        range::GPUS.check("trial_gpus", f64::from(self.trial_gpus.unwrap_or(1))).map_err(|why| why.to_string())
    }

    /// Text of `tune.toml`.
    ///
    /// # Errors
    ///
    /// A value of the question has no TOML form.
    pub fn text(&self) -> Result<String, TuneError> {
        let body = toml::to_string(self)
            .map_err(|why| TuneError::Refused(format!("the question cannot be written: {why}")))?;
        Ok(format!(
            "# A study of `meshwright tune`: what is trained on what, and when timing ends. Trials are in trials.csv.\n{body}"
        ))
    }
}
