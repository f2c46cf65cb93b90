//! One plan in detail: why it does not run, its terms, its memory by rank, and every operation of its pipeline.

use std::error::Error;

use serde_json::{Map, Value};

use meshwright::cost::timeline::Timeline;
use meshwright::question::Explanation;
use meshwright::report::json;
use meshwright::schedule::slot::Pass;

/// Document of `explain` without its question, and the operations of the pipeline.
///
/// # Errors
///
/// A value has no JSON form.
pub fn picture(explanation: &Explanation) -> Result<Map<String, Value>, Box<dyn Error>> {
    let Explanation { costs, plan, evaluation, .. } = explanation;
    let document = document(explanation)?;
    let timeline = evaluation.as_ref().and_then(|_| costs.timeline(plan));
    let timeline = timeline.as_ref().map_or(Value::Null, operations);
    Ok(Map::from_iter([("explanation".into(), document.into()), ("timeline".into(), timeline)]))
}

/// Document of `explain` without its question.
///
/// # Errors
///
/// A value has no JSON form.
pub fn document(explanation: &Explanation) -> Result<String, Box<dyn Error>> {
    let Explanation { costs, rejections, evaluation, footprints, .. } = explanation;
    Ok(json::explanation(costs, evaluation.as_ref(), footprints, rejections)?.text()?)
}

/// Operations in columns, in the order in which they start on their ranks: a step has tens of thousands.
fn operations(timeline: &Timeline) -> Value {
    let (mut ranks, mut passes, mut micro_batches, mut chunks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for event in &timeline.events {
        for op in event.slot.ops() {
            ranks.push(event.rank);
            passes.push(match op.pass {
                Pass::Forward => "F",
                Pass::Backward => "B",
                Pass::Input => "I",
                Pass::Wgrad => "W",
            });
            micro_batches.push(op.micro_batch);
            chunks.push(op.stage);
            starts.push(event.start.get());
            ends.push(event.end.get());
        }
    }
    serde_json::json!({
        "ranks": timeline.plan.layout.pp,
        "makespan_s": timeline.makespan.get(),
        "send_s": timeline.send.get(),
        "after_s": (timeline.step.dp_comm + timeline.step.optimizer).get(),
        "bubble_s": timeline.step.pipeline_bubble.get(),
        "kept_gib": timeline.kept.iter().map(|bytes| bytes.as_gib()).collect::<Vec<_>>(),
        "rank": ranks,
        "pass": passes,
        "micro_batch": micro_batches,
        "chunk": chunks,
        "start_s": starts,
        "end_s": ends,
    })
}
