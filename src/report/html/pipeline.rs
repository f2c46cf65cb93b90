//! Drawing of a pipeline: an overview of the step, and its operations in bands that are folded like lines of text.
//!
//! A step of 64 micro-batches through 8 chunks has thousands of operations a rank; on one line each would be a fraction of a pixel.
//! Bands are as many as give an operation a readable width; of a longer step the first and the last are drawn.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::colour;
use super::drawing::{Anchor, Drawing, WIDTH, block, drawing, label, legend, line, round_step};
use super::element::{HtmlElement, element, pixels};
use meshwright_engine::cost::timeline::Timeline;
use meshwright_engine::schedule::replay::Event;
use meshwright_engine::schedule::slot::{Op, Pass};
use meshwright_engine::units::{Seconds, percent, thousands};
use meshwright_planner::median::upper_median;

/// Left edge of the operations, and their width.
const LEFT: f64 = 58.0;
const ACROSS: f64 = WIDTH - LEFT - 12.0;
/// Widths of a typical forward pass: enough for its number, and enough to be seen.
const WIDE: f64 = 16.0;
const NARROW: f64 = 3.0;
/// Most bands at the wide and at the narrow width.
const MOST_WIDE: usize = 3;
const MOST_BANDS: usize = 6;
/// Height of a rank in the overview and in a band, at most, and of all ranks of a band.
const STRIP: f64 = 5.0;
const ROW: f64 = 20.0;
const BAND: f64 = 300.0;
/// Space below a band, for its axis.
const BELOW: f64 = 30.0;

/// Part of a step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    from: f64,
    until: f64,
}

impl Span {
    /// The span that begins `seconds` later.
    fn delayed(self, seconds: f64) -> Self {
        Self { from: seconds + self.from, until: seconds + self.until }
    }
}

/// Step in bands.
struct Folding {
    bands: Vec<Span>,
    /// Time between the bands that is not drawn.
    left_out: Option<Span>,
}

/// Bands of a step of `whole` seconds whose typical forward pass takes `forward`.
fn fold(whole: f64, forward: f64) -> Folding {
    let long = |width: f64| ACROSS / width * forward;
    let count = |long: f64| (whole / long).ceil().max(1.0) as usize;
    let (wide, narrow) = (count(long(WIDE)), count(long(NARROW)));
    let even = |bands: usize| whole / bands as f64;
    let band = |at: usize, long: f64| Span { from: at as f64 * long, until: (at + 1) as f64 * long };
    let split = |bands: usize, long: f64| (0..bands).map(move |at| band(at, long));
    if wide <= MOST_WIDE {
        return Folding { bands: split(wide, even(wide)).collect(), left_out: None };
    }
    if narrow <= MOST_BANDS {
        let bands = narrow.max(MOST_WIDE);
        return Folding { bands: split(bands, even(bands)).collect(), left_out: None };
    }
    let (long, half) = (long(NARROW), MOST_BANDS / 2);
    let last = whole - half as f64 * long;
    let bands = split(half, long).chain(split(half, long).map(|band| band.delayed(last)));
    Folding { bands: bands.collect(), left_out: Some(Span { from: half as f64 * long, until: last }) }
}

/// Drawing of a step.
pub fn pipeline(timeline: &Timeline) -> Drawing {
    let ranks = f64::from(timeline.plan.layout.pp);
    let after = (timeline.step.dp_comm + timeline.step.optimizer).get();
    let whole = timeline.makespan.get() + after;
    let Folding { bands, left_out } = fold(whole, typical_forward(timeline));
    let row = (BAND / ranks).min(ROW);
    let strip = STRIP.min(240.0 / ranks);
    let (top, first) = (34.0, 34.0 + strip * ranks + 44.0);
    let band_height = row * ranks + BELOW;
    let height = first + band_height * bands.len() as f64 + 30.0;
    let words = format!(
        "Pipeline of {} ranks: a step takes {}, of which ranks wait for one another {}",
        timeline.plan.layout.pp,
        timeline.step.total(),
        percent(timeline.step.pipeline_bubble / timeline.step.total())
    );
    let mut svg =
        drawing(height, words).child(label(LEFT, 14.0, Anchor::Start, "the whole step, filled where a rank is busy"));
    svg = svg
        .child(overview(timeline, whole, top, strip))
        .child(axis(top + strip * ranks, Span { from: 0.0, until: whole }));
    for (at, band) in bands.iter().enumerate() {
        let y = first + at as f64 * band_height;
        svg = svg.children(operations(timeline, *band, y, row)).child(axis(y + row * ranks, *band));
        if let Some(gap) = left_out.filter(|gap| (band.until - gap.from).abs() < 1e-12) {
            let missing = passes_within(timeline, gap);
            let words = format!(
                "↕ {} in between are like these: {} passes of rank 0",
                Seconds::new(gap.until - gap.from),
                thousands(missing as u64)
            );
            svg = svg.child(label(WIDTH - 12.0, y + row * ranks + 26.0, Anchor::End, words));
        }
    }
    Drawing { svg: svg.child(legend(LEFT, height - 8.0, &names(timeline))), height }
}

