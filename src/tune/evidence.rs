//! Outcomes of trials, entered into a study.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::folder::Folder;
use super::matching::matching;
use super::outcome::{Outcome, of_log, of_row};
use super::posterior::Posterior;
use super::study::TuneError;
use super::trials::{Trial, TrialStatus, Trials};
use crate::files::Existing;
use crate::question::Noted;
use meshwright_lab::runs::log::condensed::condensed;
use meshwright_lab::runs::{self, differences};
use meshwright_planner::catalog;

/// Outcome with its origin.
#[derive(Debug)]
pub struct Evidence {
    origin: String,
    path: PathBuf,
    outcome: Outcome,
}

impl Evidence {
    /// Outcome by a log.
    ///
    /// # Errors
    ///
    /// The log cannot be read, or has no run.
    pub fn of_log(path: &Path) -> Result<Self, TuneError> {
        let text = catalog::open(path)
            .and_then(condensed)
            .map_err(|why| TuneError::Unreadable { path: path.to_owned(), why })?;
        let origin = path.display().to_string();
        let outcome = of_log(&text).map_err(|why| TuneError::Refused(format!("{origin}: {why}")))?;
        Ok(Self { origin, path: path.to_owned(), outcome })
    }

    /// Outcomes of the rows of a CSV of measured runs, which messages name `origin`.
    ///
    /// # Errors
    ///
    /// The text is no CSV of runs, has no row, or a row states no step time.
    pub fn of_rows(origin: &str, text: &str) -> Result<Vec<Self>, TuneError> {
        let rows = runs::read(text.as_bytes()).map_err(|why| TuneError::Refused(format!("{origin}: {why}")))?;
        if rows.is_empty() {
            return Err(TuneError::Refused(format!("{origin}: has no row")));
        }
        rows.iter()
            .map(|row| {
                let origin = format!("{origin}, line {}", row.line.unwrap_or_default());
                let outcome = of_row(row).map_err(|why| TuneError::Refused(format!("{origin}: {why}")))?;
                Ok(Self { origin, path: PathBuf::new(), outcome })
            })
            .collect()
    }

    /// Trial in whose folder the log lies.
    fn trial_of_folder(&self, posterior: &Posterior) -> Option<usize> {
        let folder = self.path.parent()?.file_name()?.to_str()?;
        posterior.trials().iter().position(|trial| trial.folder() == folder)
    }

    /// Index of the trial that the outcome belongs to; `number` is the one that the user gave.
    fn trial(&self, number: Option<u32>, posterior: &Posterior) -> Result<usize, TuneError> {
        let origin = &self.origin;
        let refused = |why: String| TuneError::Refused(why);
        let named = match number {
            Some(number) => {
                let at = posterior.trials().iter().position(|trial| trial.trial == number);
                Some(at.ok_or_else(|| refused(format!("--trial {number}: the study has no such trial")))?)
            }
            None => self.trial_of_folder(posterior),
        };
        let Some(row) = &self.outcome.row else {
            return named.ok_or_else(|| {
                refused(format!(
                    "{origin}: names no setting, so it is not known which trial it is of\n\nhint: --trial N says which"
                ))
            });
        };
        let Some(at) = named else {
            return matching(row, posterior).map_err(|why| refused(format!("{origin}: {why}")));
        };
        let differs = differences(row, posterior.trial_problem(), posterior.trial_plan(at));
        if differs.is_empty() {
            return Ok(at);
        }
        let trial = posterior.trials()[at].trial;
        Err(refused(format!("{origin}: is not of trial {trial}: it says {}", differs.join(", "))))
    }

    /// Enters the outcome into its trial.
    fn enter(&self, trial: &mut Trial) {
        let Outcome { status, step_s, error, steps, row } = &self.outcome;
        trial.status = *status;
        (trial.step_s, trial.error, trial.steps) = (*step_s, *error, *steps);
        let ran = row.as_ref().filter(|_| *status == TrialStatus::Ran);
        trial.peak_gib = ran.and_then(|row| row.peak_mem_gib.filter(|peak| *peak > 0.0));
        trial.memory = trial.peak_gib.and(ran).and_then(|row| row.mem_kind.clone());
        trial.from = Some(self.origin.clone());
    }
}

/// Outcome as it was entered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnteredOutcome {
    /// Log, or row of a file.
    pub from: String,
    /// Number of the trial.
    pub trial: u32,
    /// Whether it ran.
    pub status: TrialStatus,
    /// Median step time in seconds.
    pub step_s: Option<f64>,
    /// Relative standard error of the step time.
    pub error: Option<f64>,
    /// Number of logged steps.
    pub steps: Option<u32>,
}

/// Enters outcomes into the trials of a study: all of them, or none. `trial` is the number that the user gave. An
/// outcome that a trial has already is replaced only if `existing` allows it.
///
/// # Errors
///
/// The folder is no study, an outcome is of no trial, or its trial has one.
pub fn add(
    folder: &Folder,
    evidence: &[Evidence],
    trial: Option<u32>,
    existing: Existing,
) -> Result<Noted<Vec<EnteredOutcome>>, TuneError> {
    let (locked, Noted { value: posterior, notes }) = folder.lock_posterior()?;
    let mut trials = Trials(posterior.trials().to_vec());
    let mut entered = Vec::new();
    for found in evidence {
        let of = &mut trials.0[found.trial(trial, &posterior)?];
        if of.status.has_ended() && existing == Existing::Keep {
            let from = of.from.clone().unwrap_or_default();
            return Err(TuneError::Refused(format!(
                "{}: trial {} has an outcome already, of {from}\n\nhint: --force replaces it",
                found.origin, of.trial
            )));
        }
        found.enter(of);
        let Trial { trial, status, step_s, error, steps, .. } = *of;
        entered.push(EnteredOutcome { from: found.origin.clone(), trial, status, step_s, error, steps });
    }
    locked.write(&trials)?;
    Ok(Noted { value: entered, notes })
}
