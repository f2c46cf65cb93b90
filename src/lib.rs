//! Finds the fastest parallel layout of a training run on a cluster, and says how sure it is.
//!
//! This crate is the application: reports, sweeps and the command line. Its libraries are re-exported, so that one
//! dependency is enough.

#[cfg(feature = "cli")]
pub mod cli;
pub mod report;
pub mod sweep;

#[doc(no_inline)]
pub use meshwright_engine::{
    cluster, collective, cost, goodput, gpu, kernel, model, money, plan, problem, schedule, sources, split, stack,
    stages, suggest, units, workload,
};
#[doc(no_inline)]
pub use meshwright_frameworks as frameworks;
#[doc(no_inline)]
pub use meshwright_frameworks::{emit, import, lint};
#[doc(no_inline)]
pub use meshwright_lab::{fit, least_squares, probe, runs, validate};
#[doc(no_inline)]
pub use meshwright_planner::{catalog, confidence, limits, placement, pools, refine, search, space};
