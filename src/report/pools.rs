//! Reports on plans over pools of heterogeneous GPUs.

use serde::Serialize;

use super::Sheet;
use super::plans::where_it_goes;
use super::refined::StagesDocument;
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::{Seconds, UsdPerHour, count, percent, significant};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::pools::{Mixture, Pooled, PooledAnswer, Share, Way};

/// Header line of a problem over pools.
pub fn heading(pooled: &Pooled) -> String {
    let problem = &pooled.joined()[0];
    let (model, workload) = (problem.model(), problem.workload());
    let pools: Vec<String> =
        pooled.cluster().pools.iter().map(|pool| pool_in_words(pool.cluster.gpus, &pool.cluster.gpu.name)).collect();
    format!(
        "{} ({} parameters) on {}, {} sequences of {} tokens, {}, stack {}",
        model.name,
        count(model.parameters().total as f64),
        pools.join(" + "),
        workload.global_batch,
        workload.seq_len,
        workload.precision(),
        problem.stack().name,
    )
}

fn pool_in_words(gpus: u32, gpu: &str) -> String {
    format!("{gpus} x {gpu}")
}

/// Share of each pool, one line each.
pub fn shares(pooled: &Pooled, way: &Way) -> Vec<String> {
    let names = pooled.cluster().pools.iter().map(|pool| pool.name.as_str());
    match way {
        Way::Replicas { shares } => names
            .zip(shares)
            .map(|(name, Share { replicas, micro_batches })| {
                format!("{name}: {replicas} replicas x {micro_batches} micro-batches")
            })
            .collect(),
        Way::Stages { of_rank, refined } => {
            let mut lines = Vec::new();
            let mut at = 0;
            while at < of_rank.len() {
                let run = of_rank[at..].iter().take_while(|pool| **pool == of_rank[at]).count();
                let layers = layers_of(&refined.staged, |rank| (at..at + run).contains(&rank));
                let name = &pooled.cluster().pools[of_rank[at]].name;
                // a rank of an interleaved pipeline has several stages
                let what = if refined.staged.plan.schedule.virtual_stages() > 1 { "rank" } else { "stage" };
                let ranks = if run == 1 { format!("{what} {at}") } else { format!("{what}s {at}-{}", at + run - 1) };
                lines.push(format!("{name}: {ranks}, {layers} layers"));
                at += run;
            }
            lines
        }
    }
}

/// Total number of layers of the selected pipeline ranks.
fn layers_of(staged: &StagedPlan, ranks: impl Fn(usize) -> bool) -> u32 {
    let (schedule, pp) = (staged.plan.schedule, staged.plan.layout.pp);
    let stages = staged.stages.iter().enumerate();
    stages.filter(|(stage, _)| ranks(schedule.rank_of(*stage as u32, pp) as usize)).map(|(_, of)| of.all_layers()).sum()
}

/// Throughput, MFU and price of a mixture.
pub(super) struct Figures {
    pub(super) tokens_per_second: f64,
    pub(super) mfu: f64,
    dollars: Option<f64>,
}

impl Figures {
    /// ```text
    /// tokens/s/GPU = B·s/(T·Σ N)          MFU = F(s)·B·s/T / Σ N·peak          $ per 10^9 tokens = Σ N·price·T/(B·s)
    /// ```
    fn new(pooled: &Pooled, step: Seconds, pools: impl Iterator<Item = usize> + Clone) -> Self {
        let problem = &pooled.joined()[0];
        let workload = problem.workload();
        let tokens = f64::from(workload.global_batch) * f64::from(workload.seq_len);
        let of = |pool: usize| &pooled.cluster().pools[pool];
        let gpus: f64 = pools.clone().map(|pool| f64::from(of(pool).cluster.gpus)).sum();
        let flops = problem.model().flops_per_token(workload.seq_len, AttentionConvention::Causal);
        let peak: Option<f64> = pools
            .clone()
            .map(|pool| {
                let cluster = &of(pool).cluster;
                cluster.gpu.peak_of(workload.format).map(|peak| peak.get() * f64::from(cluster.gpus))
            })
            .sum();
        let hourly: Option<f64> =
            pools.map(|pool| of(pool).price.map(|price| price.get() * f64::from(of(pool).cluster.gpus))).sum();
        Self {
            tokens_per_second: tokens / step.get() / gpus,
            mfu: peak.map_or(0.0, |peak| (flops * tokens / step).get() / peak),
            dollars: hourly.map(|hourly| hourly * step.as_hours() / tokens * 1e9),
        }
    }

