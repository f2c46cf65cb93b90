//! Header of every file: the question, the plan, and the prediction.

use super::request::Request;
use crate::header_question;
use meshwright_engine::cost::Figures;
use meshwright_engine::units::{Bytes, percent, significant, thousands};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::limits::Limits;

/// Widest line of a comment.
const WIDTH: usize = 118;

/// Header lines without a comment mark: the plan that the file runs and the prediction for it.
pub(crate) fn lines(framework: &Limits, request: &Request, notes: &[String]) -> Vec<String> {
    let (problem, evaluation) = (request.costs.problem, request.evaluation);
    let heading = request.pools.map_or_else(|| problem.heading(), |pools| pools.heading.to_owned());
    let mut lines = vec![format!("{framework}: {heading}"), format!("plan: {}", evaluation.plan)];
    lines.extend(request.pools.is_none().then(|| header_question::line(problem)));
    lines.extend(request.release.map(|release| format!("release: {framework} {release}")));
    if let Some(staged) = request.staged {
        let recomputed = staged.recomputation(problem.model().kinds.len()).replace('\n', " ");
        lines.push(format!("stages: {}, recomputing {recomputed}", staged.megatron_layout()));
    }
    match request.pools {
        Some(pools) => lines.extend_from_slice(pools.lines),
        None => lines.extend(predicted(request)),
    }
    lines.extend(notes.iter().map(|note| format!("note: {note}")));
    lines.iter().flat_map(|line| wrapped(line)).collect()
}

/// The prediction for a plan on one cluster.
fn predicted(request: &Request) -> Vec<String> {
    let (problem, evaluation) = (request.costs.problem, request.evaluation);
    let figures = Figures::new(problem, evaluation);
    let sure = Confidence::new(problem, evaluation);
    let gib = |bytes: Bytes| significant(bytes.as_gib());
    let mut lines = vec![format!(
        "predicted by meshwright {}: {} a step ({} to {}), {} MFU, {} tokens/s/GPU; rank {} peaks at {} GiB ({} to {}) of {}, \
         and runs out of memory with a chance of {}",
        env!("CARGO_PKG_VERSION"),
        figures.step,
        sure.step.low,
        sure.step.high,
        percent(figures.mfu),
        significant(figures.tokens_per_second),
        evaluation.footprint.rank,
        gib(figures.peak),
        gib(sure.peak.low),
        gib(sure.peak.high),
        gib(problem.cluster().gpu.hbm.value),
        percent(sure.oom_probability),
    )];
    lines.push(format!("nine runs of ten lie in the intervals, which rest on {} published runs", sure.runs));
    lines.extend(sure.doubts());
    let workload = problem.workload();
    if workload.attention_len() < workload.seq_len {
        lines.push(format!(
            "attention is priced within documents of {} tokens: the data loader has to give their boundaries, which this file does not \
             set up",
            thousands(u64::from(workload.attention_len()))
        ));
    }
    if figures.headroom_gib < 0.0 {
        lines.push(format!(
            "WARNING: predicted not to fit: {} GiB over what the profile lets a plan fill",
            significant(-figures.headroom_gib)
        ));
    }
    lines
}

/// A line wrapped at spaces; lines after the first are indented.
fn wrapped(line: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut current = String::new();
    for word in line.split(' ') {
        if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut current, format!("  {word}")));
        } else {
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
    }
    lines.push(current);
    lines
}
