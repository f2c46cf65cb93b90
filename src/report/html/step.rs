//! Drawing of a step as a file: its pipeline, and the memory of every rank.

use super::drawing::{Anchor, Drawing, WIDTH, label, standalone};
use super::element::{HtmlElement, element};
use super::memory::memory;
use super::pipeline::pipeline;
use meshwright_engine::cost::timeline::Timeline;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::percent;

/// Height of the heading.
const HEAD: f64 = 64.0;

/// Drawing of a step as the text of an SVG file.
pub fn step_drawing(problem: &Problem, timeline: &Timeline) -> String {
    let step = timeline.step.total();
    let (ranks, plan) = (timeline.plan.layout.world_size(), &timeline.plan);
    let bubble = percent(timeline.step.pipeline_bubble / step);
    let words = [
        format!("{} on {ranks} × {}", problem.model().name, problem.cluster().gpu.name),
        plan.to_string(),
        format!("a step takes {step}; waiting for other stages {bubble}; one pipeline shown"),
    ];
    let heading = words.into_iter().zip([18.0, 36.0, 54.0]).map(|(words, y)| label(12.0, y, Anchor::Start, words));
    let Drawing { svg: passes, height: above } = pipeline(timeline);
    let Drawing { svg: columns, height: below } = memory(problem, &timeline.footprints);
    let whole = HEAD + above + below;
    let drawing =
        element("g").children(heading).children([moved(passes, HEAD, above), moved(columns, HEAD + above, below)]);
    standalone(drawing, whole)
}

/// Drawing of a height, moved down.
fn moved(drawing: HtmlElement, y: f64, height: f64) -> HtmlElement {
    drawing.at([("y", y), ("width", WIDTH), ("height", height)])
}
