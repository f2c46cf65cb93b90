//! Constants of whole steps, fitted to published runs.
//!
//! ```text
//! minimise  Σ w·ρ(ln(predicted/measured))/s²             step times; ρ soft L1: square near 0, absolute far away; Cauchy's
//!                                                         for a source over a twentieth of whose runs others contradict
//!         + M · the same over peak memory
//!         + R · the same over groups of plans, of the regret of a soft choice
//!         + Σ ((x − x₀)/σ)²                               prior: of a child around its parent, else around the stated value
//! ```
//!
//! Each row is one observation with the spread s of residuals. Weights w give repeats 1 together, and a configuration of n
//! measurements n^¾: its rows err together. Runs that other runs contradict (`validate::anomaly`) have no part in it. Damped
//! least squares over all constants at once; σ is `prior` of the list of free constants, and x₀ of a release is the value of
//! its parent, which is free too. Without a source's runs its own constants are thus those of the parent.

use super::descent::Descent;
use super::free::{ConstantBlock, FreeError, PlacedConstant};
use super::task::Task;
use crate::validate::sample::FEWEST_RUNS;
use meshwright_planner::catalog::Overrides;
use meshwright_planner::catalog::fits::FOLDS;

pub use super::task::{FitRuns, Weights, with_constants};

/// Fitted constant with its cross-validation.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The constant with its values before the fit.
    pub placed: PlacedConstant,
    /// Value fitted to all runs.
    pub value: f64,
    /// Values fitted without each fold.
    pub folds: [f64; FOLDS],
    /// Number of runs that depend on it.
    pub runs: usize,
}

impl Fitted {
    /// Standard deviation over the folds.
    pub fn spread(&self) -> f64 {
        let mean = self.folds.iter().sum::<f64>() / FOLDS as f64;
        (self.folds.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / FOLDS as f64).sqrt()
    }
}

/// Constants fitted without the runs of one source.
#[derive(Clone, Debug)]
pub struct WithoutSource {
    /// Name of the source that is left out.
    pub source: String,
    /// Value of each constant, in the order of the fit.
    pub values: Vec<f64>,
}

/// Fit with its cross-validation by source.
#[derive(Clone, Debug)]
pub struct StepFit {
    /// Constants that runs depend on, and the parents of those.
    pub constants: Vec<Fitted>,
    /// Values without each source of `FEWEST_RUNS` or more.
    pub sources: Vec<WithoutSource>,
}

/// Fits the constants of `blocks` to the runs that count and that neither each other nor the witnesses contradict; calls `progress`
/// after every descent.
///
/// # Errors
///
/// A constant is not in the catalogue, or no run depends on any.
pub fn fit(
    runs: FitRuns,
    sets: &Overrides,
    blocks: &[ConstantBlock],
    weights: Weights,
    progress: &dyn Fn(&str),
) -> Result<StepFit, FreeError> {
    let mut placed = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        for free in &block.constants {
            placed.push(PlacedConstant::new(free, at, sets)?);
        }
    }
    let mut task = Task::new(runs, sets, weights);
    task.place(placed);
    if task.placed.is_empty() {
        return Err(FreeError::NoEffect);
    }
    progress(&format!(
        "{} constants, {} runs",
        task.placed.len(),
        task.targets.iter().filter(|t| t.weight > 0.0).count()
    ));
    Ok(fitted(&task, progress))
}

/// Fits to all runs, then without each fold and without each source.
fn fitted(task: &Task, progress: &dyn Fn(&str)) -> StepFit {
    let whole = best(task, None, &|_| true);
    progress("fitted to all runs");
    let folds: Vec<Vec<f64>> = (0..FOLDS)
        .map(|fold| {
            let found = best(task, Some(&whole), &|at| task.folds[at] != fold);
            progress(&format!("fitted without fold {} of {FOLDS}", fold + 1));
            found
        })
        .collect();
    let constants = (0..task.placed.len())
        .map(|at| Fitted {
            placed: task.placed[at].clone(),
            value: whole[at],
            folds: std::array::from_fn(|fold| folds[fold][at]),
            runs: task.rows_of[at].len(),
        })
        .collect();
    let counted: Vec<usize> = (0..task.rows.len()).filter(|&at| task.targets[at].weight > 0.0).collect();
    let sources = (0..task.names.len())
        .filter(|source| counted.iter().filter(|&&at| task.sources[at] == *source).count() >= FEWEST_RUNS)
        .map(|source| {
            let values = best(task, Some(&whole), &|at| task.sources[at] != source);
            progress(&format!("fitted without {}", task.names[source]));
            WithoutSource { source: task.names[source].clone(), values }
        })
        .collect();
    StepFit { constants, sources }
}

/// Constants that minimise the loss over the rows that count, from the start or from `other`.
fn best(task: &Task, other: Option<&[f64]>, counts: &dyn Fn(usize) -> bool) -> Vec<f64> {
    let counted: Vec<usize> = (0..task.rows.len()).filter(|&at| task.targets[at].weight > 0.0 && counts(at)).collect();
    Descent::new(task, counted).end(other)
}
