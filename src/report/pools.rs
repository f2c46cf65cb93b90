//! Reports on plans over pools of heterogeneous GPUs.

use super::Sheet;
use super::plans::where_it_goes;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::{Seconds, count, percent, significant};
use meshwright_planner::confidence::{Interval, MixtureConfidence};
use meshwright_planner::pools::{Distribution, Mixture, Pooled, Share};

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
pub fn shares(pooled: &Pooled, distribution: &Distribution) -> Vec<String> {
    let names = pooled.cluster().pools.iter().map(|pool| pool.name.as_str());
    match distribution {
        Distribution::Replicas { shares } => names
            .zip(shares)
            .map(|(name, Share { replicas, micro_batches })| {
                format!("{name}: {replicas} replicas x {micro_batches} micro-batches")
            })
            .collect(),
        Distribution::Stages { of_rank, refined } => {
            let mut lines = Vec::new();
            let mut at = 0;
            while at < of_rank.len() {
                let run = of_rank[at..].iter().take_while(|pool| **pool == of_rank[at]).count();
                let layers = layers_of(&refined.staged, |rank| (at..at + run).contains(&rank));
                let name = &pooled.cluster().pools[of_rank[at]].name;
                // A rank of an interleaved pipeline has several stages.
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
pub(super) fn layers_of(staged: &StagedPlan, ranks: impl Fn(usize) -> bool) -> u32 {
    let pipeline = staged.plan.pipeline();
    let stages = staged.stages.iter().enumerate();
    stages.filter(|(stage, _)| ranks(pipeline.rank_of(*stage as u32) as usize)).map(|(_, of)| of.all_layers()).sum()
}

/// Throughput, MFU and price of a mixture.
pub(super) struct Figures {
    pub tokens_per_second: f64,
    pub mfu: f64,
    pub dollars: Option<f64>,
}

impl Figures {
    /// ```text
    /// tokens/s/GPU = B·s/(T·Σ N)          MFU = F(s)·B·s/T / Σ N·peak(bf16)          $ per 10^9 tokens = Σ N·price·T/(B·s)
    /// ```
    fn new(pooled: &Pooled, step: Seconds, pools: impl Iterator<Item = usize> + Clone) -> Self {
        let problem = &pooled.joined()[0];
        let tokens = problem.workload().tokens_per_step();
        let pool_at = |pool: usize| &pooled.cluster().pools[pool];
        let gpus: f64 = pools.clone().map(|pool| f64::from(pool_at(pool).cluster.gpus)).sum();
        let flops = problem.flops_per_token(AttentionConvention::Causal);
        let peak: Option<f64> = pools
            .clone()
            .map(|pool| {
                let cluster = &pool_at(pool).cluster;
                cluster.gpu.peak_of(Format::Bf16).map(|peak| peak.get() * f64::from(cluster.gpus))
            })
            .sum();
        let hourly: Option<f64> = pools
            .map(|pool| pool_at(pool).price.map(|price| price.get() * f64::from(pool_at(pool).cluster.gpus)))
            .sum();
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

/// Optimality gap of the layers of stages, and their recomputation if it differs by stage.
fn layers(pooled: &Pooled, mixture: &Mixture) -> String {
    match &mixture.distribution {
        Distribution::Replicas { .. } => String::new(),
        Distribution::Stages { refined, .. } if refined.before.is_some() => String::new(), // as they were asked for
        Distribution::Stages { refined, .. } if refined.staged.recomputes_uniformly() => {
            format!(",\n{}", refined.proof)
        }
        Distribution::Stages { refined, .. } => {
            format!(",\n{},\n{}", refined.proof, refined.staged.recomputation(pooled.joined()[0].model().kinds.len()))
        }
    }
}

/// Table of the ranked mixtures, of which the recommended one is marked.
pub fn mixtures(pooled: &Pooled, mixtures: &[Mixture], recommended: Option<usize>) -> Sheet {
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
    for (at, mixture) in mixtures.iter().enumerate() {
        let mark = if Some(at) == recommended && mixtures.len() > 1 { ">" } else { "" };
        sheet.rows.push(row(pooled, &format!("{mark}{}", at + 1), mixture, priced));
    }
    sheet
}

fn row(pooled: &Pooled, place: &str, mixture: &Mixture, priced: bool) -> Vec<String> {
    let figures = Figures::of_mixture(pooled, mixture);
    let MixtureConfidence { step: Interval { low: fast, high: slow }, oom_probability: risk } =
        MixtureConfidence::new(pooled, mixture);
    let names = pooled.cluster().pools.iter().map(|pool| pool.name.as_str());
    let peaks =
        names.zip(&mixture.footprints).map(|(name, held)| format!("{name} {}", significant(held.peak().as_gib())));
    let mut row = vec![
        place.to_owned(),
        mixture.plan.to_string(),
        shares(pooled, &mixture.distribution).join(",\n") + &layers(pooled, mixture),
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
pub fn each_alone(pooled: &Pooled, alone: &[Option<Evaluation>]) -> Sheet {
    let mut sheet = Sheet::new(
        "each pool alone, same batch",
        &["pool", "plan", "step time", "MFU", "tokens/s /GPU", "$ / 1e9 tokens"],
    );
    let priced = pooled.cluster().pools.iter().all(|pool| pool.price.is_some());
    for (at, (pool, best)) in pooled.cluster().pools.iter().zip(alone).enumerate() {
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
