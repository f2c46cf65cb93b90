//! The planner: stage refinement, pools, and plans as text.

#[path = "../random/mod.rs"]
mod random;

mod ablation;
mod advice;
mod corners;
mod plan_text;
mod pools;
mod refine;
