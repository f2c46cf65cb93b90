//! Sentences below the answer: reasons against the model's first choice, and the certainty of the order.

use super::columns;
use super::switches::{self, Bounds};
use crate::report::basis;
use crate::report::ties::Ties;
use meshwright_engine::cost::data::RankParameters;
use meshwright_engine::cost::groups;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::gpu::{Format, Topology};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::units::{Bytes, Seconds, percent, thousands, whole_percent};
use meshwright_planner::advice::{Advice, Declined, GivenUp, PreferredFor, PublishedPlan, Reason, USUAL_RISK, Unlike};
use meshwright_planner::catalog::layouts::PublishedLayout;
use meshwright_planner::confidence::{Confidence, memory_errors};
use meshwright_planner::limits::Limits;
use meshwright_planner::search::{Ranking, SearchProof};
use meshwright_planner::space::Unproven;

/// Sentences on an answer, in order of importance; `risk` is the accepted probability of running out of memory, `limits` those of the
/// framework that the plans are for, if one is named.
pub fn sentences(problem: &Problem, advice: &Advice, limits: Option<&'static Limits>, risk: f64) -> Vec<String> {
    let Some(plan) = advice.plan() else { return Vec::new() };
    let sure = Confidence::new(problem, plan);
    let found = [
        advice
            .given_up
            .map(|limit| given_up(limit, &Unproven::in_plan(problem, &plan.plan), sure.oom_probability, risk)),
        unseen_risk(problem, &sure, risk),
        domains(problem, plan),
        advice.fastest.as_ref().map(|declined| faster(problem, declined, plan)),
        advice.published.as_ref().and_then(|published| compared(problem, advice, plan, published, risk)),
        held_twice(problem, plan),
        switches::graphs(problem, plan, Bounds { limits, risk }),
        switches::expert_overlap(problem, plan, Bounds { limits, risk }),
        switches::sixteen_bits(problem, plan, Bounds { limits, risk }),
    ];
    let certainty = [order(advice, plan), Some(intervals(problem, plan, &sure))];
    let said = found.iter().chain(&certainty).flatten().map(|text| text.matches(". ").count() + 1).sum::<usize>();
    let row = first_row(problem, advice).filter(|_| said < MOST_SENTENCES);
    found.into_iter().chain([row]).chain(certainty).flatten().collect()
}

/// Most sentences below an answer: a faster row is explained where there is room.
const MOST_SENTENCES: usize = 6;

/// Sentence on limits that no plan keeps: the accepted `risk`, where the recommended plan has `own_risk`, or the mechanisms that
/// published runs have shown, where it has `mechanisms`.
pub(in crate::report) fn given_up(limit: GivenUp, mechanisms: &[&Unproven], own_risk: f64, risk: f64) -> String {
    match limit {
        GivenUp::Risk => format!(
            "No plan keeps the risk of running out of memory at {}: this one has {}.",
            whole_percent(risk),
            whole_percent(own_risk)
        ),
        GivenUp::Proof => {
            let each = mechanisms.iter().map(|mechanism| format!("{} ({})", mechanism.what, mechanism.instead));
            let risky = if own_risk > risk {
                format!("; none keeps the risk of running out of memory at {}", whole_percent(risk))
            } else {
                String::new()
            };
            format!(
                "Every plan that fits uses a mechanism that no published run has shown{risky}. This one has {}: test it before \
                 relying on it.",
                each.collect::<Vec<_>>().join(" and ")
            )
        }
    }
}

/// Sentence on groups that do not divide a scale-up domain, where the plan needs more domains than its cluster has or its GPUs fill: an
/// NVL72 holds one group of 64.
fn domains(problem: &Problem, plan: &Evaluation) -> Option<String> {
    let (cluster, domain) = (problem.cluster(), problem.cluster().scale_up.gpus);
    let filled = groups::filled(&plan.plan, domain);
    let (needed, whole) = (cluster.gpus.div_ceil(filled), cluster.gpus.div_ceil(domain));
    let is_whole = cluster.gpus.is_multiple_of(domain) && cluster.scale_up.topology == Topology::Switch;
    (needed > whole && is_whole).then(|| {
        format!(
            "Groups of the recommended plan fill {filled} of the {domain} GPUs that NVLink joins, so it needs {needed} such \
             domains, where {} GPUs fill {whole}: on {whole}, ask for `--gpus {}`.",
            thousands(u64::from(cluster.gpus)),
            whole * filled
        )
    })
}

