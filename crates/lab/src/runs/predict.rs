//! Predictions of rows.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::cell::text;
use super::problem::problem_from;
use super::refusal::Refusal;
use super::row::Row;
use meshwright_engine::cost::{Costs, Evaluation, StepTime};
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::catalog::{CachedCatalog, Overrides};
use meshwright_planner::confidence::Confidence;

/// Outcome of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PredictionStatus {
    /// The row has a prediction.
    Ok,
    /// The row has too little information, or names something that the model does not support.
    Unsupported,
    /// The row contradicts itself.
    Invalid,
}

/// Prediction of one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Name of the row.
    pub id: String,
    /// Whether the row has a prediction.
    pub status: PredictionStatus,
    /// Reason why there is none; empty otherwise.
    pub reason: String,
    /// Step time in seconds.
    pub step_time_s: Option<f64>,
    /// Tokens per second and GPU.
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Model TFLOP/s per GPU, with half the attention FLOPs (causal).
    pub tflops_per_gpu_causal: Option<f64>,
    /// Model TFLOP/s per GPU, with all attention FLOPs.
    pub tflops_per_gpu_full: Option<f64>,
    /// Causal model FLOP/s over the dense peak of the row's format.
    pub mfu: Option<f64>,
    /// Peak memory of the fullest rank in GiB, by the row's kind of figure: device, reserved or allocated.
    pub peak_mem_gib: Option<f64>,
    /// Name of the catalogue stack that stands for the row's software.
    pub stack: Option<String>,
    /// Name of the catalogue device that stands for the row's GPU.
    pub gpu: Option<String>,
    /// Lower end of the 90 % interval of the step time, in seconds.
    pub step_time_p05_s: Option<f64>,
    /// Upper end of the 90 % interval of the step time, in seconds.
    pub step_time_p95_s: Option<f64>,
    /// Lower end of the 90 % interval of `peak_mem_gib`.
    pub peak_mem_p05_gib: Option<f64>,
    /// Upper end of the 90 % interval of `peak_mem_gib`.
    pub peak_mem_p95_gib: Option<f64>,
    /// Probability that the run is out of memory.
    pub oom_probability: Option<f64>,
    /// Whether the predicted memory exceeds nine tenths of the device's.
    pub near_limit: Option<bool>,
    /// Peak memory as the device would report it, in GiB.
    pub device_mem_gib: Option<f64>,
    /// Whether `device_mem_gib` is within the share of the memory that may be filled.
    pub fits: Option<bool>,
    /// Step time by term; left out when a prediction is read.
    #[serde(skip_deserializing)]
    pub terms: Option<StepTime>,
}

impl Prediction {
    /// Prediction that has every field, as a sample of the form.
    pub fn with_all_terms() -> Self {
        let nothing = refused(&Row::default(), &Refusal::Invalid(String::new()));
        Self { terms: Some(StepTime::default()), ..nothing }
    }
}

/// Predicts one row with the default fit.
pub fn predict(row: &Row) -> Prediction {
    predict_from(row, &CachedCatalog::new(&Overrides::default()))
}

fn predict_from(row: &Row, catalog: &CachedCatalog) -> Prediction {
    match problem_from(row, catalog) {
        Ok((problem, plan)) => price(row, &problem, &plan),
        Err(refusal) => refused(row, &refusal),
    }
}

/// Predicts all rows on every core, in their order, with the default fit.
pub fn predict_all(rows: &[Row]) -> Vec<Prediction> {
    predict_all_with(rows, &Overrides::default())
}

/// Predicts all rows with a given fit and the user's overrides of `gpu.…` and `stack.…`.
pub fn predict_all_with(rows: &[Row], sets: &Overrides) -> Vec<Prediction> {
    let catalog = CachedCatalog::new(sets);
    rows.par_iter().map(|row| predict_from(row, &catalog)).collect()
}

/// Step time and peak memory of a row, in the units of [`Prediction`]; `None` for a row without a prediction.
pub(crate) type Figures = (Option<f64>, Option<f64>);

