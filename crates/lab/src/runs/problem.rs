//! Problem and plan of a row.

use std::collections::BTreeSet;

use super::cell::Cells;
use super::refusal::Refusal;
use super::release::Release;
use super::row::Row;
use super::{cell, map_cluster, map_model, map_plan, map_stack};
use meshwright_engine::cost::Costs;
use meshwright_engine::model::MixerKind;
use meshwright_engine::plan::{Plan, Recompute};
use meshwright_engine::problem::{HbmProfile, Problem, ProblemError};
use meshwright_planner::catalog::{CachedCatalog, Overrides};

/// Share of the memory that a published run may fill: peaks of runs that ended well reach 97 % of it.
const PROFILE: HbmProfile = HbmProfile::Tight;
/// Share of the memory above which a stack that recomputes on demand does so.
const FITS: f64 = 0.95;

/// Whether the code base of a row has no stack of its own and is priced by that of its parent.
pub fn is_generic(row: &Row) -> bool {
    Release::of(row).is_generic(row)
}

/// Kinds of mixers of a row's model; none if the row does not tell its model.
pub fn mixers_of(row: &Row) -> BTreeSet<MixerKind> {
    let model = Cells::of(row).and_then(|cells| map_model::model(row, &cells));
    model.map_or_else(|_| BTreeSet::new(), |model| model.mixer_kinds())
}

/// Rate of a row's network over that of its device's usual adapter; `None` if the row states no network, or its device's is part of
/// the device (TPU), or the run lies inside one scale-up domain.
pub fn network_rate_of(row: &Row) -> Option<f64> {
    let (problem, _) = problem_of(row).ok()?;
    let cluster = problem.cluster();
    let level = cluster.levels.first().filter(|level| !level.assumed)?;
    let own = cluster.gpu.scale_up.axes.is_empty() && cluster.gpus > cluster.scale_up.gpus;
    own.then(|| level.bandwidth.value / cluster.gpu.nic.value)
}

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
    problem_from(row, &CachedCatalog::new(sets))
}

/// Problem and plan of a row, with a catalogue that is read once.
pub(super) fn problem_from(row: &Row, catalog: &CachedCatalog) -> Result<(Problem, Plan), Refusal> {
    let cells = Cells::of(row)?;
    let gpu = map_cluster::gpu(row, cells.gpus_per_node, catalog)?;
    let release = Release::of(row);
    let model = map_model::model(row, &cells)?;
    let format = map_stack::format(row, &gpu)?;
    let mut plan = map_plan::plan(row, &cells, release, &model)?;
    let stack = map_stack::stack(row, &cells, release, &gpu, &mut plan, catalog)?;
    let workload = map_stack::workload(row, &cells, release, &model, &stack, format)?;
    let cluster = map_cluster::cluster(row, &cells, gpu, catalog)?;
    let problem = Problem::new(model, cluster, workload, stack, PROFILE).map_err(|error| match error {
        ProblemError::Format { .. } | ProblemError::SparseAttention { .. } => Refusal::Unsupported(first_line(&error)),
        ProblemError::Model(_) | ProblemError::Cluster(_) | ProblemError::Workload(_) | ProblemError::Stack(_) => {
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
