//! The planner: stage refinement, placement, pools, and plans as text.

#[path = "../random/mod.rs"]
mod random;

mod ablation;
mod advice;
mod corners;
#[cfg(feature = "highs")]
mod oracle;
#[cfg(feature = "programs")]
mod placement;
mod plan_text;
mod pools;
mod refine;
