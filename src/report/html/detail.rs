//! Sections on one plan: where the time goes, the memory of every rank, the pipeline.

use super::bars::waterfall;
use super::memory::memory;
use super::page::{HtmlReport, figure, folded, paragraph, table};
use super::pipeline::pipeline;
use crate::report::explain;
use meshwright_engine::cost::{Costs, Evaluation, Footprint};

/// Largest number of ranks whose memory is also a table that is open.
const OPEN_RANKS: usize = 8;

/// Appends the details of a plan to a report.
pub fn plan_sections(
    report: &mut HtmlReport,
    costs: &Costs,
    evaluation: Option<&Evaluation>,
    footprints: &[Footprint],
) {
    let problem = costs.problem;
    if let Some(evaluation) = evaluation {
        let total = evaluation.step.total();
        let drawn = waterfall(&evaluation.step.terms(), total);
        let rows = explain::waterfall(problem, evaluation).without("from start to end");
        let caption = "Terms of the step, one after another; what hides behind compute takes no time.";
        report.section(&format!("Where a step of {total} goes"), [figure(drawn, caption), table(&rows)]);
    }
    if !footprints.is_empty() {
        let rows = table(&explain::memory(problem, footprints));
        let rows = if footprints.len() > OPEN_RANKS { folded("Figures of every rank", rows) } else { rows };
        report.section("Memory of every pipeline rank", [figure(memory(problem, footprints).svg, ""), rows]);
    }
    let timeline = evaluation.and_then(|evaluation| costs.timeline(&evaluation.plan));
    if let Some(timeline) = timeline.filter(|timeline| timeline.plan.layout.pp > 1) {
        let caption = format!(
            "One pipeline of {} ranks with {} micro-batches, simulated operation by operation. A band goes on where the one \
             above it ends; numbers are micro-batches, and every other chunk of a rank is lighter.",
            timeline.plan.layout.pp,
            timeline.plan.micro_batches(problem.workload().global_batch),
        );
        report.section("Pipeline", [figure(pipeline(&timeline).svg, ""), paragraph(&caption).with("class", "notes")]);
    }
}