/// Median time of a forward pass.
fn typical_forward(timeline: &Timeline) -> f64 {
    let forwards = timeline.events.iter().filter(|event| event.slot.op.pass == Pass::Forward);
    let times = forwards.map(|event| (event.end - event.start).get()).collect();
    upper_median(times).filter(|time| *time > 0.0).unwrap_or(timeline.makespan.get())
}

/// Number of passes of rank 0 within a span.
fn passes_within(timeline: &Timeline, span: Span) -> usize {
    let inside = |event: &&Event| event.rank == 0 && event.start.get() >= span.from && event.end.get() <= span.until;
    timeline.events.iter().filter(inside).count()
}

/// Busy times of every rank over the whole step, with the exchange and update after the pipeline.
fn overview(timeline: &Timeline, whole: f64, top: f64, row: f64) -> HtmlElement {
    let ranks = timeline.plan.layout.pp;
    let x_at = |time: f64| LEFT + time / whole * ACROSS;
    let mut busy = String::new();
    for rank in 0..ranks {
        let y = top + f64::from(rank) * row;
        let mut open: Option<(f64, f64)> = None;
        let spans = timeline.events.iter().filter(|event| event.rank == rank);
        for event in spans {
            let (from, until) = (x_at(event.start.get()), x_at(event.end.get()));
            open = match open {
                Some((start, end)) if from - end < 0.8 => Some((start, until.max(end))),
                Some((start, end)) => {
                    slice(&mut busy, start, end, y, row * 0.9);
                    Some((from, until))
                }
                None => Some((from, until)),
            };
        }
        if let Some((start, end)) = open {
            slice(&mut busy, start, end, y, row * 0.9);
        }
    }
    let rows = row * f64::from(ranks);
    let ends = x_at(timeline.makespan.get());
    element("g")
        .child(block(LEFT, top, ends - LEFT, rows, "currentColor").with("opacity", 0.1))
        .child(element("path").with("d", busy).with("fill", "currentColor").with("opacity", 0.6))
        .child(block(ends, top, x_at(whole) - ends, rows, colour::AFTER))
}

/// Rectangle as a part of a path.
fn slice(path: &mut String, from: f64, until: f64, y: f64, height: f64) {
    let (x, y, width, height) = (pixels(from), pixels(y), pixels((until - from).max(0.3)), pixels(height));
    // Writing to a String cannot fail.
    let _ = write!(path, "M{x} {y}h{width}v{height}h-{width}z");
}

/// Operations within a band: one path for each pass and shade, and the numbers of micro-batches where they fit.
fn operations(timeline: &Timeline, band: Span, top: f64, row: f64) -> Vec<HtmlElement> {
    let Span { from, until } = band;
    let ranks = timeline.plan.layout.pp;
    let scale = ACROSS / (until - from);
    let x_at = |time: f64| LEFT + (time.clamp(from, until) - from) * scale;
    let gap = if row > 8.0 { 2.0 } else { 0.5 };
    let mut paths: BTreeMap<(&str, bool), String> = BTreeMap::new();
    let mut found = Vec::new();
    let every = (13.0 / row).ceil().max(1.0) as u32;
    for rank in (0..ranks).step_by(every as usize) {
        let y = top + (f64::from(rank) + 0.5) * row + 4.0;
        found.push(label(LEFT - 6.0, y, Anchor::End, format!("rank {rank}")));
    }
    let idle = x_at(timeline.makespan.get()) - LEFT;
    found.push(block(LEFT, top, idle, row * f64::from(ranks) - gap, "currentColor").with("opacity", 0.08));
    let mut numbers = element("g").with("font-size", 10).with("text-anchor", "middle");
    for event in timeline.events.iter().filter(|event| event.end.get() > from && event.start.get() < until) {
        let (start, end) = (x_at(event.start.get()), x_at(event.end.get()));
        let seam = if end - start > 3.0 { 0.6 } else { 0.0 };
        let (y, height) = (top + f64::from(event.rank) * row, row - gap);
        let pair = event.slot.beside.is_some();
        for (half, op) in event.slot.ops().enumerate() {
            let part = if pair { height / 2.0 } else { height };
            let y = y + half as f64 * part;
            slice(paths.entry(shade(op, ranks)).or_default(), start, end - seam, y, part);
            if end - start > 15.0 && part > 9.0 {
                let number = element("text").at([("x", f64::midpoint(start, end)), ("y", y + part / 2.0 + 3.5)]);
                numbers =
                    numbers.child(number.text(op.micro_batch.to_string()).with("style", "font-size:10px;fill:#10181c"));
            }
        }
    }
    for ((fill, is_odd), path) in paths {
        found.push(element("path").with("d", path).with("fill", fill).with("opacity", if is_odd { 0.68 } else { 1.0 }));
    }
    let ends = timeline.makespan.get();
    if until > ends {
        let x = x_at(ends);
        found.push(block(x, top, x_at(until) - x, row * f64::from(ranks) - gap, colour::AFTER));
    }
    found.push(numbers);
    found
}

