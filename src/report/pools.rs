//! Reports on plans over pools of heterogeneous GPUs.

use super::Sheet;
use super::plans::where_it_goes;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::{Seconds, count, percent, significant};
use meshwright_planner::confidence::{Confidence, Interval};
use meshwright_planner::pools::{Distribution, Mixture, Pooled, PooledAnswer, Share};

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

/// Confidence in a mixture: the least certain of its pools' shares.
pub(super) struct MixtureConfidence {
    /// Interval that holds the interval of every share.
    pub step: Interval<Seconds>,
    /// Largest probability of running out of memory.
    pub oom_probability: f64,
}

impl MixtureConfidence {
    pub fn new(pooled: &Pooled, mixture: &Mixture) -> Self {
        let time = mixture.step.total();
        let mut widest = Self { step: Interval { low: time, high: time }, oom_probability: 0.0 };
        for (pool, problem) in pooled.joined().iter().enumerate() {
            let Confidence { step, oom_probability, .. } = Confidence::new(problem, &mixture.evaluation(pool));
            widest.step = widest.step.hull(step);
            widest.oom_probability = widest.oom_probability.max(oom_probability);
        }
        widest
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
pub fn each_alone(pooled: &Pooled, answer: &PooledAnswer) -> Sheet {
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
    if answer.is_partial {
        words.push("The search ended at its limit: a faster plan may exist.".into());
    }
    if let Some(best) = answer.mixtures.first() {
        let slowest = &pooled.cluster().pools[best.slowest].name;
        words.push(format!("The first plan waits for pool {slowest}."));
        words.extend(Confidence::new(&pooled.joined()[0], &best.evaluation(0)).doubts());
    }
    if let Some(beyond) = &answer.beyond {
        words.push(format!(
            "With shares by speed ({}), {} would take {}: Megatron-Core and the other available frameworks do not \
            run replicas with unequal numbers of micro-batches; --for any includes such plans.",
            shares(pooled, &beyond.distribution).join(", "),
            beyond.plan,
            beyond.step.total()
        ));
    }
    words.join(" ")
}

/// Pool that is fastest by itself, with its step time.
pub(super) fn fastest_alone<'p>(pooled: &'p Pooled, answer: &PooledAnswer) -> Option<(&'p str, Seconds)> {
    let each = pooled.cluster().pools.iter().zip(&answer.alone);
    let each = each.filter_map(|(pool, best)| Some((pool.name.as_str(), best.as_ref()?.step.total())));
    each.min_by(|a, b| a.1.get().total_cmp(&b.1.get()))
}
