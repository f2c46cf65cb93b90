//! Tuning: a folder of trials, what they say about the plans of a problem, and which plan to time next.
//!
//! The folder holds `tune.toml` (the question), `trials.csv` (one line for each plan, with the outcome of its trial) and one
//! folder of launch files for each trial. Both files are plain text that a person may edit; everything else is worked out
//! from them.

mod folder;
mod matching;
mod outcome;
mod posterior;
mod study;
mod trials;

pub use folder::{Folder, Locked};
pub use matching::matching;
pub use outcome::{Outcome, of_log, of_row};
pub use posterior::{Posterior, TrialOutlook};
pub use study::{Study, TuneError};
pub use trials::{Trial, TrialStatus, Trials};
