//! `trials.csv`: one line for each plan, with the outcome of its trial.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::study::TuneError;

/// Status of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialStatus {
    /// No files were written for it.
    #[default]
    Open,
    /// Its files were written, and no outcome is known.
    Waiting,
    /// It ran and was timed.
    Ran,
    /// It ran out of memory.
    Oom,
    /// It failed for another reason, or for one that is not known.
    Failed,
}

impl TrialStatus {
    /// Whether an outcome is known.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Ran | Self::Oom | Self::Failed)
    }
}

impl std::fmt::Display for TrialStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::Waiting => "waiting",
            Self::Ran => "ran",
            Self::Oom => "out of memory",
            Self::Failed => "failed",
        })
    }
}

/// Plan with the outcome of its trial.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Number of the trial, from 1; its folder has this name in three digits.
    pub trial: u32,
    /// Name of the row that the plan was given by, with `--candidates`.
    #[serde(default)]
    pub id: Option<String>,
    /// Plan as text.
    pub plan: String,
    /// Status.
    #[serde(default)]
    pub status: TrialStatus,
    /// Median step time in seconds.
    #[serde(default)]
    pub step_s: Option<f64>,
    /// Relative standard error of the step time.
    #[serde(default)]
    pub error: Option<f64>,
    /// Number of logged steps.
    #[serde(default)]
    pub steps: Option<u32>,
    /// Peak memory in GiB.
    #[serde(default)]
    pub peak_gib: Option<f64>,
    /// Kind of the peak: allocated, reserved or device.
    #[serde(default)]
    pub memory: Option<String>,
    /// Log, or row of a file, that gave the outcome.
    #[serde(default)]
    pub from: Option<String>,
}

impl Trial {
    /// Name of the folder of its launch files.
    pub fn folder(&self) -> String {
        format!("{:03}", self.trial)
    }
}

/// All trials of a study, by their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trials(pub Vec<Trial>);

impl Trials {
    /// Reads the text of `trials.csv`.
    ///
    /// # Errors
    ///
    /// Names the line that is no trial, or says that there is none.
    pub fn parse(text: &str, path: &Path) -> Result<Self, TuneError> {
        let mut file = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let header = file.headers().map_err(|why| TuneError::invalid(path, Some(1), why))?.clone();
        let mut trials: Vec<Trial> = Vec::new();
        for record in file.records() {
            let record = record.map_err(|why| {
                let line = why.position().map(csv::Position::line);
                TuneError::invalid(path, line, why)
            })?;
            let line = record.position().map(csv::Position::line);
            let trial: Trial = record.deserialize(Some(&header)).map_err(|why| {
                let csv::ErrorKind::Deserialize { err, .. } = why.kind() else {
                    return TuneError::invalid(path, line, why);
                };
                let column = err
                    .field()
                    .and_then(|at| header.get(at as usize))
                    .map_or_else(String::new, |name| format!("column `{name}`: "));
                TuneError::invalid(path, line, format!("{column}{}", err.kind()))
            })?;
            check(&trial, &trials).map_err(|why| TuneError::invalid(path, line, why))?;
            trials.push(trial);
        }
        if trials.is_empty() {
            return Err(TuneError::invalid(path, None, "has no trial"));
        }
        Ok(Self(trials))
    }

    /// Text of `trials.csv`.
    ///
    /// # Errors
    ///
    /// A value has no CSV form, which does not happen.
    pub fn text(&self) -> Result<String, TuneError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let written = self.0.iter().try_for_each(|trial| writer.serialize(trial));
        let refused = |why: &dyn std::fmt::Display| TuneError::Refused(format!("the trials cannot be written: {why}"));
        written.map_err(|why| refused(&why))?;
        let bytes = writer.into_inner().map_err(|why| refused(&why))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Number of trials whose outcome is known.
    pub fn ended(&self) -> usize {
        self.0.iter().filter(|trial| trial.status.has_ended()).count()
    }
}

/// Checks a trial against those before it.
fn check(trial: &Trial, before: &[Trial]) -> Result<(), String> {
    let number = trial.trial;
    if before.iter().any(|other| other.trial == number) {
        return Err(format!("trial {number} is there twice"));
    }
    if before.iter().any(|other| other.plan == trial.plan) {
        return Err(format!("the plan `{}` is there twice", trial.plan));
    }
    let measured = [("step_s", trial.step_s), ("peak_gib", trial.peak_gib)];
    if let Some((name, value)) =
        measured.into_iter().find_map(|(name, value)| Some((name, value.filter(|v| !(v.is_finite() && *v > 0.0))?)))
    {
        return Err(format!("column `{name}`: {value} is not above 0"));
    }
    if trial.error.is_some_and(|error| !(0.0..=1.0).contains(&error)) {
        return Err("column `error`: must be a share between 0 and 1".into());
    }
    if trial.status == TrialStatus::Ran && trial.step_s.is_none() {
        return Err(format!("trial {number} ran, and `step_s` is empty"));
    }
    Ok(())
}