    pub(super) fn of_mixture(pooled: &Pooled, mixture: &Mixture) -> Self {
        Self::new(pooled, mixture.step.total(), 0..pooled.joined().len())
    }
}

/// Widest interval of any pool's share, and the largest probability of running out of memory.
pub(super) fn sure(pooled: &Pooled, mixture: &Mixture) -> ((Seconds, Seconds), f64) {
    let each =
        pooled.joined().iter().enumerate().map(|(pool, problem)| Confidence::new(problem, &mixture.evaluation(pool)));
    each.fold(((mixture.step.total(), mixture.step.total()), 0.0), |((fast, slow), risk), sure| {
        ((fast.min(sure.step.0), slow.max(sure.step.1)), risk.max(sure.oom_probability))
    })
}

/// Optimality gap of the layers of stages, and their recomputation if it differs by stage.
fn layers(pooled: &Pooled, mixture: &Mixture) -> String {
    match &mixture.way {
        Way::Replicas { .. } => String::new(),
        Way::Stages { refined, .. } if refined.before.is_some() => String::new(), // as they were asked for
        Way::Stages { refined, .. } if refined.staged.recomputes_uniformly() => format!(",\n{}", refined.proof),
        Way::Stages { refined, .. } => {
            format!(",\n{},\n{}", refined.proof, refined.staged.recomputation(pooled.joined()[0].model().kinds.len()))
        }
    }
}

/// Table of the ranked mixtures.
pub fn mixtures(pooled: &Pooled, answer: &PooledAnswer) -> Sheet {
    let priced = pooled.cluster().pools.iter().all(|pool| pool.price.is_some());
    let mut columns = vec![
        "#",
        "plan",
        "what each pool does",
        "step time",
        "MFU",
        "tokens/s /GPU",
        "peak GiB",
        "where the time goes",
    ];
    if priced {
        columns.push("$ / 1e9 tokens");
    }
    let mut sheet = Sheet::new(heading(pooled), &columns);
    for (at, mixture) in answer.mixtures.iter().enumerate() {
        sheet.rows.push(row(pooled, &(at + 1).to_string(), mixture, priced));
    }
    sheet
}

fn row(pooled: &Pooled, place: &str, mixture: &Mixture, priced: bool) -> Vec<String> {
    let figures = Figures::of_mixture(pooled, mixture);
    let ((fast, slow), risk) = sure(pooled, mixture);
    let names = pooled.cluster().pools.iter().map(|pool| pool.name.as_str());
    let peaks =
        names.zip(&mixture.footprints).map(|(name, held)| format!("{name} {}", significant(held.device().as_gib())));
    let mut row = vec![
        place.to_owned(),
        mixture.plan.to_string(),
        shares(pooled, &mixture.way).join(",\n") + &layers(pooled, mixture),
        format!("{}\n({fast} to {slow})", mixture.step.total()),
        percent(figures.mfu),
        significant(figures.tokens_per_second),
        format!("{}\n(full {})", peaks.collect::<Vec<_>>().join(",\n"), percent(risk)),
        where_it_goes(&mixture.evaluation(mixture.slowest)),
    ];
    if priced {
        row.push(figures.dollars.map_or_else(String::new, |dollars| format!("{dollars:.0}")));
    }
    row
}

/// Table of the best plan of each pool by itself.
pub fn alone(pooled: &Pooled, answer: &PooledAnswer) -> Sheet {
    let mut sheet = Sheet::new(
        "each pool alone, same batch",
        &["pool", "plan", "step time", "MFU", "tokens/s /GPU", "$ / 1e9 tokens"],
    );
    let priced = pooled.cluster().pools.iter().all(|pool| pool.price.is_some());
    for (at, (pool, best)) in pooled.cluster().pools.iter().zip(&answer.alone).enumerate() {
        let name = format!("{} ({})", pool.name, pool_in_words(pool.cluster.gpus, &pool.cluster.gpu.name));
        match best {
            None => {
                sheet.push([name, "no plan fits".into(), String::new(), String::new(), String::new(), String::new()]);
            }
            Some(best) => {
                let figures = Figures::new(pooled, best.step.total(), std::iter::once(at));
                sheet.push([
                    name,
                    best.plan.to_string(),
                    best.step.total().to_string(),
                    percent(figures.mfu),
                    significant(figures.tokens_per_second),
                    figures.dollars.map_or_else(String::new, |dollars| format!("{dollars:.0}")),
                ]);
            }
        }
    }
    if !priced {
        sheet.columns.pop();
        for row in &mut sheet.rows {
            row.pop();
        }
    }
    sheet
}

