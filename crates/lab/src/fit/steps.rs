//! Constants of whole steps, fitted to published runs.
//!
//! ```text
//! minimise  Σ w·ρ(ln(predicted/measured))/s²             step times; ρ soft L1: square near 0, absolute far away
//!         + M · the same over peak memory
//!         + R · the same over groups of plans, of the regret of a soft choice
//!         + Σ ((x − x₀)/σ)²                               what was known before: the specification, and how far it may be off
//! ```
//!
//! Each row is one observation with the spread s of residuals. Weights w give repeats 1 together, and a configuration of n
//! measurements n^¾: its rows err together. Runs that other runs contradict (`validate::anomaly`) have no part in it. Damped
//! least squares over all constants at once; σ is `prior` of the list of free constants.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::free::{ConstantBlock, FreeError, PlacedConstant};
use crate::least_squares::{LeastSquares, Stop, descend, softened};
use crate::runs::{Prediction, Row, predict_all_with};
use crate::validate::anomaly::anomalies;
use crate::validate::sample::{PredictedRun, config_group, outcome, samples};
use crate::validate::{choice, cross};
use meshwright_planner::catalog::Overrides;
use meshwright_planner::catalog::fits::{Constant, FOLDS, Fit};

/// Residual at which the loss changes from quadratic to linear (δ of ρ).
const DELTA: f64 = 0.06;
/// Standard deviation of the residuals of a good fit (s).
const SPREAD: f64 = 0.08;
/// Exponent of a configuration's weight in its number of measurements, since the errors of its rows are correlated.
const OF_CONFIGURATION: f64 = 0.75;
/// Step of the forward differences, in units of σ.
const STEP: f64 = 0.02;
/// Stopping criterion of the fit; predictions have kinks, so finer steps follow noise.
const STOP: Stop = Stop { tolerance: 1e-4, patience: 2 };
/// Relative difference of predicted times at which the soft choice distinguishes plans.
const SOFTNESS: f64 = 0.03;
/// Standard deviations over the folds by which a constant must move to be accepted.
const SIGNIFICANT: f64 = 2.0;
/// Fewest configurations that a constant may be fitted to.
const FEWEST_GROUPS: usize = 5;

/// Weights of the loss terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Weight of memory errors relative to step-time errors (M).
    pub memory: f64,
    /// Weight of regret relative to step-time errors (R).
    pub regret: f64,
}

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
    /// Whether it moved significantly and is accepted.
    pub kept: bool,
}

impl Fitted {
    /// Standard deviation over the folds.
    pub fn spread(&self) -> f64 {
        let mean = self.folds.iter().sum::<f64>() / FOLDS as f64;
        (self.folds.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / FOLDS as f64).sqrt()
    }

    fn is_significant(&self) -> bool {
        (self.value - self.placed.start()).abs() > SIGNIFICANT * self.spread() + 1e-9
    }
}

/// Fit problem: runs, targets and all that stays fixed while constants vary.
struct Task<'a> {
    rows: &'a [Row],
    sets: &'a Overrides,
    weights: Weights,
    /// Measured seconds and GiB of each scored row, with its weight.
    targets: Vec<Target>,
    /// Rows of each group of plans.
    groups: Vec<Vec<usize>>,
    folds: Vec<usize>,
    placed: Vec<PlacedConstant>,
    /// Rows whose prediction each constant changes.
    rows_of: Vec<Vec<usize>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Target {
    seconds: Option<f64>,
    gib: Option<f64>,
    weight: f64,
}

/// Predicted seconds and GiB of a row.
type Figures = (Option<f64>, Option<f64>);

fn figures(prediction: &Prediction) -> Figures {
    (prediction.step_time_s, prediction.peak_mem_gib)
}

