//! Drawing of points: predicted against measured, or cost against time.

use super::drawing::{Anchor, AxisScale, Drawing, WIDTH, drawing, label, legend, legend_column, line};
use super::element::{HtmlElement, element, pixels, worded};

const LEFT: f64 = 76.0;
const TOP: f64 = 14.0;

/// Point of a scatter.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Position along both axes.
    pub at: (f64, f64),
    /// Radius in pixels.
    pub radius: f64,
    /// Colour of its series.
    pub fill: &'static str,
    /// Whether it is highlighted.
    pub is_strong: bool,
    /// Tooltip.
    pub title: String,
    /// Label beside it; empty for none.
    pub name: String,
}

/// Axes of a scatter, with the text of their values.
#[derive(Clone, Debug)]
pub struct ScatterFrame {
    /// Title of the horizontal axis, below it.
    pub across: String,
    /// Title of the vertical axis, above it.
    pub up: String,
    /// Values of the horizontal axis as text.
    pub across_text: fn(f64) -> String,
    /// Values of the vertical axis as text.
    pub up_text: fn(f64) -> String,
    /// Height of the plot in pixels.
    pub height: f64,
    /// Half-width of a band around the diagonal, relative to the value, where both axes share a scale; else none.
    pub band: Option<f64>,
    /// Vertices of a staircase through the Pareto front, left to right.
    pub front: Vec<(f64, f64)>,
    /// Names and colours of the series.
    pub legend: Vec<(String, &'static str)>,
}

/// Scatter on logarithmic axes.
pub fn scatter(frame: &ScatterFrame, dots: &[Dot]) -> Drawing {
    let bottom = TOP + frame.height;
    let right = if frame.band.is_some() { LEFT + frame.height * 1.25 } else { WIDTH - 16.0 };
    let (xs, ys) = (|| dots.iter().map(|dot| dot.at.0), || dots.iter().map(|dot| dot.at.1));
    let mut across = AxisScale::logarithmic(xs(), (LEFT, right));
    let mut up = AxisScale::logarithmic(ys(), (bottom, TOP));
    if frame.band.is_some() {
        across = AxisScale::logarithmic(xs().chain(ys()), (LEFT, right));
        up = AxisScale { pixels: (bottom, TOP), ..across };
    }
    let height = bottom + if frame.band.is_some() { 46.0 } else { 66.0 };
    let mut svg = drawing(height, format!("{} against {}: {} points", frame.up, frame.across, dots.len()));
    for tick in across.ticks() {
        let x = across.place(tick);
        svg = svg.child(line((x, TOP), (x, bottom), "grid")).child(label(
            x,
            bottom + 16.0,
            Anchor::Middle,
            (frame.across_text)(tick),
        ));
    }
    for tick in up.ticks() {
        let y = up.place(tick);
        svg = svg.child(line((LEFT, y), (right, y), "grid")).child(label(
            LEFT - 8.0,
            y + 4.0,
            Anchor::End,
            (frame.up_text)(tick),
        ));
    }
    svg = svg
        .child(line((LEFT, bottom), (right, bottom), "axis"))
        .child(label(f64::midpoint(LEFT, right), bottom + 36.0, Anchor::Middle, frame.across.clone()))
        .child(label(LEFT + 6.0, TOP + 12.0, Anchor::Start, frame.up.clone()));
    if let Some(band) = frame.band {
        svg = svg.children(diagonals(&across, &up, band));
    }
    if !frame.front.is_empty() {
        let steps = frame.front.iter().enumerate().map(|(at, point)| {
            let (x, y) = (pixels(across.place(point.0)), pixels(up.place(point.1)));
            if at == 0 { format!("M{x} {y}") } else { format!("H{x}V{y}") }
        });
        let path: String = steps.collect();
        let path = element("path").with("d", path).with("class", "front").with("fill", "none");
        svg =
            svg.child(path.with("stroke", "currentColor").with("stroke-dasharray", "5 4").with("stroke-opacity", 0.6));
    }
    svg = svg.children(dots.iter().map(|dot| circle(dot, &across, &up))).children(names(dots, &across, &up, right));
    let names = if frame.band.is_some() {
        legend_column(right + 24.0, TOP + 12.0, &frame.legend)
    } else {
        legend(LEFT, height - 8.0, &frame.legend)
    };
    Drawing { svg: svg.child(names), height }
}

fn circle(dot: &Dot, across: &AxisScale, up: &AxisScale) -> HtmlElement {
    let (x, y) = (across.place(dot.at.0), up.place(dot.at.1));
    let opacity = if dot.is_strong { 0.9 } else { 0.55 };
    element("circle")
        .at([("cx", x), ("cy", y), ("r", dot.radius)])
        .with("fill", dot.fill)
        .with("fill-opacity", opacity)
        .child(worded("title", dot.title.clone()))
}

/// Diagonal of equal values, and lines at a share above and below it.
fn diagonals(across: &AxisScale, up: &AxisScale, band: f64) -> Vec<HtmlElement> {
    let (low, high) = across.range;
    [1.0, 1.0 + band, 1.0 / (1.0 + band)]
        .into_iter()
        .map(|factor: f64| {
            let (from, until) = (low.max(low / factor), high.min(high / factor));
            let ends = [from, until].map(|value| (across.place(value), up.place(value * factor)));
            let dash = if (factor - 1.0).abs() < 1e-9 { "none" } else { "4 4" };
            line(ends[0], ends[1], "axis").with("stroke-dasharray", dash)
        })
        .collect()
}

/// Names of points; a name that would cover another is left out.
fn names(dots: &[Dot], across: &AxisScale, up: &AxisScale, right: f64) -> Vec<HtmlElement> {
    let mut used: Vec<(f64, f64)> = Vec::new();
    let mut found = Vec::new();
    for dot in dots.iter().filter(|dot| !dot.name.is_empty()) {
        let (x, y) = (across.place(dot.at.0), up.place(dot.at.1) - dot.radius - 4.0);
        if used.iter().any(|(a, b)| (a - x).abs() < 170.0 && (b - y).abs() < 15.0) {
            continue;
        }
        used.push((x, y));
        let (x, anchor) = if x > right - 170.0 { (x - 8.0, Anchor::End) } else { (x + 8.0, Anchor::Start) };
        let halo = "paint-order:stroke;stroke:var(--card,#fff);stroke-width:4px;stroke-linejoin:round";
        found.push(label(x, y, anchor, dot.name.clone()).with("style", halo));
    }
    found
}
