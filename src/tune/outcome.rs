//! Outcome of a trial: from a log, or from a row of measured runs.

use super::study::TuneError;
use super::trials::TrialStatus;
use meshwright_lab::runs::Row;
use meshwright_lab::runs::log::{self, Ending};
use meshwright_lab::validate::sample;

/// Outcome of a trial: its status, step time and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Whether it ran.
    pub status: TrialStatus,
    /// Median step time in seconds.
    pub step_s: Option<f64>,
    /// Relative standard error of the step time.
    pub error: Option<f64>,
    /// Number of logged steps.
    pub steps: Option<u32>,
    /// Settings of its plan, as a row of runs; `None` where the log names no setting.
    pub row: Option<Row>,
}

/// Outcome by a log.
///
/// # Errors
///
/// Neither a step nor an end of a known kind is in it.
pub fn of_log(text: &str) -> Result<Outcome, TuneError> {
    let refused = |why: String| TuneError::Refused(why);
    match (log::read(text), log::ending(text)) {
        (Ok(run), ending) => {
            let status = match ending {
                Ending::OutOfMemory => TrialStatus::Oom,
                Ending::Crashed if run.steps == 0 => TrialStatus::Failed,
                Ending::Crashed | Ending::Open if run.row.step_time_canon_s.is_some() => TrialStatus::Ran,
                Ending::Crashed | Ending::Open => {
                    return Err(refused("it logs no step time yet, and no error: has the run ended?".into()));
                }
            };
            let timed = status == TrialStatus::Ran;
            Ok(Outcome {
                status,
                step_s: run.row.step_time_canon_s.filter(|_| timed),
                error: run.error.filter(|_| timed),
                steps: u32::try_from(run.steps).ok(),
                row: Some(run.row),
            })
        }
        (Err(_), Ending::OutOfMemory) => {
            Ok(Outcome { status: TrialStatus::Oom, step_s: None, error: None, steps: None, row: None })
        }
        (Err(_), Ending::Crashed) => {
            Ok(Outcome { status: TrialStatus::Failed, step_s: None, error: None, steps: None, row: None })
        }
        (Err(why), Ending::Open) => Err(refused(why.to_string())),
    }
}

/// Outcome that a row of measured runs states.
///
/// # Errors
///
/// The row ran and states no step time.
pub fn of_row(row: &Row) -> Result<Outcome, TuneError> {
    let status = match sample::outcome(row) {
        "ok" => TrialStatus::Ran,
        "oom" => TrialStatus::Oom,
        _ => TrialStatus::Failed,
    };
    let step_s = sample::measured(row).filter(|_| status == TrialStatus::Ran);
    if status == TrialStatus::Ran && step_s.is_none() {
        return Err(TuneError::Refused("the row states no step time, and its outcome is ok".into()));
    }
    Ok(Outcome { status, step_s, error: None, steps: None, row: Some(row.clone()) })
}
