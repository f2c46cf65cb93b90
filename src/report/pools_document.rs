//! JSON document of plans over pools.

use serde::Serialize;

use super::json::AnswerDocument;
use super::pools_advice::fastest_alone;
use super::recommended::RecommendedMixture;
use super::refined::StagesDocument;
use crate::report::pools::{Figures, layers_of};
use meshwright_engine::units::UsdPerHour;
use meshwright_planner::advice::PooledAdvice;
use meshwright_planner::confidence::{Interval, MixtureConfidence};
use meshwright_planner::pools::{Distribution, Mixture, Pooled, PooledAnswer};

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    question: Question<'a>,
    plans: Vec<Priced>,
    /// None of an answer that explains one plan.
    recommended: Option<RecommendedMixture>,
    beyond_the_framework: Option<Priced>,
    alone: Vec<Alone>,
    mixing_pays: Option<bool>,
    /// Whether the search ended early, so that a faster plan may exist.
    is_partial: bool,
}

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    cluster: &'a str,
    pools: Vec<PoolShown<'a>>,
    gpus: u32,
    global_batch: u32,
    seq_len: u32,
    precision: String,
    stack: &'a str,
}

#[derive(Serialize)]
struct PoolShown<'a> {
    name: &'a str,
    gpu: &'a str,
    gpus: u32,
    hbm_budget_gib: f64,
    price_per_gpu_hour: Option<f64>,
}

#[derive(Serialize)]
struct Priced {
    plan: String,
    #[serde(flatten)]
    degrees: meshwright_engine::plan::Plan,
    way: &'static str,
    pools: Vec<PoolPart>,
    stages: Option<StagesDocument>,
    step_time_s: f64,
    step_time_p05_s: f64,
    step_time_p95_s: f64,
    mfu: f64,
    tokens_per_s_per_gpu: f64,
    dollars_per_billion_tokens: Option<f64>,
    slowest_pool: String,
    terms: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct PoolPart {
    pool: String,
    /// Number of replicas in the pool.
    replicas: Option<u32>,
    micro_batches: Option<u32>,
    /// Pipeline ranks in the pool.
    stages: Option<Vec<usize>>,
    layers: Option<u32>,
    peak_mem_gib: f64,
    headroom_gib: f64,
}

impl PoolPart {
    fn new(pooled: &Pooled, mixture: &Mixture, pool: usize) -> Self {
        let peak = mixture.footprints[pool].peak();
        let (replicas, micro_batches, stages, layers) = match &mixture.distribution {
            Distribution::Replicas { shares } => {
                (Some(shares[pool].replicas), Some(shares[pool].micro_batches), None, None)
            }
            Distribution::Stages { of_rank, refined } => {
                let stages: Vec<usize> = (0..of_rank.len()).filter(|&rank| of_rank[rank] == pool).collect();
                let layers = layers_of(&refined.staged, |rank| of_rank[rank] == pool);
                (None, None, Some(stages), Some(layers))
            }
        };
        Self {
            pool: pooled.cluster().pools[pool].name.clone(),
            replicas,
            micro_batches,
            stages,
            layers,
            peak_mem_gib: peak.as_gib(),
            headroom_gib: pooled.joined()[pool].headroom(peak).as_gib(),
        }
    }
}

#[derive(Serialize)]
struct Alone {
    pool: String,
    plan: Option<String>,
    step_time_s: Option<f64>,
}

impl Priced {
    fn new(pooled: &Pooled, mixture: &Mixture) -> Self {
        let figures = Figures::of_mixture(pooled, mixture);
        let Interval { low: fast, high: slow } = MixtureConfidence::new(pooled, mixture).step;
        let (way, stages) = match &mixture.distribution {
            Distribution::Replicas { .. } => ("replicas", None),
            Distribution::Stages { refined, .. } => ("stages", Some(StagesDocument::new(refined))),
        };
        Self {
            plan: mixture.plan.to_string(),
            degrees: mixture.plan.clone(),
            way,
            pools: (0..mixture.footprints.len()).map(|pool| PoolPart::new(pooled, mixture, pool)).collect(),
            stages,
            step_time_s: mixture.step.total().get(),
            step_time_p05_s: fast.get(),
            step_time_p95_s: slow.get(),
            mfu: figures.mfu,
            tokens_per_s_per_gpu: figures.tokens_per_second,
            dollars_per_billion_tokens: figures.dollars,
            slowest_pool: pooled.cluster().pools[mixture.slowest].name.clone(),
            terms: mixture
                .step
                .terms()
                .into_iter()
                .map(|(term, time)| (term.key().to_owned(), time.get().into()))
                .collect(),
        }
    }
}

/// JSON answer for pools; one that explains a plan has no advice.
///
/// # Errors
///
/// A value has no JSON form.
pub fn json(
    pooled: &Pooled,
    answer: &PooledAnswer,
    advice: Option<&PooledAdvice>,
) -> serde_json::Result<AnswerDocument> {
    let problem = &pooled.joined()[0];
    let workload = problem.workload();
    let pools = pooled.cluster().pools.iter().zip(pooled.joined());
    let fastest = advice.and_then(|advice| fastest_alone(pooled, advice));
    let alone = advice.map_or(&[][..], |advice| &advice.alone);
    let document = Document {
        schema: super::json::SCHEMA,
        question: Question {
            model: &problem.model().name,
            cluster: &pooled.cluster().name,
            pools: pools
                .map(|(pool, problem)| PoolShown {
                    name: &pool.name,
                    gpu: &pool.cluster.gpu.name,
                    gpus: pool.cluster.gpus,
                    hbm_budget_gib: problem.hbm_budget().as_gib(),
                    price_per_gpu_hour: pool.price.map(UsdPerHour::get),
                })
                .collect(),
            gpus: pooled.cluster().gpus(),
            global_batch: workload.global_batch,
            seq_len: workload.seq_len,
            precision: workload.precision(),
            stack: &problem.stack().name,
        },
        plans: answer.mixtures.iter().map(|mixture| Priced::new(pooled, mixture)).collect(),
        recommended: advice.and_then(RecommendedMixture::new),
        beyond_the_framework: answer.beyond.as_ref().map(|mixture| Priced::new(pooled, mixture)),
        alone: pooled
            .cluster()
            .pools
            .iter()
            .zip(alone)
            .map(|(pool, best)| Alone {
                pool: pool.name.clone(),
                plan: best.as_ref().map(|best| best.plan.to_string()),
                step_time_s: best.as_ref().map(|best| best.step.total().get()),
            })
            .collect(),
        is_partial: answer.is_partial,
        mixing_pays: advice
            .and_then(PooledAdvice::mixture)
            .zip(fastest)
            .map(|(best, (_, alone))| best.step.total() < alone),
    };
    AnswerDocument::new(&document)
}
