//! Ranked plans, rejections, and the header line of a problem.

use super::Sheet;
use super::ties::Ties;
use meshwright_engine::cost::{Evaluation, Figures, StepTime, Term};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{percent, significant};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::search::Ranking;

/// Number of terms shown next to each plan.
const TERMS_SHOWN: usize = 3;
/// Share of the step below which a term is omitted.
const LEAST_SHOWN: f64 = 0.005;

/// Table of the ranked plans.
pub fn ranked(problem: &Problem, ranking: &Ranking) -> Sheet {
    let columns = [
        "#",
        "plan",
        "micro batches",
        "step time",
        "MFU",
        "tokens/s /GPU",
        "peak GiB",
        "headroom GiB",
        "where the time goes",
    ];
    let mut sheet = Sheet::new(problem.heading(), &columns);
    let ties = Ties::of(ranking);
    for (at, evaluation) in ranking.evaluations.iter().enumerate() {
        let figures = Figures::new(problem, evaluation);
        let sure = Confidence::new(problem, evaluation);
        sheet.push([
            ties.place(at),
            evaluation.plan.to_string(),
            significant_count(evaluation.plan.micro_batches(problem.workload().global_batch)),
            format!("{}\n({} to {})", figures.step, sure.step.low, sure.step.high),
            percent(figures.mfu),
            significant(figures.tokens_per_second),
            format!(
                "{}\n({} to {})",
                significant(figures.peak.as_gib()),
                significant(sure.peak.low.as_gib()),
                significant(sure.peak.high.as_gib())
            ),
            format!("{}\n(full {})", significant(figures.headroom_gib), percent(sure.oom_probability)),
            where_it_goes(evaluation),
        ]);
    }
    sheet
}

fn significant_count(n: f64) -> String {
    if n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.2}") }
}

/// Terms as shares of the step, largest first, without negligible ones.
pub fn largest_terms(step: &StepTime) -> Vec<(Term, f64)> {
    let total = step.total();
    let mut terms: Vec<(Term, f64)> =
        step.terms().into_iter().map(|(term, time)| (term, time / total)).filter(|(_, share)| *share > 0.0).collect();
    terms.sort_by(|a, b| b.1.total_cmp(&a.1));
    terms
}

pub(super) fn where_it_goes(evaluation: &Evaluation) -> String {
    let shown: Vec<String> = largest_terms(&evaluation.step)
        .into_iter()
        .filter(|(_, share)| *share >= LEAST_SHOWN)
        .take(TERMS_SHOWN)
        .map(|(term, share)| format!("{} {:.0}%", term, share * 100.0))
        .collect();
    shown.join(",\n")
}

/// Table of rejections by rule, the most frequent first.
pub fn rejected(ranking: &Ranking) -> Sheet {
    let mut sheet = Sheet::new("rejected, by rule", &["rule", "plans", "for example"]);
    let mut rules: Vec<_> = ranking.rejections.iter().collect();
    rules.sort_by(|a, b| b.count.cmp(&a.count).then(a.rule.cmp(b.rule)));
    for rule in rules {
        sheet.push([rule.rule.to_owned(), rule.count.to_string(), rule.example.clone()]);
    }
    sheet
}
