//! Limits of Megatron-Bridge: those of Megatron-LM, no optimizer but Adam and SGD, and of hybrids what their provider lacks.
//!
//! Source: [megatron-bridge] `megatron/bridge/training/config.py` (`ConfigContainer.validate`), release 0.6.2.

use super::hybrid;
use crate::details;
use crate::megatron;
use crate::megatron::limits::LIMITS as MEGATRON;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::workload::Optimizer;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of Megatron-Bridge.
pub const LIMITS: Limits =
    Limits { name: "megatron-bridge", title: "Megatron-Bridge", problem, plan: &[hybrid::chunks, plan], ..MEGATRON };

fn problem(problem: &Problem) -> Vec<Obstacle> {
    let mut found = megatron::limits::of_container(problem, &details::MEGATRON_BRIDGE);
    found.extend(hybrid::obstacles(problem.model()));
    if problem.workload().optimizer == Optimizer::Muon {
        found.push(Obstacle::of_model("--optimizer muon", "its containers are written with Adam or SGD here"));
    }
    found
}

/// The first obstacle of Megatron-LM's rules on a whole plan.
fn plan(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    MEGATRON.plan.iter().find_map(|rule| rule(problem, plan))
}
