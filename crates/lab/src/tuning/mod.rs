//! Parameters of the discrepancy model from published runs, and replays of choices in which every layout was measured.
//!
//! Runs are predicted with constants fitted without their fold, so that their errors are those of a model that has not seen
//! them. [`fit`] finds the parameters; [`replay`] asks how many trials each rule needs, and [`score`]
//! sums that up.

mod fit;
mod likelihood;
pub mod replay;
pub mod score;
mod stalls;
mod timed;

pub use fit::fit;
pub use timed::{Predictions, TimedPlan, timed_plans};
