//! Published plans with their traits, predictions and outcomes.

use std::sync::Arc;

use rayon::prelude::*;

use crate::runs::{Row, problem_with};
use crate::validate::cross::folds;
use crate::validate::sample::{family, measured, outcome, set};
use crate::validate::sources::SourceFits;
use meshwright_engine::cost::Costs;
use meshwright_engine::stack::Family;
use meshwright_planner::catalog::Overrides;
use meshwright_planner::catalog::fits::{Constant, FOLDS, Fit};
use meshwright_planner::discrepancy::{Traits, memory_room};

/// Published run with the traits of its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedPlan {
    /// Name of the row.
    pub id: String,
    /// Problem: set, model, GPU, format, purpose and sequence, on any number of GPUs.
    pub problem: String,
    /// Name of the model.
    pub model: String,
    /// Billions of parameters, as stated.
    pub billions: Option<f64>,
    /// Set of the row.
    pub set: String,
    /// Name of the stack.
    pub stack: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Sequences per step.
    pub batch: u32,
    /// Plan as text.
    pub plan: String,
    /// Traits of the plan.
    pub traits: Traits,
    /// Predicted step time in seconds.
    pub predicted: f64,
    /// Measured step time in seconds; `None` if the run failed.
    pub measured: Option<f64>,
    /// ln(memory of the device/predicted peak).
    pub room: f64,
    /// ln(measured/predicted) of the peak, where it was measured.
    pub peak: Option<f64>,
    /// Family of the framework, which selects the errors of its memory.
    pub family: Family,
}

/// Constants that runs are predicted with.
#[derive(Clone, Copy, Debug)]
pub enum Predictions<'a> {
    /// Those fitted to all runs.
    Default,
    /// Those fitted without the fold of each run.
    CrossValidated,
    /// Those fitted without one source, by its name.
    WithoutSource(&'a SourceFits, &'a str),
}

/// Catalogue overrides for each fold.
fn overrides(sets: &Overrides, predictions: Predictions) -> Vec<Overrides> {
    let with_fit = |fit: Option<Fit>| sets.clone().with_fit(fit.map(Arc::new));
    match predictions {
        Predictions::Default => vec![sets.clone(); FOLDS],
        Predictions::CrossValidated => {
            (0..FOLDS).map(|fold| with_fit(sets.fit().map(|fit| fit.without_fold(fold)))).collect()
        }
        Predictions::WithoutSource(fits, source) => {
            let mut fit = sets.fit().cloned().unwrap_or_else(Fit::empty);
            if let Some(without) = fits.without.iter().find(|without| without.source == source) {
                fit.constants.retain(|constant| !without.values.contains_key(&constant.key));
                let values = without.values.iter();
                fit.constants.extend(values.map(|(key, value)| Constant::plain(key.clone(), value.clone())));
            }
            vec![with_fit(Some(fit)); FOLDS]
        }
    }
}

/// Runs that are predicted and were timed or failed, in the order of their rows.
pub fn timed_plans(rows: &[Row], sets: &Overrides, predictions: Predictions) -> Vec<TimedPlan> {
    let sets = overrides(sets, predictions);
    let folds = folds(rows);
    rows.par_iter().zip(folds).filter_map(|(row, fold)| timed_plan(row, &sets[fold])).collect()
}

fn timed_plan(row: &Row, sets: &Overrides) -> Option<TimedPlan> {
    let (problem, plan) = problem_with(row, sets).ok()?;
    let evaluation = Costs::new(&problem).with_unknown_splits().evaluate(&plan);
    let predicted = evaluation.step.total().get();
    let ran = outcome(row) == "ok";
    let measured = measured(row).filter(|_| ran);
    if !predicted.is_finite() || predicted <= 0.0 || (ran && measured.is_none()) {
        return None;
    }
    let device = evaluation.footprint.peak();
    let kind = row.mem_kind.as_deref().unwrap_or_default();
    let figure =
        if kind.contains("reserved") { evaluation.footprint.reserved() } else { evaluation.footprint.allocated() };
    let peak = row.peak_mem_gib.filter(|peak| ran && *peak > 0.0).map(|peak| (peak / figure.as_gib()).ln());
    Some(TimedPlan {
        id: row.id.clone().unwrap_or_default(),
        problem: format!("{}|{}", set(row), family(row)),
        model: row.model_name.clone().unwrap_or_default(),
        billions: row.params_total_b,
        set: set(row).to_owned(),
        stack: problem.stack().name.clone(),
        gpus: problem.cluster().gpus,
        batch: problem.workload().global_batch,
        plan: plan.to_string(),
        traits: Traits::new(&problem, &evaluation),
        predicted,
        measured,
        room: memory_room(&problem, device),
        peak,
        family: problem.stack().family,
    })
}