/// Fits the constants of `blocks` to the rows that `counts` selects; calls `progress` in every round.
///
/// Returns every constant that enough runs depend on. Constants that moved by no more than their spread over the folds are
/// marked as not accepted, and the others are fitted again without them.
///
/// # Errors
///
/// A constant is not in the catalogue.
pub fn fit(
    rows: &[Row],
    sets: &Overrides,
    blocks: &[ConstantBlock],
    weights: Weights,
    counts: &dyn Fn(&PredictedRun) -> bool,
    progress: &dyn Fn(&str),
) -> Result<Vec<Fitted>, FreeError> {
    let mut placed = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        for free in &block.constants {
            placed.push(PlacedConstant::new(free, at, sets)?);
        }
    }
    let mut task = Task::new(rows, sets, weights, counts);
    task.place(placed);
    progress(&format!(
        "{} constants, {} runs",
        task.placed.len(),
        task.targets.iter().filter(|t| t.weight > 0.0).count()
    ));
    let mut left = Vec::new();
    loop {
        let fitted = task.fitted(progress);
        let (kept, dropped): (Vec<Fitted>, Vec<Fitted>) = fitted.into_iter().partition(Fitted::is_significant);
        progress(&format!("{} constants moved by more than their spread, {} did not", kept.len(), dropped.len()));
        let done = dropped.is_empty() || kept.is_empty();
        left.extend(dropped.into_iter().map(|fitted| Fitted { kept: false, ..fitted }));
        if done {
            let mut all: Vec<Fitted> = kept.into_iter().chain(left).collect();
            all.sort_by_key(|fitted| fitted.placed.block);
            return Ok(all);
        }
        task.place(kept.into_iter().map(|fitted| fitted.placed).collect());
    }
}

