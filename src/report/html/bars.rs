//! Drawings of horizontal bars: terms of a step one after another, steps side by side, a tornado of costs.

use super::colour;
use super::drawing::{Anchor, AxisScale, WIDTH, block, drawing, label, legend, line};
use super::element::{HtmlElement, element, worded};
use meshwright_engine::cost::Term;
use meshwright_engine::units::{Seconds, percent};

const ROW: f64 = 28.0;
const RIGHT: f64 = 110.0;

/// Text of at most `most` characters; a longer one ends in an ellipsis.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Waterfall of a step: each term starts where the one before it ends.
pub fn waterfall(terms: &[(Term, Seconds)], total: Seconds) -> HtmlElement {
    let shown: Vec<_> = terms.iter().filter(|(_, time)| time.get() > 0.0).collect();
    let left = 120.0;
    let axis = AxisScale::linear(total.get(), (left, WIDTH - RIGHT));
    let height = shown.len() as f64 * ROW + 26.0;
    let mut svg = ruled(drawing(height, format!("A step of {total}, term by term")), &axis, height, seconds);
    let mut from = 0.0;
    for (at, (term, time)) in shown.into_iter().enumerate() {
        let y = at as f64 * ROW + 4.0;
        let (start, end) = (axis.place(from), axis.place(from + time.get()));
        from += time.get();
        svg = svg
            .child(label(left - 8.0, y + 14.0, Anchor::End, term.to_string()))
            .child(block(start, y, (end - start).max(0.8), ROW - 8.0, colour::of_term(*term)))
            .child(label(end + 6.0, y + 14.0, Anchor::Start, format!("{time} · {}", percent(*time / total))));
    }
    svg
}

fn seconds(value: f64) -> String {
    Seconds::new(value).to_string()
}

/// Drawing with vertical lines at the ticks of an axis, and their labels at the bottom.
fn ruled(svg: HtmlElement, axis: &AxisScale, height: f64, text: fn(f64) -> String) -> HtmlElement {
    svg.children(axis.ticks().into_iter().flat_map(|tick| {
        let x = axis.place(tick);
        [line((x, 0.0), (x, height - 22.0), "grid"), label(x, height - 6.0, Anchor::Middle, text(tick))]
    }))
}

/// Step of one plan, for comparison with others.
#[derive(Clone, Debug)]
pub struct StepBar {
    /// Name of the row.
    pub name: String,
    /// Words below the pointer.
    pub title: String,
    /// Terms in seconds.
    pub terms: Vec<(Term, f64)>,
    /// Words after the bar.
    pub note: String,
}

/// Steps below each other, each with its terms one after another, and their legend.
pub fn steps(bars: &[StepBar]) -> HtmlElement {
    let left = 250.0;
    let sum = |bar: &StepBar| bar.terms.iter().map(|(_, time)| time).sum::<f64>();
    let axis = AxisScale::linear(bars.iter().map(sum).fold(1e-9, f64::max), (left, WIDTH - RIGHT));
    let height = bars.len() as f64 * ROW + 26.0;
    let mut svg = ruled(drawing(height + 24.0, "Step times by term"), &axis, height, seconds);
    for (at, bar) in bars.iter().enumerate() {
        let y = at as f64 * ROW + 4.0;
        let mut from = 0.0;
        let slices = bar.terms.iter().filter(|(_, time)| *time > 0.0).map(|(term, time)| {
            let (start, end) = (axis.place(from), axis.place(from + time));
            from += time;
            block(start, y, (end - start).max(0.4), ROW - 8.0, colour::of_term(*term))
        });
        let row = element("g").child(worded("title", bar.title.clone())).children(slices.collect::<Vec<_>>());
        svg = svg.child(label(left - 8.0, y + 14.0, Anchor::End, shortened(&bar.name, 38))).child(row).child(label(
            axis.place(sum(bar)) + 6.0,
            y + 14.0,
            Anchor::Start,
            bar.note.clone(),
        ));
    }
    let present =
        |term: Term| bars.iter().any(|bar| bar.terms.iter().any(|(known, time)| *known == term && *time > 0.0));
    let names: Vec<_> = Term::ALL.iter().filter(|term| present(**term)).collect();
    let names: Vec<_> = names.into_iter().map(|term| (term.to_string(), colour::of_term(*term))).collect();
    svg.child(legend(20.0, height + 18.0, &names))
}

/// Bar of a tornado: a figure, and the result at its low and at its high value.
#[derive(Clone, Debug)]
pub struct CostSpread {
    /// Name of the figure.
    pub what: String,
    /// Low value as text, and the result there.
    pub low: (String, f64),
    /// High value as text, and the result there.
    pub high: (String, f64),
}

/// Tornado around a result, whose values `text` writes.
pub fn tornado(middle: f64, bars: &[CostSpread], text: fn(f64) -> String) -> HtmlElement {
    let left = 230.0;
    let ends = || bars.iter().flat_map(|bar| [bar.low.1, bar.high.1]).chain([middle]);
    let (low, high) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    let room = (high - low).max(middle * 1e-6) * 0.12;
    let axis = AxisScale { range: (low - room, high + room), pixels: (left, WIDTH - RIGHT), is_logarithmic: false };
    let height = bars.len() as f64 * ROW + 26.0;
    let mut svg = ruled(drawing(height, "Effect of uncertain figures"), &axis, height, text);
    let centre = axis.place(middle);
    for (at, bar) in bars.iter().enumerate() {
        let y = at as f64 * ROW + 4.0;
        svg = svg.child(label(left - 8.0, y + 14.0, Anchor::End, bar.what.clone()));
        let upper = bar.high.1.max(bar.low.1);
        for (name, value) in [&bar.low, &bar.high] {
            let is_more = *value > middle || (*value >= middle && (*value - upper).abs() < f64::EPSILON);
            let x = axis.place(*value);
            let (start, end, fill) = if is_more { (centre, x, "#c4622d") } else { (x, centre, "#1a936f") };
            let rect = block(start, y, (end - start).max(1.0), ROW - 10.0, fill);
            let title = format!("{}: {name}, {}", bar.what, text(*value));
            let (at, anchor) = if is_more { (end + 6.0, Anchor::Start) } else { (start - 6.0, Anchor::End) };
            svg = svg.child(element("g").child(worded("title", title)).child(rect));
            svg = svg.child(label(at, y + 13.0, anchor, name.clone()));
        }
    }
    svg.child(line((centre, 0.0), (centre, height - 22.0), "axis"))
}
