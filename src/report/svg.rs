//! Drawing of a step: the pipeline with its bubbles, and the memory of each stage.

use meshwright_engine::units::{percent, significant};
use std::fmt::Write;

use super::markup::xml;
use meshwright_engine::cost::Tenant;
use meshwright_engine::cost::timeline::Timeline;
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::slot::{Op, Pass};

/// Sizes in pixels.
mod size {
    pub const WIDTH: f64 = 1200.0;
    pub const LEFT: f64 = 70.0;
    pub const RIGHT: f64 = 20.0;
    pub const TOP: f64 = 78.0;
    pub const TIMELINE: f64 = 320.0;
    pub const MEMORY: f64 = 240.0;
    pub const BETWEEN: f64 = 92.0;
    pub const BOTTOM: f64 = 40.0;
    /// Largest height of a rank's row and of a rank's memory column.
    pub const ROW: f64 = 34.0;
    pub const COLUMN: f64 = 64.0;
    /// Width below which slices of one kind are joined.
    pub const SLICE: f64 = 0.8;
}

/// Colours of passes and tenants, distinguishable with colour blindness (Okabe and Ito).
mod colour {
    pub const FORWARD: &str = "#56B4E9";
    pub const BACKWARD: &str = "#E69F00";
    pub const WGRAD: &str = "#009E73";
    pub const EDGE: &str = "#CC79A7";
    pub const IDLE: &str = "#EEEEEE";
    pub const TENANTS: [&str; 8] =
        ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#F0E442", "#999999", "#555555"];
}

/// Renders the drawing.
pub fn picture(problem: &Problem, timeline: &Timeline) -> String {
    let mut svg = String::new();
    let height = size::TOP + rows_height(timeline) + size::BETWEEN + size::MEMORY + size::BOTTOM;
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{height:.0}" viewBox="0 0 {w} {height:.0}" font-family="sans-serif" font-size="12">
<rect width="{w}" height="{height:.0}" fill="white"/>"#,
        w = size::WIDTH
    );
    let step = timeline.step.total();
    text(
        &mut svg,
        size::LEFT,
        20.0,
        "start",
        15,
        &format!("{} on {} x {}", problem.model().name, timeline.plan.layout.world_size(), problem.cluster().gpu.name),
    );
    text(&mut svg, size::LEFT, 38.0, "start", 12, &timeline.plan.to_string());
    let bubble = timeline.step.pipeline_bubble / step;
    text(
        &mut svg,
        size::LEFT,
        56.0,
        "start",
        12,
        &format!("a step takes {step}; waiting for other stages {}; one pipeline shown", percent(bubble)),
    );
    passes(&mut svg, timeline);
    memory(&mut svg, problem, timeline, size::TOP + rows_height(timeline) + size::BETWEEN);
    svg.push_str("</svg>\n");
    svg
}

fn rows_height(timeline: &Timeline) -> f64 {
    row_height(timeline) * f64::from(timeline.plan.layout.pp)
}

fn row_height(timeline: &Timeline) -> f64 {
    (size::TIMELINE / f64::from(timeline.plan.layout.pp)).min(size::ROW)
}

/// Text element.
fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, words: &str) {
    let words = xml(words);
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}">{words}</text>"#);
}

fn rect(svg: &mut String, x: f64, y: f64, width: f64, height: f64, fill: &str) {
    let _ = writeln!(svg, r#"<rect x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" fill="{fill}"/>"#);
}

/// Fill of a slice, and of its lower half for a pair of passes.
type Fill = (&'static str, Option<&'static str>);

const fn colour_of(op: Op) -> &'static str {
    match op.pass {
        Pass::Forward => colour::FORWARD,
        Pass::Backward | Pass::Input => colour::BACKWARD,
        Pass::Wgrad => colour::WGRAD,
    }
}

