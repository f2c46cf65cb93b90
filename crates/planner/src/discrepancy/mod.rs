//! Discrepancy between measured and predicted step times, as a Gaussian model that a few timed plans condition.
//!
//! ```text
//! ln t(x) = ln T(x) + d(x)                                                        [kennedy-2001]
//! d(x)    = φ(x)·(b_stack + w_problem) + g(x) + e_plan
//!
//! b_stack     coefficients of a software stack, normal; published runs of the stack have narrowed them
//! w_problem   their deviation in one problem (a model on a GPU), normal with a variance for each trait
//! g           smooth deviation over degrees: a Gaussian process with a squared-exponential kernel of the problem
//! e_plan      deviation that a plan shares with no other
//! ```
//!
//! T is the predicted step time, φ the [`Traits`] of the plan. On another number of GPUs, w, g and e are those of the
//! plan there, correlated by exp(−|Δ log₂ GPUs| / reach). A stack has a factor on the deviations of its problems, since
//! some are run on quieter machines than others. All laws are normal, so conditioning on a trial is a rank-one update
//! ([`Belief::observe`]), except for the stalled runs of some stacks ([`Stalls`]). Draws of the posterior give the plan
//! to time next ([`Outlook`]), by the expected improvement [jones-1998], and the expected loss of stopping. Plans that
//! run out of memory are censored observations of the memory error ([`MemoryBelief`]).

mod belief;
mod memory;
mod normal;
mod outlook;
mod stalls;
mod table;
mod traits;

pub use belief::{Belief, BeliefPoint, covariance};
pub use memory::{MemoryBelief, MemoryEvidence, NINETY, memory_room};
pub use normal::{MeanVariance, normal_density, normal_share_below};
pub use outlook::{Outlook, Prospect, Tried};
pub use stalls::{CLASSES, StalledRun, Stalls, StallsOfPlan};
pub use table::{DiscrepancyTable, StackCoefficients, TraitSpread, built_in};
pub use traits::{TRAITS, Traits};