/// Step times and peaks of rows on every core, in their order: what a fit asks for thousands of times, without intervals.
pub(crate) fn figures_with(rows: &[&Row], sets: &Overrides) -> Vec<Figures> {
    let catalog = CachedCatalog::new(sets);
    let figures = |row: &Row| {
        let (problem, plan) = problem_from(row, &catalog).ok()?;
        let evaluation = evaluate(&problem, &plan).ok()?;
        Some((evaluation.step.total().get(), peak(row, &evaluation)))
    };
    rows.par_iter().map(|row| figures(row).unzip()).collect()
}

fn refused(row: &Row, refusal: &Refusal) -> Prediction {
    let status = match refusal {
        Refusal::Unsupported(_) => PredictionStatus::Unsupported,
        Refusal::Invalid(_) => PredictionStatus::Invalid,
    };
    Prediction {
        id: text(row.id.as_ref()).to_owned(),
        status,
        reason: refusal.to_string(),
        step_time_s: None,
        tokens_per_s_per_gpu: None,
        tflops_per_gpu_causal: None,
        tflops_per_gpu_full: None,
        mfu: None,
        peak_mem_gib: None,
        stack: None,
        gpu: None,
        step_time_p05_s: None,
        step_time_p95_s: None,
        peak_mem_p05_gib: None,
        peak_mem_p95_gib: None,
        oom_probability: None,
        near_limit: None,
        device_mem_gib: None,
        fits: None,
        terms: None,
    }
}

fn price(row: &Row, problem: &Problem, plan: &Plan) -> Prediction {
    let evaluation = match evaluate(problem, plan) {
        Ok(evaluation) => evaluation,
        Err(refusal) => return refused(row, &refusal),
    };
    let (workload, cluster) = (problem.workload(), problem.cluster());
    let step = evaluation.step.total().get();
    let rate = workload.tokens_per_step() / step / f64::from(cluster.gpus);
    let flops = |convention| problem.flops_per_token(convention).get() * rate;
    let causal = flops(AttentionConvention::Causal);
    let sure = Confidence::new(problem, &evaluation);
    let peak = peak(row, &evaluation);
    Prediction {
        id: text(row.id.as_ref()).to_owned(),
        status: PredictionStatus::Ok,
        reason: String::new(),
        step_time_s: Some(step),
        tokens_per_s_per_gpu: Some(rate),
        tflops_per_gpu_causal: Some(causal / 1e12),
        tflops_per_gpu_full: Some(flops(AttentionConvention::Full) / 1e12),
        mfu: cluster.gpu.peak_of(workload.format).map(|peak| causal / peak.get()),
        peak_mem_gib: Some(peak),
        stack: Some(problem.stack().name.clone()),
        gpu: Some(cluster.gpu.name.clone()),
        step_time_p05_s: Some(sure.step.low.get()),
        step_time_p95_s: Some(sure.step.high.get()),
        peak_mem_p05_gib: Some(peak * (sure.peak.low / evaluation.footprint.peak())),
        peak_mem_p95_gib: Some(peak * (sure.peak.high / evaluation.footprint.peak())),
        oom_probability: Some(sure.oom_probability),
        near_limit: Some(sure.class.near_limit),
        device_mem_gib: Some(evaluation.footprint.peak().as_gib()),
        fits: Some(problem.fits(evaluation.footprint.peak())),
        terms: Some(evaluation.step),
    }
}

fn evaluate(problem: &Problem, plan: &Plan) -> Result<Evaluation, Refusal> {
    let evaluation = Costs::new(problem).with_unknown_splits().evaluate(plan);
    let step = evaluation.step.total().get();
    if step.is_finite() && step > 0.0 {
        Ok(evaluation)
    } else {
        Refusal::unsupported(format!("the model predicts {step} s, which is not a time"))
    }
}

/// Peak memory in GiB, of the kind that the row's source reports.
fn peak(row: &Row, evaluation: &Evaluation) -> f64 {
    let (kind, footprint) = (text(row.mem_kind.as_ref()), &evaluation.footprint);
    let peak = if kind.contains("smi") {
        footprint.peak()
    } else if kind.contains("reserved") {
        footprint.reserved()
    } else {
        footprint.allocated()
    };
    peak.as_gib()
}
