//! Constants of whole steps, fitted to published runs.
//!
//! ```text
//! minimise  Σ w·ρ(ln(predicted/measured)) / Σ w          step times, ρ(e) = √(e² + δ²) − δ: absolute, smooth near 0
//!         + M · the same over peak memory
//!         + R · mean over groups of the regret of a soft choice
//!         + λ · Σ ((x − x₀)/range)²                       so that what the runs do not tell stays where it was
//! ```
//!
//! Weights w give repeats 1 together; runs that other runs contradict (`validate::anomaly`) have no part in it. Blocks of
//! constants that the same runs depend on are moved in turn, by Nelder and Mead's simplex.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::free::{Block, FreeError, Placed};
use super::minimise::minimise;
use crate::catalog::Overrides;
use crate::catalog::fits::{Constant, FOLDS, Fit};
use crate::runs::{Prediction, Row, predict_all_with};
use crate::validate::anomaly::anomalies;
use crate::validate::sample::{Sample, outcome, samples};
use crate::validate::{choice, cross};

/// Width of the smooth part of ρ: the noise of repeated measurements.
const DELTA: f64 = 0.03;
/// Weight of staying where it was.
const STAY: f64 = 0.002;
/// How many times every block is moved.
const SWEEPS: usize = 3;
/// Simplex steps for each constant of a block.
const STEPS_PER_CONSTANT: u64 = 25;
/// Relative difference of predicted times within which a choice is soft.
const SOFTNESS: f64 = 0.03;
/// A constant that moves by less than so many standard deviations over the folds stays where it was.
const SIGNIFICANT: f64 = 2.0;
/// Fewest configurations that a constant may be fitted to.
const FEWEST_GROUPS: usize = 5;

/// What to weigh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Of memory against step time (M).
    pub memory: f64,
    /// Of regret against step time (R).
    pub regret: f64,
}

/// One fitted constant.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The constant and what it was.
    pub placed: Placed,
    /// Its value from all runs.
    pub value: f64,
    /// Its values without each fold.
    pub folds: [f64; FOLDS],
    /// Runs that depend on it.
    pub runs: usize,
    /// Whether it moved by more than its spread, so that it is kept.
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

/// The runs that are fitted to, with all that does not change while constants move.
struct Task<'a> {
    rows: &'a [Row],
    sets: &'a Overrides,
    weights: Weights,
    /// Measured seconds and GiB of each row that counts, and its weight.
    targets: Vec<Target>,
    /// Rows of each group that is a choice.
    groups: Vec<Vec<usize>>,
    folds: Vec<usize>,
    placed: Vec<Placed>,
    /// Rows whose prediction each constant changes.
    rows_of: Vec<Vec<usize>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Target {
    seconds: Option<f64>,
    gib: Option<f64>,
    weight: f64,
}

/// Predicted seconds and GiB.
type Figures = (Option<f64>, Option<f64>);

fn figures(prediction: &Prediction) -> Figures {
    (prediction.step_time_s, prediction.peak_mem_gib)
}

