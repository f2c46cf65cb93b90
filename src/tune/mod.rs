//! Tuning: a folder of trials, the posterior of the step times of a problem's plans, and the plan to time next.
//!
//! The folder holds `tune.toml` (the question), `trials.csv` (one line for each plan, with the outcome of its trial) and one
//! folder of launch files for each trial. Both files are plain text that a person may edit; everything else is worked out
//! from them.

mod document;
mod evidence;
mod folder;
mod launch;
mod matching;
mod outcome;
mod posterior;
mod start;
mod study;
mod trials;

pub use document::document;
pub use evidence::{EnteredOutcome, Evidence, add};
pub use folder::{Folder, Locked};
pub use launch::{AppliedTrial, LaunchedTrial, NextTrials, TrialLaunch, apply, next};
pub use matching::matching;
pub use outcome::{Outcome, of_log};
pub use posterior::{Posterior, TrialOutlook};
pub use start::{NamedText, NewStudy, StudyQuestion, TrialLimits};
pub use study::{Study, TuneError};
pub use trials::{Trial, TrialStatus, Trials};
