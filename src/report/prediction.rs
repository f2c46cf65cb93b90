//! JSON form of an evaluated plan. A key that is a quantity ends in its unit.

use serde::Serialize;
use serde_json::{Map, Value};

use super::basis;
use meshwright_engine::cost::{Evaluation, Figures, Footprint, StepTime};
use meshwright_engine::plan::{Layout, Offload, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::split::LayerSplit;
use meshwright_planner::confidence::Confidence;

/// JSON form of an evaluated plan.
#[derive(Debug, Serialize)]
pub struct Priced {
    plan: String,
    tp: u32,
    cp: u32,
    pp: u32,
    vpp: u32,
    dp: u32,
    ep: u32,
    etp: u32,
    zero: u8,
    shard_group: Option<u32>,
    reshard_after_forward: bool,
    micro_batch: u32,
    micro_batches: f64,
    schedule: &'static str,
    recompute: String,
    sequence_parallel: bool,
    cp_kind: String,
    dispatcher: String,
    order: String,
    split: LayerSplit,
    offload_optimizer: f64,
    offload_activations: f64,
    step_time_s: f64,
    step_time_p05_s: f64,
    step_time_p95_s: f64,
    mfu: f64,
    tokens_per_s_per_gpu: f64,
    tflops_per_gpu: f64,
    peak_mem_gib: f64,
    peak_mem_p05_gib: f64,
    peak_mem_p95_gib: f64,
    oom_probability: f64,
    interval_class: String,
    interval_runs: u32,
    headroom_gib: f64,
    basis: Basis,
    terms: Map<String, Value>,
    terms_basis: Map<String, Value>,
    memory: Map<String, Value>,
}

impl Priced {
    /// JSON form of a plan evaluated for a problem.
    pub fn new(problem: &Problem, evaluation: &Evaluation) -> Self {
        let Plan {
            layout,
            sequence_parallel,
            cp_kind,
            schedule,
            split,
            zero,
            shard_group,
            reshard_after_forward,
            micro_batch,
            recompute,
            offload,
            dispatcher,
            order,
        } = evaluation.plan.clone();
        let Layout { tp, cp, pp, dp, ep, etp } = layout;
        let Offload { optimizer, activations } = offload;
        let figures = Figures::new(problem, evaluation);
        let sure = Confidence::new(problem, evaluation);
        Self {
            plan: evaluation.plan.to_string(),
            tp,
            cp,
            pp,
            vpp: schedule.virtual_stages(),
            dp,
            ep,
            etp,
            zero: zero.into(),
            shard_group,
            reshard_after_forward,
            micro_batch,
            micro_batches: evaluation.plan.micro_batches(problem.workload().global_batch),
            schedule: schedule.name(),
            recompute: recompute.to_string(),
            sequence_parallel,
            cp_kind: cp_kind.to_string(),
            dispatcher: dispatcher.to_string(),
            order: order.to_string(),
            split,
            offload_optimizer: optimizer,
            offload_activations: activations,
            step_time_s: figures.step.get(),
            step_time_p05_s: sure.step.low.get(),
            step_time_p95_s: sure.step.high.get(),
            mfu: figures.mfu,
            tokens_per_s_per_gpu: figures.tokens_per_second,
            tflops_per_gpu: figures.rate.as_tflops(),
            peak_mem_gib: figures.peak.as_gib(),
            peak_mem_p05_gib: sure.peak.low.as_gib(),
            peak_mem_p95_gib: sure.peak.high.as_gib(),
            oom_probability: sure.oom_probability,
            interval_class: sure.class_in_words(),
            interval_runs: sure.runs,
            headroom_gib: figures.headroom_gib,
            basis: basis::of_step(problem, evaluation),
            terms: terms(&evaluation.step),
            terms_basis: terms_basis(problem, evaluation),
            memory: memory(&evaluation.footprint),
        }
    }
}

/// Terms in seconds: `compute_s`, …
fn terms(step: &StepTime) -> Map<String, Value> {
    step.terms().into_iter().map(|(term, time)| (format!("{}_s", term.key()), time.get().into())).collect()
}

/// Basis of each term; `none` for a term of zero length.
fn terms_basis(problem: &Problem, evaluation: &Evaluation) -> Map<String, Value> {
    let known = |basis: Option<Basis>| basis.map_or_else(|| "none".to_owned(), |basis| basis.to_string());
    basis::of_terms(problem, evaluation)
        .into_iter()
        .map(|of| (of.term.key().to_owned(), known(of.basis).into()))
        .collect()
}

/// Tenants in GiB: `weights_gib`, …
pub(super) fn memory(footprint: &Footprint) -> Map<String, Value> {
    footprint
        .tenants()
        .into_iter()
        .map(|(tenant, bytes)| (format!("{}_gib", tenant.key()), bytes.as_gib().into()))
        .collect()
}
