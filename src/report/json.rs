//! Versioned JSON documents. A key that is a quantity ends in its unit.

use serde::Serialize;
use serde_json::{Map, Value};

use super::basis;
use super::ties::Ties;
use meshwright_engine::cost::{Costs, Evaluation, Figures, Footprint, StepTime};
use meshwright_engine::model::Model;
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::model::parameters::ModelParameters;
use meshwright_engine::plan::{Layout, Offload, Plan};
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_planner::advice::{self, Advice, GivenUp};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::search::{ChangedOptimum, Ranking};
use meshwright_planner::space::Rejection;

/// Version of every JSON document.
pub const SCHEMA: u32 = 1;

/// JSON form of a problem.
#[derive(Debug, Serialize)]
pub struct Question {
    model: String,
    cluster: String,
    gpu: String,
    gpus: u32,
    global_batch: u32,
    seq_len: u32,
    precision: String,
    recipe_bytes_per_parameter: f64,
    stack: String,
    hbm_gib: f64,
    hbm_budget_gib: f64,
    imbalance: f64,
}

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
    split: meshwright_engine::split::LayerSplit,
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
    basis: meshwright_engine::sources::Basis,
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
        } = evaluation.plan;
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
            step_time_p05_s: sure.step.0.get(),
            step_time_p95_s: sure.step.1.get(),
            mfu: figures.mfu,
            tokens_per_s_per_gpu: figures.tokens_per_second,
            tflops_per_gpu: figures.rate.as_tflops(),
            peak_mem_gib: figures.peak.as_gib(),
            peak_mem_p05_gib: sure.peak.0.as_gib(),
            peak_mem_p95_gib: sure.peak.1.as_gib(),
            oom_probability: sure.oom_probability,
            interval_class: sure.class.to_string(),
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
        .map(|(term, _, basis)| (term.key().to_owned(), known(basis).into()))
        .collect()
}

/// Tenants in GiB: `weights_gib`, …
fn memory(footprint: &Footprint) -> Map<String, Value> {
    footprint
        .tenants()
        .into_iter()
        .map(|(tenant, bytes)| (format!("{}_gib", tenant.key()), bytes.as_gib().into()))
        .collect()
}

/// JSON form of a problem.
pub(super) fn question(problem: &Problem) -> Question {
    let (cluster, workload) = (problem.cluster(), problem.workload());
    Question {
        model: problem.model().name.clone(),
        cluster: cluster.name.clone(),
        gpu: cluster.gpu.name.clone(),
        gpus: cluster.gpus,
        global_batch: workload.global_batch,
        seq_len: workload.seq_len,
        precision: workload.precision(),
        recipe_bytes_per_parameter: workload.recipe.total(),
        stack: problem.stack().name.clone(),
        hbm_gib: cluster.gpu.hbm.value.as_gib(),
        hbm_budget_gib: problem.hbm_budget().as_gib(),
        imbalance: workload.imbalance,
    }
}

#[derive(Serialize)]
struct NearestMiss {
    plan: String,
    reason: String,
}

#[derive(Serialize)]
struct PlanDocument {
    schema: u32,
    problem: Question,
    #[serde(skip_serializing_if = "Option::is_none")]
    recommended: Option<Recommended>,
    plans: Vec<Priced>,
    tied_with_first: usize,
    plans_to_time: Vec<usize>,
    considered: u64,
    evaluated: u64,
    rejected: Map<String, Value>,
    certificate: meshwright_planner::search::Certificate,
    nearest_miss: Option<NearestMiss>,
    /// One bill for each plan, if tokens were given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bills: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refined: Vec<super::refined::RefinedDocument>,
}

/// JSON form of the recommendation.
#[derive(Serialize)]
struct Recommended {
    /// Rank of the plan to launch among `plans`, from 1.
    rank: usize,
    /// Limit that no plan keeps: `risk` or `proof`.
    given_up: Option<&'static str>,
    /// Probability that each of `plans` is the fastest of them.
    p_best: Vec<f64>,
    /// The fastest plan by the model, where another is recommended.
    fastest: Option<Priced>,
    /// Reasons against it, one word each: `risk`, `unproven`, `plainer`.
    fastest_declined_for: Vec<&'static str>,
}

impl Recommended {
    fn new(problem: &Problem, advice: &Advice) -> Self {
        let reasons = advice.fastest.iter().flat_map(|declined| &declined.reasons).map(|reason| match reason {
            advice::Reason::Risk(_) => "risk",
            advice::Reason::Unproven(_) => "unproven",
            advice::Reason::Plainer => "plainer",
        });
        Self {
            rank: advice.recommended + 1,
            given_up: advice.given_up.map(|limit| match limit {
                GivenUp::Risk => "risk",
                GivenUp::Proof => "proof",
            }),
            p_best: advice.chances.clone(),
            fastest: advice.fastest.as_ref().map(|declined| Priced::new(problem, &declined.evaluation)),
            fastest_declined_for: reasons.collect(),
        }
    }
}

/// Contents of the JSON answer of `plan`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    /// Recommendation, where step time is what the plans are ranked by.
    pub advice: Option<&'a Advice>,
    /// One bill for each plan, if tokens were given.
    pub bills: &'a [Value],
    /// Refined stages of the best plans.
    pub refined: &'a [RefinedEntry],
}

