//! Purchase planning: how many clusters of which option to buy, from when, for which runs.
//!
//! A run stays on one cluster; a fleet may mix kinds. One integer program over columns: a column is one cluster of an option, from
//! the start of a period, with a list of runs that fit before its window closes. Its coefficients are the records' own days and
//! dollars; the answer is added up again from the records ([`check`]) before it is believed.

mod answer;
pub mod check;
pub mod column;
#[cfg(feature = "programs")]
pub mod program;
mod rack;
pub(super) mod request;

pub use answer::{Fleet, FleetLine, FleetProof, NoFleet, OptionCounts, WorkloadRuns};
pub use column::Column;
#[cfg(feature = "programs")]
pub use program::buy;
pub use request::{FleetGoal, Offer, Period, PurchaseRequest};