/// Sentence on an accepted risk smaller than the published peaks can show.
fn unseen_risk(problem: &Problem, sure: &Confidence, risk: f64) -> Option<String> {
    let peaks = memory_errors(problem);
    let least = peaks.least_share();
    (risk < least && sure.oom_probability > risk).then(|| {
        format!(
            "Peaks of {} published runs show no risk of running out of memory below {}: plans are held to the largest \
            error among them.",
            peaks.runs,
            whole_percent(least)
        )
    })
}

/// Sentence on the plan that is fastest by the model, and on why it is not recommended.
fn faster(problem: &Problem, declined: &Declined, recommended: &Evaluation) -> String {
    let Declined { evaluation, reasons } = declined;
    let unlike = columns::unlike(problem, &evaluation.plan, &recommended.plan);
    faster_plan(&unlike, evaluation.step.total(), recommended.step.total(), reasons)
}

/// Sentence on a plan that is fastest by the model, in words, and on why it is not recommended.
pub(in crate::report) fn faster_plan(plan: &str, fastest: Seconds, recommended: Seconds, reasons: &[Reason]) -> String {
    let reasons: Vec<String> = reasons.iter().map(reason).collect();
    format!(
        "Fastest by the model: {plan}, {fastest} ({:.1} % faster); not recommended, because {}.",
        100.0 * (1.0 - fastest / recommended),
        series(&reasons, "and")
    )
}

/// Sentence on why the fastest row is not recommended. None where it is faster by less than is printed, and where it has the layout of the
/// fastest plan by the model, on which a sentence of its own says the same.
fn first_row(problem: &Problem, advice: &Advice) -> Option<String> {
    let preferred_for = advice.preferred_for(problem)?;
    let (row, recommended) = (advice.ranking.evaluations.first()?, advice.plan()?);
    let fastest = advice.fastest.as_ref().map(|declined| (&declined.evaluation.plan, &declined.reasons[..]));
    if says_of_row(fastest, &row.plan) {
        return None;
    }
    let times = match (advice.given_runs.first(), advice.given_runs.get(advice.recommended)) {
        (Some(of_row), Some(own)) => (of_row.median, own.median),
        _ => (row.step.total(), recommended.step.total()),
    };
    faster_row(times.0, times.1, preferred_for)
}

/// Whether the sentence on the fastest plan by the model says why the fastest row is not recommended: it has its layout, and only the
/// choice among plans that errors cannot tell apart speaks against it.
pub(in crate::report) fn says_of_row(fastest: Option<(&Plan, &[Reason])>, row: &Plan) -> bool {
    fastest.is_some_and(|(plan, reasons)| {
        let of_choice = |reason: &Reason| matches!(reason, Reason::Plainer(_) | Reason::Published);
        plan.layout == row.layout && reasons.iter().all(of_choice)
    })
}

/// Sentence on why the fastest row is not recommended. None where it is faster by less than is printed.
pub(in crate::report) fn faster_row(row: Seconds, recommended: Seconds, preferred_for: PreferredFor) -> Option<String> {
    let share = 100.0 * (1.0 - row / recommended);
    if share < LEAST_PRINTED {
        return None;
    }
    let (near, why) = match preferred_for {
        PreferredFor::Risk => ("", "has a larger risk of running out of memory".to_owned()),
        PreferredFor::Published => {
            (NEAR, "lacks the degrees of a published run, which the recommended plan has".into())
        }
        PreferredFor::Domain => (NEAR, "has tensor parallelism across nodes".into()),
        PreferredFor::Plainness(unlike) => (NEAR, format!("needs {}", needed(&unlike))),
    };
    Some(format!("Row 1 is {share:.1} % faster{near}, but {why}."))
}

/// Least percentage that a tenth of a percent shows.
const LEAST_PRINTED: f64 = 0.05;
/// Remark on a difference below that of repeated runs.
const NEAR: &str = ", within run-to-run noise";

