//! JSON document of a study: the posterior of each plan, and the next trial.

use serde::Serialize;

use super::posterior::Posterior;
use super::trials::TrialStatus;
use crate::report::json;

/// One plan of the document.
#[derive(Serialize)]
struct PlanDocument<'a> {
    trial: u32,
    id: Option<&'a str>,
    plan: &'a str,
    status: TrialStatus,
    step_s: Option<f64>,
    predicted_s: f64,
    predicted_gib: f64,
    median_s: f64,
    p05_s: f64,
    p95_s: f64,
    best: f64,
    runs: f64,
    gain: f64,
}

/// JSON document of a study.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    tolerance: f64,
    budget: u32,
    trials_left: usize,
    decided: bool,
    leader: Option<u32>,
    expected_loss: Option<f64>,
    within_tolerance: Option<f64>,
    next: Option<u32>,
    plans: Vec<PlanDocument<'a>>,
}

/// JSON document of a posterior, the same as `tune status --format json` prints.
///
/// # Errors
///
/// A value has no JSON form.
pub fn document(posterior: &Posterior) -> serde_json::Result<String> {
    let outlook = &posterior.outlook;
    let number = |at: usize| posterior.trials()[at].trial;
    let plan = |at: usize| {
        let (trial, believed) = (&posterior.trials()[at], posterior.outlook(at));
        PlanDocument {
            trial: trial.trial,
            id: trial.id.as_deref(),
            plan: &trial.plan,
            status: trial.status,
            step_s: trial.step_s,
            predicted_s: believed.predicted_s,
            predicted_gib: believed.predicted_gib,
            median_s: believed.median_s,
            p05_s: believed.interval_s.low,
            p95_s: believed.interval_s.high,
            best: believed.prospect.best,
            runs: believed.prospect.runs,
            gain: believed.prospect.gain,
        }
    };
    json::text(&Document {
        schema: json::SCHEMA,
        tolerance: posterior.study().tolerance,
        budget: posterior.study().budget,
        trials_left: posterior.trials_left(),
        decided: posterior.is_decided(),
        leader: outlook.leader.map(number),
        expected_loss: outlook.leader.map(|_| outlook.loss),
        within_tolerance: outlook.leader.map(|_| outlook.within),
        next: posterior.batch(1).first().copied().map(number),
        plans: posterior.ranked().into_iter().map(plan).collect(),
    })
}
