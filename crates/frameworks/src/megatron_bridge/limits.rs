//! Limits of Megatron-Bridge: those of Megatron-LM, and no optimizer but Adam and SGD.
//!
//! Source: [megatron-bridge] `megatron/bridge/training/config.py` (`ConfigContainer.validate`), release 0.6.2.

use crate::details;
use crate::megatron;
use crate::megatron::hybrid::is_hybrid;
use meshwright_engine::problem::Problem;
use meshwright_engine::workload::Optimizer;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of Megatron-Bridge.
pub const LIMITS: Limits =
    Limits { name: "megatron-bridge", title: "Megatron-Bridge", problem, ..megatron::limits::LIMITS };

fn problem(problem: &Problem) -> Vec<Obstacle> {
    let mut found = megatron::limits::of_container(problem, &details::MEGATRON_BRIDGE);
    if is_hybrid(problem.model()) {
        let what = format!("{}: Mamba layers", problem.model().name);
        found.push(Obstacle::of_model(what, "its containers are written for transformers here"));
    }
    if problem.workload().optimizer == Optimizer::Muon {
        found.push(Obstacle::of_model("--optimizer muon", "its containers are written with Adam or SGD here"));
    }
    found
}