/// Sentence on the order of the plans: by the measured runs if there are any, else with the plans that are tied.
fn order(advice: &Advice, recommended: &Evaluation) -> Option<String> {
    if let Some(given) = advice.given_runs.get(advice.recommended) {
        return Some(format!(
            "Plans are ranked by their step time given the measured runs, which put this one at {:+.1} % of the model's own; \
             `tune` says which to time next.",
            (given.median / recommended.step.total() - 1.0) * 100.0
        ));
    }
    Some(Ties::of(&advice.ranking).advice()).filter(|advice| !advice.is_empty())
}

/// Sentence on the plans that a Pareto front leaves out; none where it has a tolerance of zero or its search was stopped.
pub fn covered(ranking: &Ranking) -> Option<String> {
    let SearchProof::Covered { tolerance } = ranking.certificate.proof else { return None };
    Some(format!(
        "The rows cover the Pareto front within {}: row 1 is the fastest plan, and each plan left out has a row that is worse by no \
         more than that in step time, memory and GPUs (`--pareto-tolerance`).",
        percent(tolerance)
    ))
}

/// Sentence on the published runs that the intervals come from, and on mixers and a device without them.
pub fn intervals(problem: &Problem, plan: &Evaluation, sure: &Confidence) -> String {
    let device = match basis::of_step(problem, plan) {
        Basis::Measured | Basis::Calibrated => "",
        Basis::Datasheet => " Some curves of the device are estimates from its datasheet, not measurements.",
    };
    let doubts = sure.doubts().map_or_else(String::new, |sentence| format!(" {sentence}"));
    format!(
        "Intervals hold nine of ten of the {} published runs like it ({}).{doubts}{device}",
        thousands(u64::from(sure.runs)),
        sure.class_in_words()
    )
}

/// Sentence on weights that a framework holds in 16 bits and, for the GEMMs of a whole step, in 8 as well.
fn held_twice(problem: &Problem, plan: &Evaluation) -> Option<String> {
    let (workload, costs) = (problem.workload(), Costs::new(problem));
    let (wide, held) = (workload.recipe.weight, costs.weight_bytes(&plan.plan).layer);
    if !matches!(workload.format, Format::Fp8 | Format::Fp8Block) || wide < 2.0 || held <= wide {
        return None;
    }
    let of_rank = |rank: &RankParameters| rank.total() - rank.tables;
    let most = costs.rank_parameters(&plan.plan).iter().map(of_rank).fold(0.0, f64::max);
    let copies = f64::from(plan.plan.schedule.weight_copies());
    Some(format!(
        "Weights are held in 16 bits and in 8; `--optimizer fp8-primary` holds them in 8 alone and frees {:.1} GiB a GPU.",
        Bytes::new(most * wide * copies).as_gib()
    ))
}

/// Sentence on the nearest published layout of the model on the GPU: that it is recommended, or how it compares; none on one GPU,
/// which has one layout. A risk above the accepted one is named, since it keeps the layout out of the rows, as does its memory
/// where it does not fit: a row may have its degrees, and fits by other settings.
fn compared(
    problem: &Problem,
    advice: &Advice,
    recommended: &Evaluation,
    published: &PublishedPlan,
    accepted: f64,
) -> Option<String> {
    let PublishedPlan { layout, evaluation, fits } = published;
    if columns::degrees(&evaluation.plan).is_empty() {
        return None;
    }
    let degrees = columns::degrees(&as_published(problem, published));
    let risk = Confidence::new(problem, evaluation).oom_probability;
    if evaluation.plan == recommended.plan && published.shows_that_it_fits(problem) {
        let ran = format!("{} of these GPUs ({}, {})", thousands(u64::from(layout.gpus)), layout.run, layout.framework);
        let besides = if risk > accepted { ", so the model's risk of OOM does not speak against it" } else { "" };
        let took = measured(problem, layout).map_or_else(String::new, |step| format!("; the run took {step}"));
        return Some(format!("The recommended plan was run on {ran}{besides}{took}."));
    }
    let like = likeness(problem, advice, recommended, published).unwrap_or_default();
    let (place, scaled) = match layout.gpus == problem.cluster().gpus {
        true => (like, String::new()),
        false if like.is_empty() => (String::new(), format!("with DP {} ", evaluation.plan.layout.dp)),
        false => (String::new(), format!("with DP {}{like}, ", evaluation.plan.layout.dp)),
    };
    let slower = evaluation.step.total() / recommended.step.total() - 1.0;
    let memory = match fits {
        false => " and does not fit, by the model".to_owned(),
        true if risk > accepted => format!(" with {} risk of OOM", whole_percent(risk)),
        true => String::new(),
    };
    let format = if layout.precision == problem.workload().precision() {
        String::new()
    } else {
        format!(" in {}", layout.precision)
    };
    let took = measured(problem, layout).map_or_else(String::new, |step| format!("; the run took {step}"));
    Some(format!(
        "A published run on {} of these GPUs{format} ({}, {}) had {degrees}{place}; {scaled}that layout takes {} here ({:+.1} \
         %){memory}{took}.",
        thousands(u64::from(layout.gpus)),
        layout.run,
        layout.framework,
        evaluation.step.total(),
        slower * 100.0
    ))
}

