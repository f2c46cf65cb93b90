//! What Megatron-Bridge can express: what Megatron-LM can, with Adam or SGD.
//!
//! Source: [megatron-bridge] `megatron/bridge/training/config.py` (`ConfigContainer.validate`), release 0.6.2.

use super::{Obstacle, Rules, is_hybrid, megatron};
use meshwright_engine::problem::Problem;
use meshwright_engine::workload::Optimizer;

pub(super) const RULES: Rules = Rules { problem, ..megatron::RULES };

fn problem(problem: &Problem) -> Vec<Obstacle> {
    let mut found = megatron::problem(problem);
    if is_hybrid(problem.model()) {
        let what = format!("{}: Mamba layers", problem.model().name);
        found.push(Obstacle::of_model(what, "its containers are written for transformers here"));
    }
    if problem.workload().optimizer == Optimizer::Muon {
        found.push(Obstacle::of_model("--optimizer muon", "its containers are written with Adam or SGD here"));
    }
    found
}
