//! Finds the fastest parallel layout of a training run on a cluster, and says how sure it is.
//!
//! ```
//! use meshwright::catalog::{self, Overrides};
//! use meshwright::gpu::Format;
//! use meshwright::problem::{HbmProfile, Problem};
//! use meshwright::search::{SearchOptions, search};
//! use meshwright::space::Restrictions;
//! use meshwright::workload::{Adaptation, Half, Optimizer, Workload, recipe};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // What to train, on what, and what one optimizer step must do.
//! let sets = Overrides::default();
//! let (model, cluster) = (catalog::model("llama3-8b", &sets)?, catalog::cluster("dgx-h100-8", &sets)?);
//! let workload = Workload {
//!     global_batch: 128,
//!     seq_len: 8192,
//!     document_len: None,
//!     format: Format::Bf16,
//!     half: Half::Bf16,
//!     recipe: recipe("megatron").ok_or("a named recipe")?,
//!     optimizer: Optimizer::Elementwise,
//!     adaptation: Adaptation::Full,
//!     imbalance: 1.0,
//!     drops_tokens: false,
//! };
//! let problem = Problem::new(model, cluster, workload, catalog::stack("nemo-25", &sets)?, HbmProfile::Normal)?;
//!
//! // The best three layouts, and where the time of the first goes.
//! let options = SearchOptions { top: 3, restrictions: Restrictions::default() };
//! let ranking = search(&problem, &options, &|_done, _all| ());
//! for found in &ranking.evaluations {
//!     println!("{}: {}", found.step.total(), found.plan);
//! }
//! let best = &ranking.evaluations[0];
//! for (term, time) in best.step.terms() {
//!     println!("{term:16} {time}");
//! }
//! assert!(problem.fits(best.footprint.peak()));
//! # Ok(())
//! # }
//! ```
//!
//! This crate is the application: questions, reports, sweeps and the command line. Its libraries are re-exported, so that one
//! dependency is enough.

#[cfg(feature = "cli")]
pub mod cli;
pub mod files;
pub mod placement;
pub mod question;
pub mod report;
#[cfg(feature = "cli")]
pub mod serve;
pub mod sweep;
pub mod tune;

#[doc(no_inline)]
pub use meshwright_engine::{
    cluster, collective, cost, goodput, gpu, kernel, model, money, plan, problem, range, schedule, sources, split,
    stack, stages, suggest, units, workload,
};
#[doc(no_inline)]
pub use meshwright_frameworks as frameworks;
#[doc(no_inline)]
pub use meshwright_frameworks::{emit, import, lint};
#[doc(no_inline)]
pub use meshwright_lab::{fit, least_squares, probe, runs, tuning, validate};
#[doc(no_inline)]
pub use meshwright_planner::{advice, catalog, confidence, discrepancy, limits, pools, refine, search, space};
