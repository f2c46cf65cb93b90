//! Settings of the solver, and the methods that it may leave out.

use meshwright_engine::plan::Offload;

/// One method of the solver, so that its worth can be measured by leaving it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Bisection of the slowest stage's time, one stage a rank.
    Bisection,
    /// Shortest paths over cuts, one stage a rank: without them, the methods of several stages a rank.
    ShortestPaths,
    /// Descent by single layers.
    Descent,
    /// Annealing, several stages a rank.
    Annealing,
    /// Recomputation of the incumbent chosen again by the replay, several stages a rank.
    Rechoice,
    /// Lagrangian branch and bound, several stages a rank.
    BranchAndBound,
    /// Enumeration of every split where there are few.
    Enumeration,
}

/// Settings of the solver.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Choices beside the number of layers.
    pub freedom: Freedom,
    /// What may wait on the host, the same for every rank; one of these is chosen. None listed: nothing, or what the plan leaves
    /// there.
    pub offloads: Vec<Offload>,
    /// Gap at which to stop.
    pub tolerance: f64,
    /// Most splits that local search evaluates: the same on every machine.
    pub most_replays: usize,
    /// Whether every split is enumerated where there are few.
    pub enumerate: bool,
    /// Whether a split to rank plans by is enough: with several stages a rank, neither annealing nor branch and bound.
    pub rough: bool,
    /// Method to leave out.
    pub without: Option<Method>,
}

impl Options {
    /// Whether a method is used.
    pub(crate) fn uses(&self, method: Method) -> bool {
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
            most_replays: 400,
            enumerate: true,
            rough: false,
            without: None,
        }
    }
}

/// Choices beside the number of layers.
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
