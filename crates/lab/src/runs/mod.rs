//! Published runs: mapping of a row to a problem and a plan, and to a prediction.
//!
//! Rules use the properties of a run, never its name, source or measurements. They are listed in `docs/runs.md`.

mod cell;
pub mod log;
mod map_cluster;
mod map_model;
mod map_plan;
mod map_stack;
mod predict;
mod row;

pub use predict::{Prediction, PredictionStatus, predict, predict_all, predict_all_with};
pub use row::{Row, RunsError, read};

use cell::Cells;
use map_stack::Release;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Plan, Recompute};
use meshwright_engine::problem::{HbmProfile, Problem, ProblemError};
use meshwright_planner::catalog::{Overrides, Shelf};

/// Reason why a row has no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The row has too little information, or names something that the model does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The row contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

impl Refusal {
    fn unsupported<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Unsupported(why.into()))
    }
    fn invalid<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Invalid(why.into()))
    }
}

/// Share of the memory above which a stack that recomputes on demand does so.
const FITS: f64 = 0.95;

/// Problem and plan of a row, with the default fit.
///
/// # Errors
///
/// The row has too little information, contradicts itself, or names something that the model does not support.
pub fn problem_of(row: &Row) -> Result<(Problem, Plan), Refusal> {
    problem_with(row, &Overrides::default())
}

/// Problem and plan of a row, with a given fit and the user's overrides of `gpu.…` and `stack.…`.
///
/// # Errors
///
/// The row has too little information, contradicts itself, or names something that the model does not support.
pub fn problem_with(row: &Row, sets: &Overrides) -> Result<(Problem, Plan), Refusal> {
    problem_from(row, &Shelf::new(sets))
}

/// Problem and plan of a row, with a catalogue that is read once.
fn problem_from(row: &Row, shelf: &Shelf) -> Result<(Problem, Plan), Refusal> {
    let cells = Cells::of(row)?;
    let gpu = map_cluster::gpu(row, shelf)?;
    let release = Release::of(row);
    let model = map_model::model(row, &cells)?;
    let format = map_stack::format(row, &gpu)?;
    let mut plan = map_plan::plan(row, &cells, release, &model)?;
    let stack = map_stack::stack(row, &cells, release, &gpu, &mut plan, shelf)?;
    let workload = map_stack::workload(row, &cells, release, &model, &stack, format)?;
    let cluster = map_cluster::cluster(row, &cells, gpu)?;
    let problem = Problem::new(model, cluster, workload, stack, HbmProfile::Normal).map_err(|error| match error {
        ProblemError::Format { .. } => Refusal::Unsupported(first_line(&error)),
        ProblemError::Model(_) | ProblemError::Cluster(_) | ProblemError::Workload(_) => {
            Refusal::Invalid(first_line(&error))
        }
    })?;
    let plan = recompute_where_full(row, release, &problem, plan);
    Ok((problem, plan))
}

fn first_line(error: &ProblemError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Full recomputation for an Automodel plan that would not fit without it, if the row states none.
fn recompute_where_full(row: &Row, release: Release, problem: &Problem, plan: Plan) -> Plan {
    if release != Release::Automodel || !cell::text(row.recompute.as_ref()).is_empty() {
        return plan;
    }
    let needed = Costs::new(problem).with_unknown_splits().fullest(&plan).allocated();
    if needed > problem.cluster().gpu.hbm.value * FITS { Plan { recompute: Recompute::Full, ..plan } } else { plan }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            framework: Some("NeMo/Megatron-Core".into()),
            gpu: Some("H100".into()),
            gated_mlp: Some(1.0),
            layers: Some(32.0),
            hidden: Some(4096.0),
            ffn: Some(14336.0),
            heads: Some(32.0),
            kv_heads: Some(8.0),
            vocab: Some(128_256.0),
            seq_len: Some(8192.0),
            gpus_total: Some(8.0),
            tp: Some(1.0),
            pp: Some(1.0),
            dp: Some(8.0),
            global_batch: Some(128.0),
            ..Row::default()
        }
    }

    fn status(change: impl Fn(&mut Row)) -> PredictionStatus {
        let mut row = row();
        change(&mut row);
        predict(&row).status
    }

    #[test]
    fn what_is_unknown_is_unsupported() {
        assert_eq!(status(|_| {}), PredictionStatus::Ok);
        assert_eq!(status(|row| row.layers = None), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.global_batch = None), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.gpu = Some("Abacus".into())), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.dtype = Some("nvfp4".into())), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.tp = None), PredictionStatus::Unsupported);
    }

    #[test]
    fn what_cannot_be_is_invalid() {
        assert_eq!(status(|row| row.dp = Some(4.0)), PredictionStatus::Invalid);
        assert_eq!(status(|row| row.global_batch = Some(4.0)), PredictionStatus::Invalid);
        for wrong in [0.0, -1.0, 1.5, 1e18, f64::INFINITY] {
            assert_eq!(status(|row| row.hidden = Some(wrong)), PredictionStatus::Invalid, "{wrong}");
            assert_eq!(status(|row| row.tp = Some(wrong)), PredictionStatus::Invalid, "{wrong}");
            assert_eq!(status(|row| row.micro_batch = Some(wrong)), PredictionStatus::Invalid, "{wrong}");
        }
        assert_eq!(status(|row| row.heads = Some(8192.0)), PredictionStatus::Invalid);
        assert_eq!(status(|row| row.ep = Some(64.0)), PredictionStatus::Ok, "a dense model has no experts to split");
        assert_eq!(
            status(|row| (row.tp, row.dp, row.gpus_total) = (Some(1e7), Some(1.0), Some(1e7))),
            PredictionStatus::Ok
        );
    }

    #[test]
    fn a_blank_degree_of_data_parallelism_is_what_the_others_leave() {
        let (_, plan) = problem_of(&Row { dp: None, ..row() }).unwrap();
        assert_eq!(plan.layout.dp, 8);
    }
}
