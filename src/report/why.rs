//! Explanation of why the winner won, as a paragraph.

use super::basis;
use super::plans::largest_terms;
use meshwright_engine::cost::{Costs, Evaluation, Figures};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{percent, significant};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::search::{Ranking, plainer};
use meshwright_planner::space::{Restrictions, Space};

/// Paragraph on why the first plan of a ranking won and what binds it; empty for an empty ranking.
pub fn paragraph(problem: &Problem, ranking: &Ranking) -> String {
    let Some(winner) = ranking.evaluations.first() else { return String::new() };
    let figures = Figures::new(problem, winner);
    let spent: Vec<String> = largest_terms(&winner.step)
        .into_iter()
        .take(3)
        .map(|(term, share)| format!("{term} {}", percent(share)))
        .collect();
    format!(
        "Why {}: a step takes {}, of which {}. {}{} Device curves: {}. {}",
        winner.plan,
        figures.step,
        spent.join(", "),
        memory(problem, &figures, winner.footprint.rank),
        plainer_plan(problem, winner),
        basis::of_step(problem, winner),
        confidence_sentence(problem, winner),
    )
    .trim_end()
    .to_owned()
}

/// Sentence on the prediction error of similar published runs.
fn confidence_sentence(problem: &Problem, winner: &Evaluation) -> String {
    let confidence = Confidence::new(problem, winner);
    format!(
        "Of {} published runs like it ({}), nine of ten imply a step between {} and {}; its probability of running \
        out of memory is {}.",
        confidence.runs,
        confidence.class_in_words(),
        confidence.step.low,
        confidence.step.high,
        percent(confidence.oom_probability),
    ) + &confidence.doubts().map_or_else(String::new, |sentence| format!(" {sentence}"))
}

/// Sentence on a simpler plan within run-to-run noise.
fn plainer_plan(problem: &Problem, winner: &Evaluation) -> String {
    let (costs, all) = (Costs::new(problem), Restrictions::default());
    plainer(&costs, &Space::new(&costs, &all), winner).map_or_else(String::new, |plain| {
        let slower = plain.step.total() / winner.step.total() - 1.0;
        format!(" A simpler plan is within run-to-run noise (3.3 %): {} ({:+.1} %).", plain.plan, slower * 100.0)
    })
}

fn memory(problem: &Problem, figures: &Figures, rank: u32) -> String {
    format!(
        "Its fullest pipeline rank, {rank}, peaks at {} GiB, {} GiB under the {} GiB that the {} profile lets it fill.",
        significant(figures.peak.as_gib()),
        significant(figures.headroom_gib),
        significant(problem.hbm_budget().as_gib()),
        format!("{:?}", problem.hbm_profile()).to_lowercase(),
    )
}
