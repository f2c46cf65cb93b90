//! What the engine says of a row.

use rayon::prelude::*;
use serde::Serialize;

use super::cell::text;
use super::{Refusal, Row, problem_from};
use crate::catalog::{Overrides, Shelf};
use crate::confidence::Confidence;
use crate::cost::{Costs, Footprint, StepTime};
use crate::model::flops::AttentionConvention;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::units::Bytes;
use crate::workload::Adaptation;

/// Whether a row has a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has.
    Ok,
    /// It says too little, or what the model does not know.
    Unsupported,
    /// It contradicts itself.
    Invalid,
}

/// The prediction of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Name of the row.
    pub id: String,
    /// Whether there is one.
    pub status: Status,
    /// Why not; empty where there is one.
    pub reason: String,
    /// Seconds of a step.
    pub step_time_s: Option<f64>,
    /// Tokens per second and GPU.
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Model TFLOP/s per GPU, attention counted half.
    pub tflops_per_gpu_causal: Option<f64>,
    /// The same, attention counted whole.
    pub tflops_per_gpu_full: Option<f64>,
    /// Causal model FLOP/s over the dense peak of the row's format.
    pub mfu: Option<f64>,
    /// Peak memory of the fullest rank, of the row's kind: what the device shows, what is reserved, or what is allocated.
    pub peak_mem_gib: Option<f64>,
    /// The stack of the catalogue that the row was taken for.
    pub stack: Option<String>,
    /// The device of the catalogue that the row was taken for.
    pub gpu: Option<String>,
    /// The fastest step of the interval that nine runs of ten are in.
    pub step_time_p05_s: Option<f64>,
    /// The slowest.
    pub step_time_p95_s: Option<f64>,
    /// The least of the interval of `peak_mem_gib`.
    pub peak_mem_p05_gib: Option<f64>,
    /// The most.
    pub peak_mem_p95_gib: Option<f64>,
    /// Probability that it runs out of memory.
    pub oom_probability: Option<f64>,
    /// Whether over nine tenths of the memory are predicted to be in use.
    pub near_limit: Option<bool>,
    /// What the device would show at the peak.
    pub device_mem_gib: Option<f64>,
    /// Whether the tool would say that it fits: that figure within the share of the memory that may be filled.
    pub fits: Option<bool>,
    /// Where the step's time goes.
    pub terms: Option<StepTime>,
}

/// Adapters skip the weight gradients of the base: two passes of three.
const LORA_FLOPS: f64 = 2.0 / 3.0;

/// Predicts one row with the default fit.
pub fn predict(row: &Row) -> Prediction {
    predict_from(row, &Shelf::new(&Overrides::default()))
}

fn predict_from(row: &Row, shelf: &Shelf) -> Prediction {
    match problem_from(row, shelf) {
        Ok((problem, plan)) => price(row, &problem, &plan),
        Err(refusal) => refused(row, &refusal),
    }
}

/// Predicts all rows on every core, in their order, with the default fit.
pub fn predict_all(rows: &[Row]) -> Vec<Prediction> {
    predict_all_with(rows, &Overrides::default())
}

/// The same with this fit and what the user set of `gpu.…` and `stack.…`.
pub fn predict_all_with(rows: &[Row], sets: &Overrides) -> Vec<Prediction> {
    let shelf = Shelf::new(sets);
    rows.par_iter().map(|row| predict_from(row, &shelf)).collect()
}

fn refused(row: &Row, refusal: &Refusal) -> Prediction {
    let status = match refusal {
        Refusal::Unsupported(_) => Status::Unsupported,
        Refusal::Invalid(_) => Status::Invalid,
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
    let evaluation = Costs::new(problem).with_unknown_splits().evaluate(plan);
    let (workload, cluster) = (problem.workload(), problem.cluster());
    let step = evaluation.step.total().get();
    if !step.is_finite() || step <= 0.0 {
        return refused(row, &Refusal::Unsupported(format!("the model says {step} s, which is no time")));
    }
    let tokens = f64::from(workload.global_batch) * f64::from(workload.seq_len);
    let rate = tokens / step / f64::from(cluster.gpus);
    let share = if workload.adaptation == Adaptation::Lora { LORA_FLOPS } else { 1.0 };
    let flops = |convention| problem.model().flops_per_token(workload.seq_len, convention).get() * share * rate;
    let causal = flops(AttentionConvention::Causal);
    let sure = Confidence::new(problem, &evaluation);
    let peak = memory(text(row.mem_kind.as_ref()), &evaluation.footprint).as_gib();
    Prediction {
        id: text(row.id.as_ref()).to_owned(),
        status: Status::Ok,
        reason: String::new(),
        step_time_s: Some(step),
        tokens_per_s_per_gpu: Some(rate),
        tflops_per_gpu_causal: Some(causal / 1e12),
        tflops_per_gpu_full: Some(flops(AttentionConvention::Full) / 1e12),
        mfu: cluster.gpu.peak_of(workload.format).map(|peak| causal / peak.get()),
        peak_mem_gib: Some(peak),
        stack: Some(problem.stack().name.clone()),
        gpu: Some(cluster.gpu.name.clone()),
        step_time_p05_s: Some(sure.step.0.get()),
        step_time_p95_s: Some(sure.step.1.get()),
        peak_mem_p05_gib: Some(peak * (sure.peak.0 / evaluation.footprint.device())),
        peak_mem_p95_gib: Some(peak * (sure.peak.1 / evaluation.footprint.device())),
        oom_probability: Some(sure.oom_probability),
        near_limit: Some(sure.class.near_limit),
        device_mem_gib: Some(evaluation.footprint.device().as_gib()),
        fits: Some(evaluation.footprint.device() <= problem.hbm_budget()),
        terms: Some(evaluation.step),
    }
}

/// The figure that a source's tool would show.
fn memory(kind: &str, footprint: &Footprint) -> Bytes {
    if kind.contains("smi") {
        footprint.device()
    } else if kind.contains("reserved") {
        footprint.reserved()
    } else {
        footprint.allocated()
    }
}
