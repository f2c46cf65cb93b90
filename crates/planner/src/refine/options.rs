//! Settings of the solver, and the methods that it may leave out.

use meshwright_engine::plan::Offload;

/// Technique of the solver; an ablation leaves one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// Bisection of the slowest stage's time, one stage a rank.
    Bisection,
    /// Shortest paths over cuts, one stage a rank: without them, the methods of several stages a rank.
    ShortestPaths,
    /// Descent by single layers.
    Descent,
    /// Annealing, several stages a rank.
    Annealing,
    /// Second choice of the incumbent's recomputation, by simulation, several stages a rank.
    Rechoice,
    /// Lagrangian branch and bound, several stages a rank.
    BranchAndBound,
    /// Enumeration of all splits, if there are few.
    Enumeration,
}

/// Settings of the solver.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Variables of the program other than the number of layers.
    pub freedom: Freedom,
    /// Candidate offloads, the same for every rank, of which one is chosen; if empty, no offload and that of the plan.
    pub offloads: Vec<Offload>,
    /// Optimality gap at which the solver stops.
    pub tolerance: f64,
    /// Largest number of splits that local search evaluates; fixed, so that answers do not depend on the machine.
    pub most_evaluations: usize,
    /// Whether all splits are enumerated if there are few.
    pub enumerate: bool,
    /// Whether a heuristic split suffices, as for a ranking of plans: with several stages a rank, neither annealing nor
    /// branch and bound.
    pub rough: bool,
    /// Whether the bound is raised after the last split that may be simulated, one stage a rank: the split is the same without,
    /// its optimality gap is wider.
    pub prove: bool,
    /// Technique to leave out.
    pub without: Option<Technique>,
}

impl Options {
    /// Whether a technique is used.
    pub(crate) fn uses(&self, method: Technique) -> bool {
        self.without != Some(method)
    }
}

impl Default for Options {
    fn default() -> Self {
        let freedom = Freedom::default();
        Self {
            freedom,
            offloads: Vec::new(),
            tolerance: 1e-9,
            most_evaluations: 400,
            enumerate: true,
            rough: false,
            prove: true,
            without: None,
        }
    }
}

/// Variables of the program other than the number of layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Freedom {
    /// Whether each layer's recomputation is chosen; otherwise all follow the plan.
    pub recompute: bool,
    /// Share of activations and of optimizer states left on the host, the same for every rank.
    pub offload: Offload,
}

impl Default for Freedom {
    fn default() -> Self {
        Self { recompute: true, offload: Offload::NONE }
    }
}

/// Effort that one program is worth: the step time to beat, and the limits on its work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Step time that a split must beat, seconds; infinite where any will do.
    pub cutoff: f64,
    /// Programs that share the work limit of a plan.
    pub programs: usize,
    /// Most splits that are enumerated.
    pub most_enumerated: f64,
}
