//! The user's own measured runs, on which the answer of `plan` is conditioned.

use std::path::Path;

use super::error::QuestionError;
use super::noted::Noted;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{Seconds, thousands};

use meshwright_lab::runs::{self, Row, differences, is_of_least_policy};
use meshwright_lab::validate::sample;
use meshwright_planner::advice::MeasuredRun;
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::space;

/// Most runs that an answer is conditioned on: the law of their step times takes the cube of their number.
const MOST_RUNS: usize = 500;
/// Most reasons that are named for runs that are left out.
const MOST_REASONS: usize = 3;

/// Measured runs of a file that are of the problem's model on its kind of GPU, in the format of `predict`. A note says how many
/// others there are, and why.
///
/// # Errors
///
/// The file is no file of runs, has too many, or none of them tells of the problem.
pub(super) fn measured_runs(
    path: &Path,
    problem: &Problem,
    sets: &Overrides,
) -> Result<Noted<Vec<MeasuredRun>>, QuestionError> {
    let refused = |why: String| QuestionError::refused(format!("--measured {}: {why}", path.display()));
    let file = catalog::open(path).map_err(|why| refused(why.to_string()))?;
    let rows = runs::read(file).map_err(|why| refused(why.to_string()))?;
    if rows.len() > MOST_RUNS {
        return Err(refused(format!("{} runs, and at most {MOST_RUNS} are read", thousands(rows.len() as u64))));
    }
    let (mut found, mut others, mut without_policy) = (Vec::new(), Vec::new(), 0);
    for row in &rows {
        match measured_run(row, problem, sets) {
            Ok(run) => {
                without_policy += usize::from(is_of_least_policy(row));
                found.push(run);
            }
            Err(why) => others.push(format!("line {}: {why}", row.line.unwrap_or_default())),
        }
    }
    let some: Vec<&str> = others.iter().take(MOST_REASONS).map(String::as_str).collect();
    let reasons = format!("{}{}", some.join("; "), if others.len() > MOST_REASONS { "; …" } else { "" });
    if found.is_empty() {
        let why = if rows.is_empty() { "it has no row" } else { reasons.as_str() };
        return Err(refused(format!("no run tells of these plans: {why}")));
    }
    let left_out = format!("--measured: {} of {} runs left out: {reasons}", others.len(), rows.len());
    let read_as = format!(
        "--measured: {without_policy} on JAX whose `recompute` is none read as the policy `minimal` (recompute=per-op): \
         `recompute_modules` names another, such as minimal_with_context (recompute=none)"
    );
    let notes = [(!others.is_empty(), left_out), (without_policy > 0, read_as)];
    Ok(Noted { value: found, notes: notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note).collect() })
}

/// Run of a row with its prediction on the problem's stack; the reason where it is of something else.
fn measured_run(row: &Row, problem: &Problem, sets: &Overrides) -> Result<MeasuredRun, String> {
    let step = sample::measured(row).filter(|_| sample::outcome(row) == "ok").ok_or("it states no step time")?;
    let (theirs, plan) = runs::problem_with(row, sets).map_err(|why| why.to_string())?;
    let (gpu, own) = (&theirs.cluster().gpu.name, &problem.cluster().gpu.name);
    if gpu != own {
        return Err(format!("it is of {gpu}, not of {own}"));
    }
    let mut workload = problem.workload().clone();
    (workload.global_batch, workload.seq_len) = (theirs.workload().global_batch, theirs.workload().seq_len);
    let (format, wanted) = (theirs.workload().format, workload.format);
    if format != wanted {
        return Err(format!("it trains in {format}, not in {wanted}"));
    }
    let cluster = problem.cluster().clone().resized(theirs.cluster().gpus);
    let (model, stack) = (problem.model().clone(), problem.stack().clone());
    let run = Problem::new(model, cluster, workload, stack, problem.hbm_profile()).map_err(|why| why.to_string())?;
    let differs = differences(row, &run, &plan);
    if !differs.is_empty() {
        return Err(format!("it is of another model: {}", differs.join(", ")));
    }
    priced(run, &plan, step)
}

fn priced(problem: Problem, plan: &Plan, step: f64) -> Result<MeasuredRun, String> {
    let costs = Costs::new(&problem);
    if let Some(why) = space::check(&costs, plan).into_iter().find(|why| !why.is_of_memory()) {
        return Err(format!("its plan {plan} does not run: {why}"));
    }
    let evaluation = costs.evaluate_simulated(plan);
    Ok(MeasuredRun { evaluation, step: Seconds::new(step), problem })
}