/// Measured step time of a published run, with the sequences of its step where a step of the question has others.
fn measured(problem: &Problem, layout: &PublishedLayout) -> Option<String> {
    let step = Seconds::new(layout.step_s?);
    let sequences = (layout.global_batch != problem.workload().global_batch)
        .then(|| format!(" of {} sequences", thousands(u64::from(layout.global_batch))));
    Some(format!("{step} a step{}", sequences.unwrap_or_default()))
}

/// Row with the layout of a published plan that fits, or else the recommended plan with it, and what differs: `, as row 2 but for ZeRO 1`.
fn likeness(problem: &Problem, advice: &Advice, recommended: &Evaluation, published: &PublishedPlan) -> Option<String> {
    let plan = &published.evaluation.plan;
    let rows = &advice.ranking.evaluations;
    let row = rows.iter().position(|ranked| published.fits && ranked.plan.layout == plan.layout);
    let (name, like) = match row {
        Some(at) => (format!("row {}", at + 1), &rows[at].plan),
        None if recommended.plan.layout == plan.layout => ("the recommended plan".to_owned(), &recommended.plan),
        None => return None,
    };
    let but = if plan == like { String::new() } else { format!(" but for {}", columns::unlike(problem, plan, like)) };
    Some(format!(", as {name}{but}"))
}

/// A published plan with the replicas of its own run.
fn as_published(problem: &Problem, published: &PublishedPlan) -> Plan {
    let mut plan = published.evaluation.plan.clone();
    let of_replica = (problem.cluster().gpus / plan.layout.dp.max(1)).max(1);
    plan.layout.dp = (published.layout.gpus / of_replica).max(1);
    plan
}

/// A reason against a faster plan, in words.
pub fn reason(reason: &Reason) -> String {
    match reason {
        // Hundredths, where whole percents would read as the risk that is usually accepted.
        Reason::Risk(risk) if (risk - USUAL_RISK).abs() < 0.005 => {
            format!("its risk of running out of memory is {:.2} %", risk * 100.0)
        }
        Reason::Risk(risk) => format!("its risk of running out of memory is {}", whole_percent(*risk)),
        Reason::Unproven(mechanisms) => format!("no published run has shown {}", either(mechanisms)),
        Reason::Published => {
            "a published run has the degrees of the recommended plan, and their difference is within run-to-run noise"
                .into()
        }
        Reason::Plainer(unlike) if unlike.needs.is_empty() => {
            "the recommended plan is plainer, and their difference is within run-to-run noise".into()
        }
        Reason::Plainer(unlike) => {
            format!("it needs {}, and their difference is within run-to-run noise", needed(unlike))
        }
    }
}

/// Settings that a plan needs beside or instead of those of another, in words.
fn needed(Unlike { needs, instead_of }: &Unlike) -> String {
    if instead_of.is_empty() {
        return series(needs, "and");
    }
    format!("{} instead of {}", series(needs, "and"), series(instead_of, "and"))
}

/// Words in a series, of which a conjunction precedes the last: `a, b and c`.
fn series(words: &[impl AsRef<str>], conjunction: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

/// Mechanisms in a sentence that denies each of them.
fn either(mechanisms: &[&Unproven]) -> String {
    series(&mechanisms.iter().map(|mechanism| mechanism.what).collect::<Vec<_>>(), "or")
}