impl<'a> Task<'a> {
    fn new(rows: &'a [Row], sets: &'a Overrides, weights: Weights, counts: &dyn Fn(&PredictedRun) -> bool) -> Self {
        let predictions = predict_all_with(rows, sets);
        let samples = samples(rows, &predictions);
        let ran: Vec<PredictedRun> =
            samples.iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample)).copied().collect();
        let flagged: Vec<String> = anomalies(&ran, &[]).into_iter().map(|anomaly| anomaly.id).collect();
        let admitted = |sample: &PredictedRun| {
            outcome(sample.row) == "ok"
                && counts(sample)
                && !sample.row.id.as_ref().is_some_and(|id| flagged.contains(id))
        };
        let mut targets: Vec<Target> =
            samples.iter().map(|sample| if admitted(sample) { target(sample) } else { Target::default() }).collect();
        let mut configurations: BTreeMap<String, f64> = BTreeMap::new();
        for (row, target) in rows.iter().zip(&targets) {
            *configurations.entry(config_group(row)).or_default() += target.weight;
        }
        for (row, target) in rows.iter().zip(&mut targets).filter(|(_, target)| target.weight > 0.0) {
            target.weight *= configurations[&config_group(row)].powf(OF_CONFIGURATION - 1.0);
        }
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, sample) in samples.iter().enumerate() {
            if targets[at].seconds.is_some() && sample.prediction.step_time_s.is_some() {
                groups.entry(choice::name(sample)).or_default().push(at);
            }
        }
        let groups = groups.into_values().filter(|members| members.len() >= choice::FEWEST).collect();
        let folds = cross::folds(rows);
        Self { rows, sets, weights, targets, groups, folds, placed: Vec::new(), rows_of: Vec::new() }
    }

    /// Sets the constants; those with too few configurations are left out.
    fn place(&mut self, placed: Vec<PlacedConstant>) {
        self.placed = placed;
        let start: Vec<f64> = self.placed.iter().map(PlacedConstant::start).collect();
        let all: Vec<usize> = (0..self.rows.len()).filter(|&at| self.targets[at].weight > 0.0).collect();
        let at_start = self.predict(&start, &all);
        let rows_of: Vec<Vec<usize>> = (0..self.placed.len())
            .map(|at| {
                let bounds = self.placed[at].bounds();
                let mut moved = vec![false; all.len()];
                for value in [bounds.low, bounds.high] {
                    let mut x = start.clone();
                    x[at] = value;
                    for (place, figures) in self.predict(&x, &all).iter().enumerate() {
                        moved[place] |= *figures != at_start[place];
                    }
                }
                all.iter().zip(moved).filter(|(_, moved)| *moved).map(|(at, _)| *at).collect()
            })
            .collect();
        let groups = |rows: &[usize]| {
            let mut groups: Vec<String> = rows.iter().map(|&at| config_group(&self.rows[at])).collect();
            groups.sort_unstable();
            groups.dedup();
            groups.len()
        };
        let enough: Vec<bool> = rows_of.iter().map(|rows| groups(rows) >= FEWEST_GROUPS).collect();
        let mut keep = enough.iter();
        self.placed.retain(|_| *keep.next().unwrap_or(&false));
        self.rows_of = rows_of.into_iter().zip(enough).filter(|(_, enough)| *enough).map(|(rows, _)| rows).collect();
    }

    /// Fits to all runs, then without each fold.
    fn fitted(&self, progress: &dyn Fn(&str)) -> Vec<Fitted> {
        let start: Vec<f64> = self.placed.iter().map(PlacedConstant::start).collect();
        let whole = self.best(&start, None);
        progress("fitted to all runs");
        let folds: Vec<Vec<f64>> = (0..FOLDS)
            .map(|fold| {
                let found = self.best(&start, Some(fold));
                progress(&format!("fitted without fold {} of {FOLDS}", fold + 1));
                found
            })
            .collect();
        (0..self.placed.len())
            .map(|at| Fitted {
                placed: self.placed[at].clone(),
                value: whole[at],
                folds: std::array::from_fn(|fold| folds[fold][at]),
                runs: self.rows_of[at].len(),
                kept: true,
            })
            .collect()
    }

    /// Constants that minimise the loss over all rows except those of a fold.
    fn best(&self, start: &[f64], without: Option<usize>) -> Vec<f64> {
        let counted: Vec<usize> = (0..self.rows.len())
            .filter(|&at| self.targets[at].weight > 0.0 && without.is_none_or(|fold| self.folds[at] != fold))
            .collect();
        let descent = Descent { task: self, start, counted, last: RefCell::default() };
        descent.values(&descend(&descent, &vec![0.0; start.len()], STOP))
    }

    fn predict(&self, x: &[f64], rows: &[usize]) -> Vec<Figures> {
        let sets = with(self.sets, self.placed.iter().zip(x).flat_map(|(placed, x)| placed.exactly(*x)));
        let rows: Vec<Row> = rows.iter().map(|&at| self.rows[at].clone()).collect();
        predict_all_with(&rows, &sets).iter().map(figures).collect()
    }

    /// Residuals: one for each time, peak and group of plans of the scored rows.
    fn residuals(&self, figures: &[Figures], counted: &[usize]) -> Vec<f64> {
        let Weights { memory, regret } = self.weights;
        let scaled = |error: f64, weight: f64| weight.sqrt() * softened(error, DELTA) / SPREAD;
        let of = |predicted: Option<f64>, measured: Option<f64>, weight: f64| match (predicted, measured) {
            (Some(predicted), Some(measured)) => scaled((predicted / measured).ln(), weight),
            _ => 0.0,
        };
        let mut all = Vec::with_capacity(2 * counted.len() + self.groups.len());
        for &at in counted {
            let ((seconds, gib), target) = (figures[at], &self.targets[at]);
            all.push(of(seconds, target.seconds, target.weight));
            all.push(of(gib, target.gib, memory * target.weight));
        }
        all.extend(self.groups.iter().map(|group| scaled(self.soft_regret(group, figures, counted), regret)));
        all
    }

    /// Soft regret of a group: Σ p_i·(measured_i/best − 1), where p is a soft choice of the least predicted: p_i ∝
    /// exp(−(predicted_i/least − 1)/0.03).
    fn soft_regret(&self, group: &[usize], figures: &[Figures], counted: &[usize]) -> f64 {
        let plans: Vec<(f64, f64)> = group
            .iter()
            .filter(|at| counted.binary_search(at).is_ok())
            .filter_map(|&at| Some((figures[at].0?, self.targets[at].seconds?)))
            .collect();
        if plans.len() < choice::FEWEST {
            return 0.0;
        }
        let least = |of: fn(&(f64, f64)) -> f64| plans.iter().map(of).fold(f64::INFINITY, f64::min);
        let (predicted, measured) = (least(|plan| plan.0), least(|plan| plan.1));
        let chosen: Vec<f64> = plans.iter().map(|plan| (-(plan.0 / predicted - 1.0) / SOFTNESS).exp()).collect();
        let all: f64 = chosen.iter().sum();
        chosen.iter().zip(&plans).map(|(p, plan)| p / all * (plan.1 / measured - 1.0)).sum()
    }
}

