//! Versioned JSON documents. A key that is a quantity ends in its unit.

use serde::Serialize;
use serde_json::{Map, Value};

pub use super::prediction::Priced;

use super::prediction::memory;
use super::recommended::Recommended;
use super::ties::Ties;
use meshwright_engine::cost::{Costs, Evaluation, Footprint};
use meshwright_engine::model::Model;
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::model::parameters::ModelParameters;
use meshwright_engine::problem::Problem;
use meshwright_planner::advice::Advice;
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::search::{ChangedOptimum, Ranking};
use meshwright_planner::space::Rejection;

/// Version of every JSON document.
pub const SCHEMA: u32 = 1;

/// JSON form of a problem.
#[derive(Debug, Serialize)]
pub struct ProblemDocument {
    model: String,
    cluster: String,
    gpu: String,
    gpus: u32,
    global_batch: u32,
    seq_len: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document_len: Option<u32>,
    precision: String,
    recipe_bytes_per_parameter: f64,
    stack: String,
    hbm_gib: f64,
    hbm_budget_gib: f64,
    imbalance: f64,
}

impl ProblemDocument {
    /// JSON form of a problem.
    pub(super) fn new(problem: &Problem) -> Self {
        let (cluster, workload) = (problem.cluster(), problem.workload());
        Self {
            model: problem.model().name.clone(),
            cluster: cluster.name.clone(),
            gpu: cluster.gpu.name.clone(),
            gpus: cluster.gpus,
            global_batch: workload.global_batch,
            seq_len: workload.seq_len,
            document_len: workload.document_len,
            precision: workload.precision(),
            recipe_bytes_per_parameter: workload.recipe.total(),
            stack: problem.stack().name.clone(),
            hbm_gib: cluster.gpu.hbm.value.as_gib(),
            hbm_budget_gib: problem.hbm_budget().as_gib(),
            imbalance: workload.imbalance,
        }
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
    problem: ProblemDocument,
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

/// Contents of the JSON answer of `plan`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    /// Recommendation, where plans are ranked by step time.
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
pub fn ranking(problem: &Problem, ranking: &Ranking, answer: &Answer) -> serde_json::Result<AnswerDocument> {
    let ties = Ties::of(ranking);
    let advice = answer.advice.filter(|_| !ranking.evaluations.is_empty());
    AnswerDocument::new(&PlanDocument {
        schema: SCHEMA,
        problem: ProblemDocument::new(problem),
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
        Self { rank: footprint.rank, peak_mem_gib: footprint.peak().as_gib(), memory: memory(footprint) }
    }
}

#[derive(Serialize)]
struct ExplainDocument {
    schema: u32,
    problem: ProblemDocument,
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
) -> serde_json::Result<AnswerDocument> {
    AnswerDocument::new(&ExplainDocument {
        schema: SCHEMA,
        problem: ProblemDocument::new(costs.problem),
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

/// JSON document of an answer, to which parts can be added. It keeps every number as it was computed: text that is read back
/// may lose the last digit of one.
#[derive(Clone, Debug)]
pub struct AnswerDocument(Map<String, Value>);

impl AnswerDocument {
    /// Document of a value, whose form must be an object.
    ///
    /// # Errors
    ///
    /// The value has no JSON form, or it is no object.
    pub fn new(answer: &impl Serialize) -> serde_json::Result<Self> {
        match serde_json::to_value(answer)? {
            Value::Object(entries) => Ok(Self(entries)),
            other => Err(serde::ser::Error::custom(format!("{other} is no object"))),
        }
    }

    /// Adds one entry.
    ///
    /// # Errors
    ///
    /// The value has no JSON form.
    pub fn with(mut self, key: &str, value: &impl Serialize) -> serde_json::Result<Self> {
        self.0.insert(key.into(), serde_json::to_value(value)?);
        Ok(self)
    }

    /// Adds the arguments that another run can start from, under `arguments`.
    ///
    /// # Errors
    ///
    /// The value has no JSON form.
    pub fn with_arguments(self, arguments: &impl Serialize) -> serde_json::Result<Self> {
        self.with("arguments", arguments)
    }

    /// The document as a value.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// Text with a final line break.
    ///
    /// # Errors
    ///
    /// The document cannot be written.
    pub fn text(&self) -> serde_json::Result<String> {
        text(&self.0)
    }
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
