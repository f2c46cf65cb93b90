//! What stands at the top of every file: the question, the plan, and what was predicted.

use super::Request;
use crate::express::Target;
use crate::report::{Figures, plans, significant};

/// Widest line of a comment.
const WIDTH: usize = 118;

/// Lines that say what the file runs and what was predicted of it, without a comment mark.
pub(super) fn lines(target: Target, request: &Request, notes: &[String]) -> Vec<String> {
    let (problem, evaluation) = (request.costs.problem, request.evaluation);
    let figures = Figures::new(problem, evaluation);
    let mut lines = vec![
        format!("{target}: {}", plans::heading(problem)),
        format!("plan: {}", evaluation.plan),
        format!(
            "predicted by meshwright {}: {} a step, {:.1} % MFU, {} tokens/s/GPU; rank {} peaks at {} GiB of {}",
            env!("CARGO_PKG_VERSION"),
            figures.step,
            figures.mfu * 100.0,
            significant(figures.tokens_per_second),
            evaluation.footprint.rank,
            significant(figures.peak.as_gib()),
            significant(problem.cluster().gpu.hbm.value.as_gib()),
        ),
    ];
    if figures.headroom_gib < 0.0 {
        lines.push(format!(
            "WARNING: predicted not to fit: {} GiB over what the profile lets a plan fill",
            significant(-figures.headroom_gib)
        ));
    }
    lines.extend(notes.iter().map(|note| format!("note: {note}")));
    lines.iter().flat_map(|line| wrapped(line)).collect()
}

/// A line broken at spaces; what follows the first is indented.
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