/// Draws one row per rank; passes narrower than a pixel are joined.
fn passes(svg: &mut String, timeline: &Timeline) {
    let edges = timeline.step.dp_comm + timeline.step.optimizer;
    let whole = (timeline.makespan + edges).get();
    let width = size::WIDTH - size::LEFT - size::RIGHT;
    let at = |time: f64| size::LEFT + time / whole * width;
    let (row, ranks) = (row_height(timeline), timeline.plan.layout.pp);
    let gap = if row > 8.0 { 2.0 } else { 0.3 };
    let every = (14.0 / row).ceil().max(1.0) as u32;
    for rank in 0..ranks {
        let y = size::TOP + f64::from(rank) * row;
        if rank.is_multiple_of(every) {
            text(svg, size::LEFT - 6.0, y + row / 2.0 + 4.0, "end", 11, &format!("rank {rank}"));
        }
        rect(svg, size::LEFT, y, at(timeline.makespan.get()) - size::LEFT, row - gap, colour::IDLE);
        // A pair is drawn as one colour above the other.
        let mut draw = |start: f64, end: f64, (fill, below): Fill| {
            let (width, height) = (seam(end - start), row - gap);
            rect(svg, start, y, width, height, fill);
            if let Some(below) = below {
                rect(svg, start, y + height / 2.0, width, height / 2.0, below);
            }
        };
        let mut open: Option<(f64, f64, Fill)> = None;
        for event in timeline.events.iter().filter(|event| event.rank == rank) {
            let fill = (colour_of(event.slot.op), event.slot.beside.map(colour_of));
            let (from, until) = (at(event.start.get()), at(event.end.get()));
            open = match open {
                Some((start, end, known))
                    if known == fill
                        && from - end < size::SLICE
                        && until - start < 40.0 * size::SLICE
                        && until - from < size::SLICE =>
                {
                    Some((start, until, fill))
                }
                Some((start, end, known)) => {
                    draw(start, end, known);
                    Some((from, until, fill))
                }
                None => Some((from, until, fill)),
            };
        }
        if let Some((start, end, fill)) = open {
            draw(start, end, fill);
        }
        if edges.get() > 0.0 {
            rect(svg, at(timeline.makespan.get()), y, at(whole) - at(timeline.makespan.get()), row - gap, colour::EDGE);
        }
    }
    let bottom = size::TOP + f64::from(ranks) * row;
    for tick in 0..=5 {
        let time = whole * f64::from(tick) / 5.0;
        text(
            svg,
            at(time),
            bottom + 16.0,
            if tick == 5 { "end" } else { "middle" },
            11,
            &meshwright_engine::units::Seconds::new(time).to_string(),
        );
    }
    let has_wgrad = timeline.events.iter().any(|event| event.slot.op.pass == Pass::Wgrad);
    let mut keys = vec![("forward", colour::FORWARD), ("backward", colour::BACKWARD)];
    if has_wgrad {
        keys.push(("weight gradients", colour::WGRAD));
    }
    keys.extend([("waiting (bubble, sends)", colour::IDLE), ("exposed DP, optimizer", colour::EDGE)]);
    legend(svg, bottom + 36.0, &keys);
}

/// Gap to the next slice, if the slice is wide enough to show one.
fn seam(width: f64) -> f64 {
    if width > 4.0 { width - 0.6 } else { width }
}

fn legend(svg: &mut String, y: f64, keys: &[(&str, &str)]) {
    let mut x = size::LEFT;
    for (name, fill) in keys {
        rect(svg, x, y - 10.0, 12.0, 12.0, fill);
        text(svg, x + 17.0, y, "start", 11, name);
        x += 17.0 + 6.6 * name.len() as f64 + 18.0;
    }
}

/// Draws one column per rank with its tenants stacked, and a line at the memory budget.
fn memory(svg: &mut String, problem: &Problem, timeline: &Timeline, top: f64) {
    let budget = problem.hbm_budget().as_gib();
    let hbm = problem.cluster().gpu.hbm.value.as_gib();
    let peak = timeline.footprints.iter().map(|f| f.device().as_gib()).fold(hbm, f64::max);
    let bottom = top + size::MEMORY - 30.0;
    let high = |gib: f64| gib / peak * (bottom - top);
    let width = size::WIDTH - size::LEFT - size::RIGHT;
    let column = (width / f64::from(timeline.plan.layout.pp)).min(size::COLUMN);
    let names = Tenant::ALL.iter().map(|tenant| tenant.key());
    let keys: Vec<(&str, &str)> = names.zip(colour::TENANTS).collect();
    legend(svg, top - 12.0, &keys);
    let every = (16.0 / column).ceil().max(1.0) as u32;
    for (rank, footprint) in timeline.footprints.iter().enumerate() {
        let x = size::LEFT + rank as f64 * column;
        let mut y = bottom;
        for ((_, bytes), fill) in footprint.tenants().into_iter().zip(colour::TENANTS) {
            let height = high(bytes.as_gib());
            y -= height;
            if height > 0.0 {
                rect(svg, x, y, (column - 2.0).max(0.5), height, fill);
            }
        }
        if (rank as u32).is_multiple_of(every) {
            text(svg, x + column / 2.0 - 1.0, bottom + 14.0, "middle", 11, &rank.to_string());
        }
    }
    text(svg, size::LEFT, bottom + 28.0, "start", 11, "memory of each pipeline rank at its peak, GiB");
    for (gib, name, dash) in [(budget, "memory budget", "6 3"), (hbm, "HBM", "none")] {
        let y = bottom - high(gib);
        let _ = writeln!(
            svg,
            r#"<line x1="{:.1}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="black" stroke-dasharray="{dash}"/>"#,
            size::LEFT,
            size::WIDTH - size::RIGHT
        );
        let below = if name == "HBM" { -4.0 } else { 13.0 };
        text(svg, size::WIDTH - size::RIGHT, y + below, "end", 11, &format!("{} {name}", significant(gib)));
    }
    for tick in 0..=4 {
        let gib = hbm * f64::from(tick) / 4.0;
        text(svg, size::LEFT - 6.0, bottom - high(gib) + 4.0, "end", 11, &significant(gib));
    }
}
