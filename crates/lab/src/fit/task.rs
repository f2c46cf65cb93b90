//! Fit problem of whole steps: runs, their targets, and the residuals of constants.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::free::PlacedConstant;
use crate::least_squares::{cauchy, softened};
use crate::runs::{Figures, Row, figures_with, predict_all_with};
use crate::validate::anomaly::{anomalies, contradicted_shares};
use crate::validate::sample::{PredictedRun, config_group, outcome, samples, set};
use crate::validate::{choice, cross};
use meshwright_planner::catalog::Overrides;
use meshwright_planner::catalog::fits::{Constant, Fit};

/// Residual at which the loss changes from quadratic to linear (δ of ρ).
const DELTA: f64 = 0.06;
/// Standard deviation of the residuals of a good fit (s).
const SPREAD: f64 = 0.08;
/// Exponent of a configuration's weight in its number of measurements, since the errors of its rows are correlated.
const CONFIGURATION_EXPONENT: f64 = 0.75;
/// Share of a source's runs that others contradict above which its times hold outliers, and their loss is Cauchy's.
const CONTRADICTED: f64 = 0.05;
/// Relative difference of predicted times at which the soft choice distinguishes plans.
const SOFTNESS: f64 = 0.03;

/// Weights of the loss terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Weight of memory errors relative to step-time errors (M).
    pub memory: f64,
    /// Weight of regret relative to step-time errors (R).
    pub regret: f64,
}

/// Runs that a fit reads.
#[derive(Clone, Copy)]
pub struct FitRuns<'r> {
    /// Runs to fit to.
    pub rows: &'r [Row],
    /// Further runs, which may contradict those.
    pub witnesses: &'r [Row],
    /// Whether a run counts.
    pub counts: &'r dyn Fn(&PredictedRun) -> bool,
}

/// Fit problem: runs, targets and all that stays fixed while constants vary.
pub(super) struct Task<'a> {
    pub(super) rows: &'a [Row],
    sets: &'a Overrides,
    weights: Weights,
    /// Target of each row.
    pub(super) targets: Vec<Target>,
    /// Rows of each group of plans.
    groups: Vec<Vec<usize>>,
    /// Fold of each row.
    pub(super) folds: Vec<usize>,
    /// Source of each row, as an index of `names`.
    pub(super) sources: Vec<usize>,
    /// Names of the sources, sorted.
    pub(super) names: Vec<String>,
    /// Constants that are fitted.
    pub(super) placed: Vec<PlacedConstant>,
    /// Place of each constant's parent, where that is free too.
    pub(super) parents: Vec<Option<usize>>,
    /// Rows whose prediction each constant changes.
    pub(super) rows_of: Vec<Vec<usize>>,
}

/// Measured figures of a row that the fit aims at; a weight of 0 where the row is not scored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target {
    seconds: Option<f64>,
    gib: Option<f64>,
    pub(super) weight: f64,
    /// Whether the run's source holds outliers.
    has_outliers: bool,
}

impl<'a> Task<'a> {
    /// Task of the runs that count, without those that another of them or a witness contradicts.
    pub fn new(runs: FitRuns<'a>, sets: &'a Overrides, weights: Weights) -> Self {
        let FitRuns { rows, witnesses, counts } = runs;
        let predictions = predict_all_with(rows, sets);
        let predictions_of_witnesses = predict_all_with(witnesses, sets);
        let witnessed = ended(&samples(witnesses, &predictions_of_witnesses));
        let samples = samples(rows, &predictions);
        let ran: Vec<PredictedRun> = ended(&samples).into_iter().filter(counts).collect();
        let flagged: Vec<String> = anomalies(&ran, witnesses).into_iter().map(|anomaly| anomaly.id).collect();
        let admitted = |sample: &PredictedRun| {
            outcome(sample.row) == "ok"
                && counts(sample)
                && !sample.row.id.as_ref().is_some_and(|id| flagged.contains(id))
        };
        let mut targets: Vec<Target> =
            samples.iter().map(|sample| if admitted(sample) { target(sample) } else { Target::default() }).collect();
        let share = contradicted_shares(&[ran, witnessed].concat());
        for (row, target) in rows.iter().zip(&mut targets) {
            target.has_outliers = share.get(set(row)).is_some_and(|share| *share > CONTRADICTED);
        }
        let mut configurations: BTreeMap<String, f64> = BTreeMap::new();
        for (row, target) in rows.iter().zip(&targets) {
            *configurations.entry(config_group(row)).or_default() += target.weight;
        }
        for (row, target) in rows.iter().zip(&mut targets).filter(|(_, target)| target.weight > 0.0) {
            target.weight *= configurations[&config_group(row)].powf(CONFIGURATION_EXPONENT - 1.0);
        }
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, sample) in samples.iter().enumerate() {
            if targets[at].seconds.is_some() && sample.prediction.step_time_s.is_some() {
                groups.entry(choice::name(sample)).or_default().push(at);
            }
        }
        let groups = groups.into_values().filter(|members| members.len() >= choice::FEWEST).collect();
        let folds = cross::folds(rows);
        let mut names: Vec<String> = rows.iter().map(|row| set(row).to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        let sources = rows.iter().map(|row| names.partition_point(|name| name.as_str() < set(row))).collect();
        let (placed, parents, rows_of) = (Vec::new(), Vec::new(), Vec::new());
        Self { rows, sets, weights, targets, groups, folds, sources, names, placed, parents, rows_of }
    }

