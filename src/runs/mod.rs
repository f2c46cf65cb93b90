//! Published runs: from the columns of a row to a problem and a plan, and to what the engine predicts of them.
//!
//! Rules look at what a run was, never at its name, its source or what was measured. They are listed in `docs/runs.md`.

mod cell;
mod map_cluster;
mod map_model;
mod map_plan;
mod map_stack;
mod predict;
mod row;

pub use predict::{Prediction, Status, predict, predict_all};
pub use row::{Row, RunsError, read};

use crate::cost::Costs;
use crate::plan::{Plan, Recompute};
use crate::problem::{HbmProfile, Problem, ProblemError};
use cell::Cells;
use map_stack::Family;

/// Why a row has no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The row does not say enough, or says what the model does not know.
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

/// Share of the memory above which a stack that recomputes only where it must does so.
const FITS: f64 = 0.95;

/// What a row ran.
///
/// # Errors
/// When the row says too little, contradicts itself, or names what the model does not know.
pub fn problem_of(row: &Row) -> Result<(Problem, Plan), Refusal> {
    let cells = Cells::of(row)?;
    let gpu = map_cluster::gpu(row)?;
    let family = Family::of(row);
    let model = map_model::model(row, &cells)?;
    let format = map_stack::format(row, &gpu)?;
    let mut plan = map_plan::plan(row, &cells, family, &model)?;
    let stack = map_stack::stack(row, &cells, family, &gpu, &mut plan)?;
    let workload = map_stack::workload(row, &cells, family, &model, &stack, format)?;
    let cluster = map_cluster::cluster(row, &cells, gpu)?;
    let problem = Problem::new(model, cluster, workload, stack, HbmProfile::Normal).map_err(|error| match error {
        ProblemError::Format { .. } => Refusal::Unsupported(first_line(&error)),
        ProblemError::Model(_) | ProblemError::Cluster(_) | ProblemError::Workload(_) => {
            Refusal::Invalid(first_line(&error))
        }
    })?;
    let plan = recompute_where_full(row, family, &problem, plan);
    Ok((problem, plan))
}

fn first_line(error: &ProblemError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Automodel, where the row does not say, recomputes all of a plan that would not fit.
fn recompute_where_full(row: &Row, family: Family, problem: &Problem, plan: Plan) -> Plan {
    if family != Family::Automodel || !cell::text(row.recompute.as_ref()).is_empty() {
        return plan;
    }
    let needed = Costs::new(problem).fullest(&plan).allocated();
    if needed > problem.cluster().gpu.hbm.value * FITS { Plan { recompute: Recompute::Full, ..plan } } else { plan }
}
