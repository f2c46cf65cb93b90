//! Answer of `plan` as a report in HTML.

use crate::cli::refined;
use crate::question::{PlanAnswer, Question, counts};
use crate::report::answer::{TERMS_SHOWN, describe, sentences, shared, table as rows};
use crate::report::html::{HtmlReport, LargeFigure, code, figures, list, paragraph, plan_sections, table};
use crate::report::{compare, placed, plans, refined as refinement, why};
use meshwright_engine::cost::{Costs, Evaluation, Figures};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{significant, thousands, whole_percent};
use meshwright_planner::advice::Advice;
use meshwright_planner::confidence::Confidence;

/// Text of the report.
pub fn text(question: &Question, answer: &PlanAnswer) -> String {
    let PlanAnswer { problem, found, refined, placed, economy, changed, risk, options, .. } = answer;
    let mut report = HtmlReport::new(title(problem), vec![problem.heading()]);
    if let Some(advice) = &found.advice {
        recommended(&mut report, problem, advice);
        let shared_settings = (!shared(problem, advice).is_empty())
            .then(|| paragraph(&format!("All: {}.", shared(problem, advice))).with("class", "notes"));
        report.section("Plans", [table(&rows(problem, advice, TERMS_SHOWN))].into_iter().chain(shared_settings));
        let mut statements = sentences(problem, advice, options.restrictions.limits(), *risk);
        statements.extend(refined::sentence(&advice.ranking, refined));
        let fastest = advice.fastest.iter().flat_map(|declined| {
            let line = code(&format!("--plan {}", answer.arguments_of(question, &declined.evaluation.plan)));
            [paragraph("Fastest by the model:"), line]
        });
        report.section("How sure this is", list(&statements).into_iter().chain(fastest));
    } else {
        report.answer(
            "Plans",
            [table(&plans::ranked(problem, &found.ranking)), paragraph(&why::paragraph(problem, &found.ranking))],
        );
    }
    let costs = Costs::new(problem);
    if let Some(best) = found.best() {
        plan_sections(&mut report, &costs, Some(best), &costs.footprints(&best.plan));
    }
    if let Some(economy) = economy {
        let (bills, interruptions) = economy.sheet(problem, &found.ranking);
        report.section(&bills.title, [table(&bills), paragraph(&interruptions).with("class", "notes")]);
    }
    if let Some((optimum, changes)) = changed {
        report.sheet(&compare::sensitivity(optimum, changes));
    }
    if refined.iter().any(|entry| entry.outcome.is_ok()) {
        report.sheet(&refinement::sheet(problem, refined));
    }
    if let Some(sheet) = placed::sheet(problem, placed, 0.0) {
        report.sheet(&sheet);
    }
    report.section("What was searched", [paragraph(&counts(&found.ranking))]);
    report.text()
}

/// Model and machine in a few words.
pub fn title(problem: &Problem) -> String {
    let cluster = problem.cluster();
    format!("{} on {} × {}", problem.model().name, thousands(u64::from(cluster.gpus)), cluster.gpu.name)
}

/// Section on the plan to launch.
fn recommended(report: &mut HtmlReport, problem: &Problem, advice: &Advice) {
    let Some(plan) = advice.plan() else { return };
    let mut large = large_figures(problem, plan);
    if let (Some(chance), true) = (advice.chances.get(advice.recommended), advice.ranking.evaluations.len() > 1) {
        let note = format!("of {} plans", advice.ranking.evaluations.len());
        large.push(LargeFigure { name: "Fastest with", value: whole_percent(*chance), note });
    }
    let line = code(&format!("--plan \"{}\"", plan.plan));
    report.answer(
        "Recommended",
        [paragraph(&describe(problem, &plan.plan)).with("class", "lead"), figures(&large), line],
    );
}

/// Step, MFU, memory and throughput with their intervals.
pub fn large_figures(problem: &Problem, evaluation: &Evaluation) -> Vec<LargeFigure> {
    let (figures, sure) = (Figures::new(problem, evaluation), Confidence::new(problem, evaluation));
    let tokens = thousands(figures.tokens_per_second.round() as u64);
    let large = |name, value: String, note: String| LargeFigure { name, value, note };
    vec![
        large("Step", figures.step.to_string(), format!("{} to {}", sure.step.low, sure.step.high)),
        large("MFU", format!("{:.1} %", figures.mfu * 100.0), format!("{} a GPU", figures.rate)),
        large(
            "Memory",
            format!("{} GiB", significant(figures.peak.as_gib())),
            format!(
                "of {} GiB, {} risk of OOM",
                significant(problem.cluster().gpu.hbm.value.as_gib()),
                whole_percent(sure.oom_probability)
            ),
        ),
        large("Throughput", format!("{tokens} tokens/s"), "a GPU".to_owned()),
    ]
}
