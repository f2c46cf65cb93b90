//! Sentences on plans over pools of heterogeneous GPUs: whether to mix, what to launch, and what differs from one cluster.

use super::answer::{faster_plan, faster_row, given_up, says_of_row};
use super::pools::shares;
use meshwright_engine::units::{Seconds, percent, whole_percent};
use meshwright_planner::advice::{PooledAdvice, Prudence, unproven_in};
use meshwright_planner::confidence::{Confidence, MixtureConfidence};
use meshwright_planner::limits::Limits;
use meshwright_planner::pools::hosts::hosts;
use meshwright_planner::pools::{Mixture, Pooled};

/// Rules that the plans of an answer keep.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Limits of the framework whose files can express every row, if there is one.
    pub limits: Option<&'static Limits>,
    /// Accepted risk and mechanisms.
    pub prudence: Prudence,
}

/// The recommended plan as `--plan` takes it; none where no plan uses all pools.
pub fn recommended(advice: &PooledAdvice) -> Option<String> {
    let plan = &advice.mixture()?.plan;
    Some(format!("Recommended, row {}: --plan \"{plan}\"", advice.recommended + 1))
}

/// Sentences below an answer, in order of importance.
pub fn paragraph(pooled: &Pooled, advice: &PooledAdvice, rules: Rules) -> String {
    let mut words = vec![mixing(pooled, advice)];
    if advice.answer.is_partial {
        words.push("The search ended at its limit: a faster plan may exist.".into());
    }
    if let Some(recommended) = advice.mixture() {
        words.extend(on_recommended(pooled, advice, recommended, rules));
    }
    if let Some(beyond) = &advice.answer.beyond {
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

/// Whether the mixture pays.
fn mixing(pooled: &Pooled, advice: &PooledAdvice) -> String {
    match (advice.mixture(), fastest_alone(pooled, advice)) {
        (Some(best), Some((name, alone))) => {
            let (step, gap) = (best.step.total(), best.step.total() / alone);
            if gap >= 1.0 {
                format!(
                    "Mixing does not pay: pool {name} alone takes {alone}, {} less than the recommended plan over all pools.",
                    percent(1.0 - 1.0 / gap)
                )
            } else {
                format!("All pools together take {step}, {} less than pool {name} alone.", percent(1.0 - gap))
            }
        }
        (Some(_), None) => "The model fits no single pool.".into(),
        (None, Some((name, alone))) => format!("No plan uses all pools; pool {name} alone takes {alone}."),
        (None, None) => "No plan uses all pools, and no plan fits a single pool.".into(),
    }
}

/// Sentences on the recommended mixture.
fn on_recommended(pooled: &Pooled, advice: &PooledAdvice, recommended: &Mixture, rules: Rules) -> Vec<String> {
    let risk = rules.prudence.risk;
    let own_risk = MixtureConfidence::new(pooled, recommended).oom_probability;
    let limit = advice.given_up.map(|limit| given_up(limit, &unproven_in(pooled, recommended), own_risk, risk));
    let slowest = &pooled.cluster().pools[recommended.slowest].name;
    let step = recommended.step.total();
    let fastest = advice.fastest.as_ref().map(|declined| {
        let mixture = &declined.mixture;
        faster_plan(&format!("`{}`", mixture.plan), mixture.step.total(), step, &declined.reasons)
    });
    let by_model = advice.fastest.as_ref().map(|declined| (&declined.mixture.plan, &declined.reasons[..]));
    let first = &advice.answer.mixtures[0];
    let row = advice.preferred_for.clone().filter(|_| !says_of_row(by_model, &first.plan));
    let row = row.and_then(|reason| faster_row(first.step.total(), step, reason));
    let waits = format!("The recommended plan waits for pool {slowest}.");
    let started = hosts(pooled, recommended).err().map(|why| format!("No files are written for it: {why}."));
    let doubts = Confidence::new(&pooled.joined()[0], &recommended.evaluation(0)).doubts();
    limit
        .into_iter()
        .chain([waits])
        .chain(fastest)
        .chain(row)
        .chain(started)
        .chain([unlike(rules)])
        .chain(doubts)
        .collect()
}

/// Sentence on the rules that rows keep as on one cluster, and on what differs.
fn unlike(rules: Rules) -> String {
    let files =
        rules.limits.map_or_else(String::new, |limits| format!("which {limits} runs on the GPUs of every pool, "));
    let shown = if rules.prudence.exotic { "" } else { " and with mechanisms that published runs have shown" };
    format!(
        "As on one cluster, rows are plans {files}within {} risk of running out of memory{shown}; unlike there, no row is proved \
         the fastest, and no published run has mixed GPUs.",
        whole_percent(rules.prudence.risk)
    )
}

/// Pool that is fastest by itself, with its step time.
pub(super) fn fastest_alone<'p>(pooled: &'p Pooled, advice: &PooledAdvice) -> Option<(&'p str, Seconds)> {
    let each = pooled.cluster().pools.iter().zip(&advice.alone);
    let each = each.filter_map(|(pool, best)| Some((pool.name.as_str(), best.as_ref()?.step.total())));
    each.min_by(|a, b| a.1.get().total_cmp(&b.1.get()))
}