/// Sentences on whether the mixture pays, and how an in-house framework could speed it up.
pub fn paragraph(pooled: &Pooled, answer: &PooledAnswer) -> String {
    let mut words = Vec::new();
    let fastest = fastest_alone(pooled, answer);
    match (answer.mixtures.first(), fastest) {
        (Some(best), Some((name, alone))) => {
            let (step, gap) = (best.step.total(), best.step.total() / alone);
            if gap >= 1.0 {
                words.push(format!(
                    "Mixing does not pay: pool {name} alone takes {alone}, {} less than the best plan over all pools.",
                    percent(1.0 - 1.0 / gap)
                ));
            } else {
                words.push(format!(
                    "All pools together take {step}, {} less than pool {name} alone.",
                    percent(1.0 - gap)
                ));
            }
        }
        (Some(_), None) => words.push("The model fits no single pool.".into()),
        (None, Some((name, alone))) => {
            words.push(format!("No plan uses all pools; pool {name} alone takes {alone}."));
        }
        (None, None) => words.push("No plan uses all pools, and no plan fits a single pool.".into()),
    }
    if let Some(best) = answer.mixtures.first() {
        let slowest = &pooled.cluster().pools[best.slowest].name;
        words.push(format!("The first plan waits for pool {slowest}."));
    }
    if let Some(beyond) = &answer.beyond {
        words.push(format!(
            "With shares by speed ({}), {} would take {}: Megatron-Core and the other available frameworks do not \
            run replicas with unequal numbers of micro-batches; --for any includes such plans.",
            shares(pooled, &beyond.way).join(", "),
            beyond.plan,
            beyond.step.total()
        ));
    }
    words.join(" ")
}

/// Pool that is fastest by itself, with its step time.
fn fastest_alone<'p>(pooled: &'p Pooled, answer: &PooledAnswer) -> Option<(&'p str, Seconds)> {
    let each = pooled.cluster().pools.iter().zip(&answer.alone);
    let each = each.filter_map(|(pool, best)| Some((pool.name.as_str(), best.as_ref()?.step.total())));
    each.min_by(|a, b| a.1.get().total_cmp(&b.1.get()))
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    question: Question<'a>,
    plans: Vec<Priced>,
    beyond_the_framework: Option<Priced>,
    alone: Vec<Alone>,
    mixing_pays: Option<bool>,
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
        let held = mixture.footprints[pool].device().as_gib();
        let (replicas, micro_batches, stages, layers) = match &mixture.way {
            Way::Replicas { shares } => (Some(shares[pool].replicas), Some(shares[pool].micro_batches), None, None),
            Way::Stages { of_rank, refined } => {
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
            peak_mem_gib: held,
            headroom_gib: pooled.joined()[pool].hbm_budget().as_gib() - held,
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
        let ((fast, slow), _) = sure(pooled, mixture);
        let (way, stages) = match &mixture.way {
            Way::Replicas { .. } => ("replicas", None),
            Way::Stages { refined, .. } => ("stages", Some(StagesDocument::new(refined))),
        };
        Self {
            plan: mixture.plan.to_string(),
            degrees: mixture.plan,
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

/// JSON answer for pools.
///
/// # Errors
///
/// A value has no JSON form.
pub fn json(pooled: &Pooled, answer: &PooledAnswer) -> serde_json::Result<String> {
    let problem = &pooled.joined()[0];
    let workload = problem.workload();
    let pools = pooled.cluster().pools.iter().zip(pooled.joined());
    let fastest = fastest_alone(pooled, answer);
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
        beyond_the_framework: answer.beyond.as_ref().map(|mixture| Priced::new(pooled, mixture)),
        alone: pooled
            .cluster()
            .pools
            .iter()
            .zip(&answer.alone)
            .map(|(pool, best)| Alone {
                pool: pool.name.clone(),
                plan: best.as_ref().map(|best| best.plan.to_string()),
                step_time_s: best.as_ref().map(|best| best.step.total().get()),
            })
            .collect(),
        mixing_pays: answer.mixtures.first().zip(fastest).map(|(best, (_, alone))| best.step.total() < alone),
    };
    super::json::text(&document)
}
