//! Recommendation: the plan to launch, which is not always the fastest by the model.
//!
//! ```text
//! search     the fastest plans of the proven space under the memory ceiling of the accepted risk
//! plainest   of those within run-to-run noise of the first, the one with the degrees of a published run of the model on the
//!            GPU, if any has them, else one whose tensor parallelism stays inside the scale-up domain, and of those the one
//!            with fewest settings that differ from a default; a published plan that ran on no more of these GPUs counts as
//!            one that fits, whatever the model's risk
//! fastest    the model's own first choice, whatever its risk and mechanisms, where it is another plan
//! ```
//!
//! An exact search finds the corners where the model is optimistic (the optimizer's curse): the more so, the more
//! mechanisms it may choose from. So what errors cannot tell apart is decided by plainness, and what no run has shown is left
//! out unless nothing else fits.

mod chance;
mod decline;
mod domain;
mod given;
mod ladder;
mod measured;
mod plainness;
mod pooled;
mod preference;
mod preferred_for;
mod prudent;
mod published;
mod recommend;

pub use chance::chances_of_being_best;
pub use decline::{Declined, Reason};
pub use ladder::{GivenUp, Prudence, USUAL_RISK};
pub use measured::{MeasuredRun, StepGivenRuns};
pub use plainness::unusual_settings;
pub use pooled::{DeclinedMixture, PooledAdvice, advise_pools, unproven_in};
pub use preference::{PreferredFor, Unlike};
pub use prudent::prudent;
pub use published::PublishedPlan;
pub use recommend::{Advice, CONDITIONED, EarlierAnswers, advise, recommend_from};