    /// Sets the constants; those that no run depends on are left out, unless they are parents.
    pub fn place(&mut self, placed: Vec<PlacedConstant>) {
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
        let parents: Vec<String> = self.placed.iter().filter_map(|placed| placed.free.toward.clone()).collect();
        let needed: Vec<bool> = self
            .placed
            .iter()
            .zip(&rows_of)
            .map(|(placed, rows)| !rows.is_empty() || placed.free.keys.iter().any(|key| parents.contains(key)))
            .collect();
        let mut keep = needed.iter();
        self.placed.retain(|_| *keep.next().unwrap_or(&false));
        self.rows_of = rows_of.into_iter().zip(needed).filter(|(_, needed)| *needed).map(|(rows, _)| rows).collect();
        let parent = |placed: &PlacedConstant| {
            let toward = placed.free.toward.as_ref()?;
            self.placed.iter().position(|other| other.free.keys.contains(toward))
        };
        self.parents = self.placed.iter().map(parent).collect();
    }

    /// Figures of some rows with the constants at `x`.
    pub(super) fn predict(&self, x: &[f64], rows: &[usize]) -> Vec<Figures> {
        let sets = with_constants(self.sets, self.placed.iter().zip(x).flat_map(|(placed, x)| placed.exactly(*x)));
        let rows: Vec<&Row> = rows.iter().map(|&at| &self.rows[at]).collect();
        figures_with(&rows, &sets)
    }

    /// Residuals: one for each time, peak and group of plans of the scored rows.
    pub(super) fn residuals(&self, figures: &[Figures], counted: &[usize]) -> Vec<f64> {
        let Weights { memory, regret } = self.weights;
        let scaled = |loss: fn(f64, f64) -> f64, error: f64, weight: f64| weight.sqrt() * loss(error, DELTA) / SPREAD;
        let residual_of = |loss, predicted: Option<f64>, measured: Option<f64>, weight: f64| match (predicted, measured)
        {
            (Some(predicted), Some(measured)) => scaled(loss, (predicted / measured).ln(), weight),
            _ => 0.0,
        };
        let mut all = Vec::with_capacity(2 * counted.len() + self.groups.len());
        for &at in counted {
            let ((seconds, gib), target) = (figures[at], &self.targets[at]);
            let loss = if target.has_outliers { cauchy } else { softened };
            all.push(residual_of(loss, seconds, target.seconds, target.weight));
            all.push(residual_of(softened, gib, target.gib, memory * target.weight));
        }
        all.extend(self.groups.iter().map(|group| scaled(softened, self.soft_regret(group, figures, counted), regret)));
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

fn target(sample: &PredictedRun) -> Target {
    let gib = sample.row.peak_mem_gib.filter(|peak| peak.is_finite() && *peak > 0.0);
    let seconds = sample.measured();
    let weight = if seconds.is_some() || gib.is_some() { sample.weight } else { 0.0 };
    Target { seconds, gib, weight, has_outliers: false }
}

/// Runs that ended well.
fn ended<'a>(samples: &[PredictedRun<'a>]) -> Vec<PredictedRun<'a>> {
    samples.iter().filter(|sample| outcome(sample.row) == "ok").copied().collect()
}

/// Overrides with further constants appended to their fit; later values override earlier ones.
pub fn with_constants(sets: &Overrides, constants: impl IntoIterator<Item = Constant>) -> Overrides {
    let new: Vec<Constant> = constants.into_iter().collect();
    let mut fit = sets.fit().cloned().unwrap_or_else(Fit::empty);
    fit.constants.retain(|old| new.iter().all(|new| new.key != old.key));
    fit.constants.extend(new);
    sets.clone().with_fit(Some(Arc::new(fit)))
}