/// JSON answer of `plan`.
///
/// # Errors
///
/// A value has no JSON form.
pub fn ranking(problem: &Problem, ranking: &Ranking, answer: &Answer) -> serde_json::Result<String> {
    let ties = Ties::of(ranking);
    let advice = answer.advice.filter(|_| !ranking.evaluations.is_empty());
    text(&PlanDocument {
        schema: SCHEMA,
        problem: question(problem),
        recommended: advice.map(|advice| Recommended::new(problem, advice)),
        tied_with_first: ties.tied,
        plans_to_time: ties.to_time(),
        plans: ranking.evaluations.iter().map(|evaluation| Priced::new(problem, evaluation)).collect(),
        considered: ranking.considered,
        evaluated: ranking.evaluated,
        rejected: ranking.rejections.iter().map(|rule| (rule.rule.to_owned(), rule.count.into())).collect(),
        certificate: ranking.certificate.clone(),
        nearest_miss: ranking
            .nearest
            .as_ref()
            .map(|miss| NearestMiss { plan: miss.plan.to_string(), reason: miss.reason.clone() }),
        bills: answer.bills.to_vec(),
        refined: answer.refined.iter().map(super::refined::RefinedDocument::new).collect(),
    })
}

#[derive(Serialize)]
struct Reason {
    rule: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct RankMemory {
    rank: u32,
    peak_mem_gib: f64,
    memory: Map<String, Value>,
}

impl RankMemory {
    /// JSON form of the memory of one pipeline rank.
    pub(super) fn new(footprint: &Footprint) -> Self {
        Self { rank: footprint.rank, peak_mem_gib: footprint.device().as_gib(), memory: memory(footprint) }
    }
}

#[derive(Serialize)]
struct ExplainDocument {
    schema: u32,
    problem: Question,
    runs: bool,
    reasons: Vec<Reason>,
    prediction: Option<Priced>,
    ranks: Vec<RankMemory>,
}

/// JSON answer of `explain`.
///
/// # Errors
///
/// A value has no JSON form.
pub fn explanation(
    costs: &Costs,
    evaluation: Option<&Evaluation>,
    footprints: &[Footprint],
    rejections: &[Rejection],
) -> serde_json::Result<String> {
    text(&ExplainDocument {
        schema: SCHEMA,
        problem: question(costs.problem),
        runs: rejections.is_empty(),
        reasons: rejections.iter().map(|r| Reason { rule: r.rule(), reason: r.to_string() }).collect(),
        prediction: evaluation.map(|evaluation| Priced::new(costs.problem, evaluation)),
        ranks: footprints.iter().map(RankMemory::new).collect(),
    })
}

#[derive(Serialize)]
struct ModelDocument<'a> {
    schema: u32,
    name: &'a str,
    source: &'a str,
    layers: u32,
    hidden: u32,
    vocab: u32,
    seq_len: u32,
    tied_embeddings: bool,
    experts: u32,
    mtp_depth: u32,
    parameters: ModelParameters,
    causal_flop_per_token: f64,
    model: &'a Model,
}

/// JSON answer of `models NAME`.
///
/// # Errors
///
/// A value has no JSON form.
pub fn model(model: &Model) -> serde_json::Result<String> {
    text(&ModelDocument {
        schema: SCHEMA,
        name: &model.name,
        source: &model.source,
        layers: model.layers(),
        hidden: model.hidden,
        vocab: model.vocab,
        seq_len: model.seq_len,
        tied_embeddings: model.tied_embeddings,
        experts: model.experts(),
        mtp_depth: model.mtp_depth,
        parameters: model.parameters(),
        causal_flop_per_token: model.flops_per_token(model.seq_len, AttentionConvention::Causal).get(),
        model,
    })
}

/// Adds the arguments that another run can start from to a document, under `arguments`.
///
/// # Errors
///
/// A value has no JSON form, or the document is not an object.
pub fn with_arguments(document: &str, arguments: &impl Serialize) -> serde_json::Result<String> {
    with(document, "arguments", arguments)
}

/// Adds one entry to a document.
///
/// # Errors
///
/// A value has no JSON form, or the document is not an object.
pub fn with(document: &str, key: &str, value: &impl Serialize) -> serde_json::Result<String> {
    let mut document: Map<String, Value> = serde_json::from_str(document)?;
    document.insert(key.into(), serde_json::to_value(value)?);
    text(&document)
}

/// JSON form of a sensitivity: the optimum after one change.
#[derive(Serialize)]
pub struct Sensitivity<'c> {
    what: &'c str,
    /// Step time of the best plan after the change; absent if no plan runs.
    step_time_s: Option<f64>,
    /// Step time relative to the winner's, minus 1.
    slower: Option<f64>,
    plan: Option<String>,
}

impl<'c> Sensitivity<'c> {
    /// JSON form of a change.
    pub fn new(change: &'c ChangedOptimum) -> Self {
        let ChangedOptimum { what, best, slower } = change;
        let step_time_s = best.as_ref().map(|best| best.step.total().get());
        Self { what, step_time_s, slower: *slower, plan: best.as_ref().map(|best| best.plan.to_string()) }
    }
}

/// Serialises a document with a final line break.
///
/// # Errors
///
/// A value has no JSON form.
pub fn text(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(document).map(|text| text + "\n")
}