/// Colour of an operation; every other chunk of a rank is lighter.
fn shade(op: Op, ranks: u32) -> (&'static str, bool) {
    (colour::of_pass(op.pass), (op.stage / ranks) % 2 == 1)
}

/// Axis in milliseconds below a band.
fn axis(y: f64, band: Span) -> HtmlElement {
    let Span { from, until } = band;
    let scale = ACROSS / (until - from);
    let step = round_step((until - from) * 1e3 / 8.0);
    let first = (from * 1e3 / step).ceil() as u64;
    let ticks = (first..first + 20).map(|at| at as f64 * step).take_while(|ms| *ms <= until * 1e3 + step * 1e-6);
    element("g").child(line((LEFT, y), (LEFT + ACROSS, y), "axis")).children(ticks.flat_map(|ms| {
        let x = LEFT + (ms / 1e3 - from) * scale;
        let text = if step < 1.0 { format!("{ms:.2} ms") } else { format!("{} ms", thousands(ms.round() as u64)) };
        let anchor = if x > WIDTH - 40.0 { Anchor::End } else { Anchor::Middle };
        [line((x, y), (x, y + 4.0), "axis"), label(x, y + 16.0, anchor, text)]
    }))
}

fn names(timeline: &Timeline) -> Vec<(String, &'static str)> {
    let has = |pass: Pass| timeline.events.iter().any(|event| event.slot.ops().any(|op| op.pass == pass));
    let passes = [
        (Pass::Forward, "forward"),
        (Pass::Backward, "backward"),
        (Pass::Input, "input gradients"),
        (Pass::Wgrad, "weight gradients"),
    ];
    let drawn = passes.into_iter().filter(|(pass, _)| has(*pass));
    let after = timeline.step.dp_comm + timeline.step.optimizer;
    drawn
        .map(|(pass, name)| (name.to_owned(), colour::of_pass(pass)))
        .chain((after.get() > 0.0).then(|| ("exposed DP, optimizer".to_owned(), colour::AFTER)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_the_step_or_its_ends() {
        let short = fold(1.0, 0.1);
        assert_eq!((short.bands.len(), short.left_out), (1, None));
        for (whole, forward) in [(1.0, 0.004), (1.0, 0.001), (7.0, 0.01)] {
            let folding = fold(whole, forward);
            assert!(folding.bands.len() <= MOST_BANDS && folding.left_out.is_none());
            for pair in folding.bands.windows(2) {
                assert!((pair[0].until - pair[1].from).abs() < 1e-9, "bands follow one another");
            }
            assert!((folding.bands.last().unwrap().until - whole).abs() < 1e-9);
            let width = forward / (folding.bands[0].until - folding.bands[0].from) * ACROSS;
            assert!(width > 2.0, "a pass of {width} pixels");
        }
        let long = fold(100.0, 0.001);
        assert_eq!(long.bands.len(), MOST_BANDS);
        let Span { from, until } = long.left_out.unwrap();
        assert!((from - long.bands[2].until).abs() < 1e-9 && (until - long.bands[3].from).abs() < 1e-9);
        assert!((long.bands[5].until - 100.0).abs() < 1e-9);
    }
}
