//! Predicted against measured step times, by source.

use super::colour;
use super::drawing::{Anchor, AxisScale, Drawing, WIDTH, drawing, label, line, standalone};
use super::element::{HtmlElement, element, worded};
use super::page::figure;
use super::scatter::{Dot, ScatterFrame, scatter};
use meshwright_engine::units::percent;
use meshwright_lab::validate::ScoredPoint;

/// Half-width of the band around the diagonal.
const BAND: f64 = 0.1;
/// Sources with colours of their own: those with most runs.
const NAMED: usize = colour::SERIES.len();
/// Colour of the other sources.
const OTHERS: &str = "#9aa0a8";

/// Scatter of points with the runs' names on hover, coloured by source; its height.
fn points(points: &[ScoredPoint]) -> Drawing {
    let sources = sources(points);
    let fill = |source: &str| {
        sources
            .iter()
            .position(|(name, _)| name == source)
            .and_then(|at| colour::SERIES.get(at))
            .copied()
            .unwrap_or(OTHERS)
    };
    let dots: Vec<Dot> = points
        .iter()
        .map(|point| Dot {
            at: (point.measured_s, point.predicted_s),
            radius: 3.5,
            fill: fill(&point.set),
            is_strong: false,
            title: format!(
                "{} ({}, {}): measured {:.4} s, predicted {:.4} s, {:+.1} %",
                point.id,
                point.set,
                if point.moe { "mixture of experts" } else { "dense" },
                point.measured_s,
                point.predicted_s,
                point.error * 100.0
            ),
            name: String::new(),
        })
        .collect();
    let named =
        sources.iter().take(NAMED).zip(colour::SERIES).map(|((name, runs), fill)| (format!("{name} ({runs})"), fill));
    let others: usize = sources.iter().skip(NAMED).map(|(_, runs)| runs).sum();
    let rest = (others > 0).then(|| (format!("other sources ({others})"), OTHERS));
    let frame = ScatterFrame {
        across: "measured step time, s".into(),
        up: "predicted step time, s".into(),
        across_text: |value| value.to_string(),
        up_text: |value| value.to_string(),
        height: 560.0,
        band: Some(BAND),
        front: Vec::new(),
        legend: named.chain(rest).collect(),
    };
    scatter(&frame, &dots)
}

/// Sources with their numbers of runs, most first.
fn sources(points: &[ScoredPoint]) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for point in points {
        *counts.entry(point.set.clone()).or_insert(0) += 1;
    }
    let mut sources: Vec<(String, usize)> = counts.into_iter().collect();
    sources.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sources
}

/// Scatter as the text of an SVG file.
pub fn points_drawing(scored: &[ScoredPoint]) -> String {
    let Drawing { svg, height } = points(scored);
    standalone(svg, height)
}

/// Scatter with its caption, for a report.
pub fn points_figure(scored: &[ScoredPoint]) -> HtmlElement {
    let inside = scored.iter().filter(|point| point.error.abs() <= BAND).count();
    let share = inside as f64 / scored.len().max(1) as f64;
    let caption = format!(
        "{} runs; {} of them within 10 % (dashed lines). Colours are sources; hover over a point for its run.",
        scored.len(),
        percent(share)
    );
    figure(points(scored).svg, &caption)
}

/// Largest error that has a place of its own in the strips, and the rows of sources.
const MOST_ERROR: f64 = 0.6;
const MOST_ROWS: usize = 30;
const ROW: f64 = 20.0;

/// Errors of every source as a strip of points, with their median, for a report.
pub fn errors_figure(scored: &[ScoredPoint]) -> HtmlElement {
    let sources = sources(scored);
    let shown = &sources[..sources.len().min(MOST_ROWS)];
    let axis = AxisScale { range: (-MOST_ERROR, MOST_ERROR), pixels: (190.0, WIDTH - 20.0), is_logarithmic: false };
    let bottom = shown.len() as f64 * ROW + 8.0;
    let mut svg = drawing(bottom + 26.0, format!("Errors of the step time by source, {} sources", shown.len()));
    for tick in axis.ticks() {
        let (x, text) = (axis.place(tick), format!("{:+.0} %", tick * 100.0));
        let class = if tick.abs() < 1e-9 { "axis" } else { "grid" };
        svg = svg.child(line((x, 0.0), (x, bottom), class)).child(label(x, bottom + 18.0, Anchor::Middle, text));
    }
    for (at, (source, runs)) in shown.iter().enumerate() {
        let y = at as f64 * ROW + 14.0;
        let mut errors: Vec<f64> =
            scored.iter().filter(|point| point.set == *source).map(|point| point.error).collect();
        errors.sort_by(f64::total_cmp);
        let middle = errors[errors.len() / 2];
        let dots = errors.iter().map(|error| {
            element("circle").at([("cx", axis.place(*error)), ("cy", y), ("r", 3.5)]).with("fill-opacity", 0.4)
        });
        let title = format!("{source}: {runs} runs, median {:+.1} %", middle * 100.0);
        let x = axis.place(middle);
        let strip = element("g").with("fill", colour::SERIES[0]).child(worded("title", title)).children(dots);
        svg = svg
            .child(label(182.0, y + 4.0, Anchor::End, format!("{source} ({runs})")))
            .child(strip)
            .child(line((x, y - 7.0), (x, y + 7.0), "median").with("stroke-width", 2));
    }
    let more = sources.len() - shown.len();
    let rest = if more > 0 { format!(" {more} smaller sources are not drawn.") } else { String::new() };
    let caption = format!(
        "Predicted over measured, less one: points to the left are runs that were slower than predicted; bars are medians, \
         errors beyond {:.0} % stand at the edge.{rest}",
        MOST_ERROR * 100.0
    );
    figure(svg, &caption)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_a_point_of_its_source() {
        let point = |id: &str, moe| ScoredPoint {
            id: id.into(),
            set: "s".into(),
            moe,
            measured_s: 2.0,
            predicted_s: 1.0,
            error: -0.5,
        };
        let text = points_drawing(&[point("a<b", true), point("c", false)]);
        assert!(
            text.contains("a&lt;b (s, mixture of experts): measured 2.0000 s, predicted 1.0000 s, -50.0 %"),
            "{text}"
        );
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(points_drawing(&[]).ends_with("</svg>\n"));
    }
}
