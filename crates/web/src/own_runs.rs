//! A user's own runs: rows from training logs, scores of predictions, and plans in the light of what was timed.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use meshwright::catalog::{self, Overrides};
use meshwright::question::Question;
use meshwright::runs::log::{self, condensed::condensed};
use meshwright::runs::{Row, predict};
use meshwright::tune::{Posterior, Study, Trial, TrialStatus, Trials, matching, of_log};

/// Training log with its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogText {
    name: String,
    text: String,
}

/// Training logs, and values that they omit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsQuestion {
    /// Logs by name.
    logs: Vec<LogText>,
    /// Values by column, such as `gpu`.
    #[serde(default)]
    cells: BTreeMap<String, String>,
    /// Model whose shape to use.
    #[serde(default)]
    model: Option<String>,
}

/// Plans of a problem with the step times that were measured of some.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedQuestion {
    /// Model, cluster, workload.
    problem: Question,
    /// Plans as text.
    plans: Vec<String>,
    /// Measured step times in seconds, by plan.
    #[serde(default)]
    measured: BTreeMap<String, f64>,
    /// Plans that ran out of memory.
    #[serde(default)]
    failed: Vec<String>,
    /// Logs, which say themselves which plan they are of.
    #[serde(default)]
    logs: Vec<LogText>,
    /// Relative loss of step time that does not matter.
    tolerance: f64,
}

/// Rows of logs as CSV, with what each says and what it lacks, as `runs from-log` does.
///
/// # Errors
///
/// A log is of no known framework, or a cell is no value of its column.
pub fn rows(question: &LogsQuestion) -> Result<Value, Box<dyn Error>> {
    let model = question.model.as_deref().map(|name| catalog::model(name, &Overrides::default())).transpose()?;
    let cells: Vec<(String, String)> = question.cells.clone().into_iter().collect();
    let (mut rows, mut told) = (Vec::new(), Vec::new());
    for LogText { name: file, text } in &question.logs {
        let text = condensed(text.as_bytes())?;
        let run = log::read(&text).map_err(|why| format!("{file}: {why}"))?;
        let name = Path::new(file).file_stem().map(|name| name.to_string_lossy().into_owned());
        let row = Row { id: name, source: Some(file.clone()), ..run.row };
        let row = model.as_ref().map_or(row.clone(), |model| log::of_model(model, row));
        let row = log::fill(row, &cells)?;
        let missing = log::missing(&row);
        let prediction = missing.is_empty().then(|| predict(&row));
        told.push(json!({
            "file": file,
            "framework": row.framework,
            "steps": run.steps,
            "step_s": row.step_time_canon_s,
            "missing": missing,
            "predicted_s": prediction.as_ref().and_then(|of| of.step_time_s),
            "predicted_p05_s": prediction.as_ref().and_then(|of| of.step_time_p05_s),
            "predicted_p95_s": prediction.as_ref().and_then(|of| of.step_time_p95_s),
            "reason": prediction.map(|of| of.reason).filter(|reason| !reason.is_empty()),
        }));
        rows.push(row);
    }
    Ok(json!({ "csv": log::to_csv(&rows)?, "logs": told }))
}

/// Trials of the plans, with what was measured.
fn trials(question: &TimedQuestion) -> Trials {
    let trial = |(plan, number): (&String, u32)| {
        let step_s = question.measured.get(plan).copied();
        let status = match step_s {
            _ if question.failed.contains(plan) => TrialStatus::Oom,
            Some(_) => TrialStatus::Ran,
            None => TrialStatus::Open,
        };
        let step_s = step_s.filter(|_| status == TrialStatus::Ran);
        Trial { trial: number, plan: plan.clone(), status, step_s, ..Trial::default() }
    };
    Trials(question.plans.iter().zip(1..).map(trial).collect())
}

/// Plans in the light of the measured ones: what each is believed to take, its chance of being the fastest, and which to time
/// next, as `tune` answers.
///
/// # Errors
///
/// The question is invalid, a plan is none of the problem, a time is not above 0, or a log is of no plan.
pub fn timed(question: &TimedQuestion) -> Result<Value, Box<dyn Error>> {
    if let Some((plan, time)) = question.measured.iter().find(|(_, time)| !(time.is_finite() && **time > 0.0)) {
        return Err(format!("{plan}: {time} is no step time").into());
    }
    let count = u32::try_from(question.plans.len())?;
    let study = Study::new(question.problem.clone(), None, question.tolerance, count, None);
    study.check()?;
    let path = Path::new("plans");
    let mut trials = trials(question);
    if !question.logs.is_empty() {
        let posterior = Posterior::new(study.clone(), trials.clone(), path)?.value;
        for LogText { name: file, text } in &question.logs {
            let outcome = of_log(&condensed(text.as_bytes())?).map_err(|why| format!("{file}: {why}"))?;
            let row =
                outcome.row.as_ref().ok_or_else(|| format!("{file}: names no setting, so its plan is not known"))?;
            let at = matching(row, &posterior).map_err(|why| format!("{file}: {why}"))?;
            let trial = &mut trials.0[at];
            (trial.status, trial.step_s, trial.error) = (outcome.status, outcome.step_s, outcome.error);
            trial.from = Some(file.clone());
        }
    }
    let posterior = Posterior::new(study, trials, path)?.value;
    let plans = posterior.ranked().into_iter().map(|at| {
        let (trial, of) = (&posterior.trials()[at], posterior.outlook(at));
        json!({
            "plan": trial.plan,
            "status": trial.status,
            "measured_s": trial.step_s,
            "from": trial.from,
            "predicted_s": of.predicted_s,
            "median_s": of.median_s,
            "p05_s": of.interval_s.low,
            "p95_s": of.interval_s.high,
            "best": of.prospect.best,
            "runs": of.prospect.runs,
        })
    });
    Ok(json!({
        "plans": plans.collect::<Vec<_>>(),
        "next": posterior.outlook.next.map(|at| posterior.plan(at).to_string()),
        "decided": posterior.is_decided(),
        "within": posterior.outlook.within,
        "loss": posterior.outlook.loss,
    }))
}