/// Fits the constants of `blocks` to the rows that `counts` admits; `progress` is told of every round.
///
/// Returns every constant that enough runs depend on: those that moved by no more than their spread over the folds are
/// marked, and the others fitted again without them.
///
/// # Errors
/// When a constant is not in the catalogue.
pub fn fit(
    rows: &[Row],
    sets: &Overrides,
    blocks: &[Block],
    weights: Weights,
    counts: &dyn Fn(&Sample) -> bool,
    progress: &dyn Fn(&str),
) -> Result<Vec<Fitted>, FreeError> {
    let mut placed = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        for free in &block.constants {
            placed.push(Placed::new(free, at, sets)?);
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
    fn new(rows: &'a [Row], sets: &'a Overrides, weights: Weights, counts: &dyn Fn(&Sample) -> bool) -> Self {
        let predictions = predict_all_with(rows, sets);
        let samples = samples(rows, &predictions);
        let ran: Vec<Sample> =
            samples.iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample)).copied().collect();
        let flagged: Vec<String> = anomalies(&ran).into_iter().map(|anomaly| anomaly.id).collect();
        let admitted = |sample: &Sample| {
            outcome(sample.row) == "ok"
                && counts(sample)
                && !sample.row.id.as_ref().is_some_and(|id| flagged.contains(id))
        };
        let targets: Vec<Target> =
            samples.iter().map(|sample| if admitted(sample) { target(sample) } else { Target::default() }).collect();
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

    /// Takes these constants; those that too few configurations depend on are left out.
    fn place(&mut self, placed: Vec<Placed>) {
        self.placed = placed;
        let start: Vec<f64> = self.placed.iter().map(Placed::start).collect();
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
            let mut groups: Vec<String> =
                rows.iter().map(|&at| crate::validate::sample::config_group(&self.rows[at])).collect();
            groups.sort_unstable();
            groups.dedup();
            groups.len()
        };
        let enough: Vec<bool> = rows_of.iter().map(|rows| groups(rows) >= FEWEST_GROUPS).collect();
        let mut keep = enough.iter();
        self.placed.retain(|_| *keep.next().unwrap_or(&false));
        self.rows_of = rows_of.into_iter().zip(enough).filter(|(_, enough)| *enough).map(|(rows, _)| rows).collect();
    }

    /// Fits to all runs, then without each fold, from the values of all.
    fn fitted(&self, progress: &dyn Fn(&str)) -> Vec<Fitted> {
        let start: Vec<f64> = self.placed.iter().map(Placed::start).collect();
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

    fn best(&self, start: &[f64], without: Option<usize>) -> Vec<f64> {
        let counts: Vec<bool> = (0..self.rows.len())
            .map(|at| self.targets[at].weight > 0.0 && without.is_none_or(|fold| self.folds[at] != fold))
            .collect();
        let all: Vec<usize> = (0..self.rows.len()).filter(|&at| counts[at]).collect();
        let mut x = start.to_vec();
        let mut known: Vec<Figures> = vec![(None, None); self.rows.len()];
        for (place, figures) in self.predict(&x, &all).into_iter().enumerate() {
            known[all[place]] = figures;
        }
        let blocks = self.placed.iter().map(|placed| placed.block).max().map_or(0, |last| last + 1);
        for _ in 0..SWEEPS {
            for block in 0..blocks {
                let members: Vec<usize> = (0..self.placed.len()).filter(|&at| self.placed[at].block == block).collect();
                let mut touched: Vec<usize> =
                    members.iter().flat_map(|&at| self.rows_of[at].iter().copied()).filter(|&at| counts[at]).collect();
                touched.sort_unstable();
                touched.dedup();
                if members.is_empty() || touched.is_empty() {
                    continue;
                }
                let with = |values: &[f64]| {
                    let mut all = x.clone();
                    members.iter().zip(values).for_each(|(&at, value)| all[at] = *value);
                    all
                };
                let loss = |values: &[f64]| {
                    let all = with(values);
                    let mut figures = known.clone();
                    for (place, new) in self.predict(&all, &touched).into_iter().enumerate() {
                        figures[touched[place]] = new;
                    }
                    self.loss(&figures, &counts) + STAY * self.moved(&all, start)
                };
                let from: Vec<f64> = members.iter().map(|&at| x[at]).collect();
                let bounds: Vec<_> = members.iter().map(|&at| self.placed[at].bounds()).collect();
                let found = minimise(loss, &from, &bounds, STEPS_PER_CONSTANT * members.len() as u64);
                x = with(&found);
                for (place, figures) in self.predict(&x, &touched).into_iter().enumerate() {
                    known[touched[place]] = figures;
                }
            }
        }
        x
    }

    fn predict(&self, x: &[f64], rows: &[usize]) -> Vec<Figures> {
        let sets = with(self.sets, self.placed.iter().zip(x).flat_map(|(placed, x)| placed.constants(*x)));
        let rows: Vec<Row> = rows.iter().map(|&at| self.rows[at].clone()).collect();
        predict_all_with(&rows, &sets).iter().map(figures).collect()
    }

    fn loss(&self, figures: &[Figures], counts: &[bool]) -> f64 {
        let mut time = Mean::default();
        let mut memory = Mean::default();
        for ((target, (seconds, gib)), _) in self.targets.iter().zip(figures).zip(counts).filter(|(_, counts)| **counts)
        {
            time.add(*seconds, target.seconds, target.weight);
            memory.add(*gib, target.gib, target.weight);
        }
        let Weights { memory: of_memory, regret: of_regret } = self.weights;
        let regret = if of_regret > 0.0 { self.soft_regret(figures, counts) } else { 0.0 };
        time.value() + of_memory * memory.value() + of_regret * regret
    }

    /// Mean over groups of Σ p_i·(measured_i/best − 1), where p is a soft choice of the least predicted:
    /// p_i ∝ exp(−(predicted_i/least − 1)/0.03).
    fn soft_regret(&self, figures: &[Figures], counts: &[bool]) -> f64 {
        let mut sum = 0.0;
        let mut groups = 0.0;
        for group in &self.groups {
            let plans: Vec<(f64, f64)> = group
                .iter()
                .filter(|&&at| counts[at])
                .filter_map(|&at| Some((figures[at].0?, self.targets[at].seconds?)))
                .collect();
            if plans.len() < choice::FEWEST {
                continue;
            }
            let least = |of: fn(&(f64, f64)) -> f64| plans.iter().map(of).fold(f64::INFINITY, f64::min);
            let (predicted, measured) = (least(|plan| plan.0), least(|plan| plan.1));
            let chosen: Vec<f64> = plans.iter().map(|plan| (-(plan.0 / predicted - 1.0) / SOFTNESS).exp()).collect();
            let all: f64 = chosen.iter().sum();
            sum += chosen.iter().zip(&plans).map(|(p, plan)| p / all * (plan.1 / measured - 1.0)).sum::<f64>();
            groups += 1.0;
        }
        if groups > 0.0 { sum / groups } else { 0.0 }
    }

    fn moved(&self, x: &[f64], start: &[f64]) -> f64 {
        self.placed
            .iter()
            .zip(x.iter().zip(start))
            .map(|(placed, (x, start))| ((x - start) / (placed.free.high - placed.free.low)).powi(2))
            .sum()
    }
}

/// A weighted mean of ρ(ln(predicted/measured)).
#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, predicted: Option<f64>, measured: Option<f64>, weight: f64) {
        if let (Some(predicted), Some(measured)) = (predicted, measured) {
            self.sum += weight * ((predicted / measured).ln().hypot(DELTA) - DELTA);
            self.weight += weight;
        }
    }

    fn value(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }
}

fn target(sample: &Sample) -> Target {
    let gib = sample.row.peak_mem_gib.filter(|peak| peak.is_finite() && *peak > 0.0);
    let seconds = sample.measured();
    let weight = if seconds.is_some() || gib.is_some() { sample.weight } else { 0.0 };
    Target { seconds, gib, weight }
}

/// The overrides with further constants after those of their fit; what is named anew replaces what it was.
pub fn with(sets: &Overrides, constants: impl IntoIterator<Item = Constant>) -> Overrides {
    let new: Vec<Constant> = constants.into_iter().collect();
    let mut fit = sets.fit().cloned().unwrap_or_else(Fit::empty);
    fit.constants.retain(|old| new.iter().all(|new| new.key != old.key));
    fit.constants.extend(new);
    sets.clone().with_fit(Some(Arc::new(fit)))
}
