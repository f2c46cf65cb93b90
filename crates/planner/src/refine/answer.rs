//! Refined plan with its proof of optimality, or the reason why no stages fit.

use serde::Serialize;

use super::split::Solution;
use meshwright_engine::cost::StagedEvaluation;
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::{Bytes, Seconds};

/// Optimality of a refined plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Proof {
    /// No other stages are faster, in the model.
    Optimal,
    /// No other stages are faster by more than this share.
    WithinGap {
        /// Optimality gap, as a share of the step.
        gap: f64,
    },
    /// A limit on the work ended the search; no other stages are faster by more than this share.
    TimeLimit {
        /// Optimality gap, as a share of the step.
        gap: f64,
    },
}

impl Proof {
    /// Optimality gap, as a share of the step.
    pub const fn gap(self) -> f64 {
        match self {
            Self::Optimal => 0.0,
            Self::WithinGap { gap } | Self::TimeLimit { gap } => gap,
        }
    }
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Optimal => f.write_str("optimal"),
            Self::WithinGap { gap } => write!(f, "within {:.2} %", gap * 100.0),
            Self::TimeLimit { gap } => write!(f, "cut short, within {:.2} %", gap * 100.0),
        }
    }
}

/// Plan with stages of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Refined {
    /// The stages.
    pub staged: StagedPlan,
    /// Evaluation of the stages, independent of the solver.
    pub price: StagedEvaluation,
    /// Step time of the plan before, by the same evaluator; none where it did not fit.
    pub before: Option<Seconds>,
    /// Lower bound on the step time of any stages of this plan.
    pub bound: Seconds,
    /// Optimality.
    pub proof: Proof,
    /// Number of splits that were evaluated.
    pub evaluated: usize,
}

impl Refined {
    /// Step time of the refined plan.
    pub fn step(&self) -> Seconds {
        self.price.evaluation.step.total()
    }
}

/// Reason why stages of a model whose layers share chosen keys stay as they are.
pub(super) const SHARED_KEYS: &str =
    "layers share the keys that one of them chose, and stages that part them do not run";

/// Reason why no stages of a plan fit: the violated family of constraints, with its numbers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Infeasible {
    /// There are fewer layers than stages that need one.
    #[error("layers: every stage holds one: {stages} stages between embedding and loss, {layers} layers")]
    TooFewLayers {
        /// Number of stages that may not be empty.
        stages: u32,
        /// Number of layers.
        layers: u32,
    },
    /// A rank exceeds its memory in every split with every recomputation.
    #[error(
        "memory: rank {rank}: {in_flight} in flight x {each}, states {states} and working set {working} over its \
        {room}, with all that recomputation can save"
    )]
    Memory {
        /// The rank with the largest excess in the split with the smallest one.
        rank: u32,
        /// Memory available to tensors.
        room: Bytes,
        /// Weights, gradients and optimizer states.
        states: Bytes,
        /// Logits, a recomputed layer, caches.
        working: Bytes,
        /// Micro-batches in flight.
        in_flight: f64,
        /// Activations of one micro-batch.
        each: Bytes,
    },
    /// Offloaded data of the ranks exceed the memory of their host.
    #[error("host: ranks of one host leave {needed} there, over its {available}")]
    Host {
        /// Offloaded bytes of the ranks of the fullest host.
        needed: Bytes,
        /// Memory of a host.
        available: Bytes,
    },
    /// Stages of this plan cannot be refined.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// Refined plan of a solution, with its optimality.
pub(super) fn finish(
    staged: StagedPlan,
    price: StagedEvaluation,
    before: Option<Seconds>,
    answer: &Solution,
) -> Refined {
    let step = price.evaluation.step.total();
    let bound = Seconds::new(answer.bound).min(step);
    let gap = (step - bound) / step;
    let proof = match gap {
        none if none <= 1e-9 => Proof::Optimal,
        gap if answer.cut_short => Proof::TimeLimit { gap },
        gap => Proof::WithinGap { gap },
    };
    Refined { staged, price, before, bound, proof, evaluated: answer.evaluated }
}