/// Descent from the start, in units of each constant's prior σ.
struct Descent<'a> {
    task: &'a Task<'a>,
    start: &'a [f64],
    /// Scored rows, in order.
    counted: Vec<usize>,
    /// Last predictions and their point, from which differences start.
    last: RefCell<(Vec<f64>, Vec<Figures>)>,
}

impl Descent<'_> {
    /// Values of the constants, clamped to their bounds.
    fn values(&self, at: &[f64]) -> Vec<f64> {
        let value = |((placed, start), at): ((&PlacedConstant, &f64), &f64)| {
            placed.bounds().clamp(start + at * placed.free.prior)
        };
        self.task.placed.iter().zip(self.start).zip(at).map(value).collect()
    }

    /// Predictions by row, cached at the last point.
    fn figures(&self, at: &[f64]) -> Vec<Figures> {
        if self.last.borrow().0 != at {
            let mut figures = vec![(None, None); self.task.rows.len()];
            let found = self.task.predict(&self.values(at), &self.counted);
            self.counted.iter().zip(found).for_each(|(&row, found)| figures[row] = found);
            *self.last.borrow_mut() = (at.to_vec(), figures);
        }
        self.last.borrow().1.clone()
    }

    fn with_priors(&self, mut residuals: Vec<f64>, at: &[f64]) -> Vec<f64> {
        residuals.extend_from_slice(at);
        let outside = |((placed, start), at): ((&PlacedConstant, &f64), &f64)| {
            placed.bounds().wall(start + at * placed.free.prior)
        };
        residuals.extend(self.task.placed.iter().zip(self.start).zip(at).map(outside));
        residuals
    }
}

impl LeastSquares for Descent<'_> {
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        self.with_priors(self.task.residuals(&self.figures(at), &self.counted), at)
    }

    /// Forward differences over the rows that the constant affects.
    fn derivatives(&self, at: &[f64], which: usize) -> Vec<f64> {
        let here = self.residuals(at);
        let mut figures = self.figures(at);
        let mut moved = at.to_vec();
        // Step away from the nearer bound, so that a constant at its bound still has a slope.
        let bounds = self.task.placed[which].bounds();
        let value = self.values(at)[which];
        let step = if bounds.high - value < value - bounds.low { -STEP } else { STEP };
        moved[which] += step;
        let touched: Vec<usize> =
            self.task.rows_of[which].iter().copied().filter(|row| self.counted.binary_search(row).is_ok()).collect();
        let found = self.task.predict(&self.values(&moved), &touched);
        touched.iter().zip(found).for_each(|(&row, found)| figures[row] = found);
        let there = self.with_priors(self.task.residuals(&figures, &self.counted), &moved);
        there.iter().zip(here).map(|(there, here)| (there - here) / step).collect()
    }
}

fn target(sample: &PredictedRun) -> Target {
    let gib = sample.row.peak_mem_gib.filter(|peak| peak.is_finite() && *peak > 0.0);
    let seconds = sample.measured();
    let weight = if seconds.is_some() || gib.is_some() { sample.weight } else { 0.0 };
    Target { seconds, gib, weight }
}

/// Overrides with further constants appended to their fit; later values override earlier ones.
pub fn with(sets: &Overrides, constants: impl IntoIterator<Item = Constant>) -> Overrides {
    let new: Vec<Constant> = constants.into_iter().collect();
    let mut fit = sets.fit().cloned().unwrap_or_else(Fit::empty);
    fit.constants.retain(|old| new.iter().all(|new| new.key != old.key));
    fit.constants.extend(new);
    sets.clone().with_fit(Some(Arc::new(fit)))
}
