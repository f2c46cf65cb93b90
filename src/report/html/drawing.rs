//! Drawings as SVG: frame, texts, legends, and axes with round ticks.

use super::element::{HtmlElement, element, style_sheet, worded};

/// Width of every drawing in pixels; a page scales it to its own.
pub const WIDTH: f64 = 1080.0;
/// More ticks than an axis has, whatever its range.
const MOST_TICKS: i64 = 20;
/// Colours of a drawing in a file of its own.
const GROUND: &str = "#ffffff";
const INK: &str = "#1a2327";
/// Style of texts and lines, for drawings in a page and alone.
const RULES: &str = "svg text{fill:currentColor;font:12px system-ui,sans-serif}svg .soft{opacity:.72}\
svg .grid{stroke:currentColor;stroke-opacity:.16}svg .axis{stroke:currentColor;stroke-opacity:.5}";

/// Empty drawing of a height, with words for readers who do not see it.
pub fn drawing(height: f64, label: impl Into<String>) -> HtmlElement {
    element("svg")
        .with("xmlns", "http://www.w3.org/2000/svg")
        .with("viewBox", format!("0 0 {WIDTH:.0} {height:.0}"))
        .with("role", "img")
        .child(worded("title", label))
}

/// Drawing as a file of its own: dark on white, with its style.
pub fn standalone(drawing: HtmlElement, height: f64) -> String {
    let ground = element("rect").at([("width", WIDTH), ("height", height)]).with("fill", GROUND);
    let whole = element("svg")
        .with("xmlns", "http://www.w3.org/2000/svg")
        .at([("width", WIDTH), ("height", height)])
        .with("color", INK)
        .with("font-family", "sans-serif")
        .with("font-size", 12)
        .child(style_sheet(RULES))
        .child(ground)
        .child(drawing);
    format!("{whole}\n")
}

/// Style sheet of drawings in a page.
pub fn rules() -> HtmlElement {
    style_sheet(RULES)
}

/// Side of a text that is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Text begins there.
    Start,
    /// Text is centred there.
    Middle,
    /// Text ends there.
    End,
}

/// Text of a drawing.
pub fn label(x: f64, y: f64, anchor: Anchor, words: impl Into<String>) -> HtmlElement {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    worded("text", words).at([("x", x), ("y", y)]).with("text-anchor", anchor).with("fill", "currentColor")
}

/// Rectangle that is filled with a colour.
pub fn block(x: f64, y: f64, width: f64, height: f64, fill: &str) -> HtmlElement {
    element("rect").at([("x", x), ("y", y), ("width", width), ("height", height)]).with("fill", fill)
}

/// Line of a class of the style sheet.
pub fn line(from: (f64, f64), to: (f64, f64), class: &str) -> HtmlElement {
    element("line")
        .at([("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)])
        .with("class", class)
        .with("stroke", "currentColor")
}

/// Row of coloured squares with their names, from a position.
pub fn legend(x: f64, y: f64, entries: &[(String, &str)]) -> HtmlElement {
    let mut at = x;
    element("g").children(entries.iter().flat_map(|(name, fill)| {
        let here = at;
        at += 34.0 + 7.0 * name.chars().count() as f64;
        key(here, y, name, fill)
    }))
}

/// Column of coloured squares with their names, from a position.
pub fn legend_column(x: f64, y: f64, entries: &[(String, &str)]) -> HtmlElement {
    let rows = entries.iter().enumerate();
    element("g").children(rows.flat_map(|(at, (name, fill))| key(x, y + at as f64 * 20.0, name, fill)))
}

fn key(x: f64, y: f64, name: &str, fill: &str) -> [HtmlElement; 2] {
    [block(x, y - 10.0, 12.0, 12.0, fill), label(x + 17.0, y, Anchor::Start, name)]
}

/// A drawing with its size; every drawing is [`WIDTH`] wide.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The `svg`.
    pub svg: HtmlElement,
    /// Height in pixels.
    pub height: f64,
}

/// Scale of an axis: values from `from` to `to` at pixels from `start` to `end`.
#[derive(Clone, Copy, Debug)]
pub struct AxisScale {
    /// Range of the values.
    pub range: (f64, f64),
    /// Range of the pixels.
    pub pixels: (f64, f64),
    /// Whether equal ratios are equally far apart.
    pub is_logarithmic: bool,
}

impl AxisScale {
    /// Linear scale from zero.
    pub const fn linear(most: f64, pixels: (f64, f64)) -> Self {
        Self { range: (0.0, most), pixels, is_logarithmic: false }
    }

    /// Logarithmic scale around positive values, with some room at both ends.
    pub fn logarithmic(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0 && value.is_finite())
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        let room = (high / low).powf(0.05).max(1.08);
        Self { range: (low / room, high * room), pixels, is_logarithmic: true }
    }

    /// Pixel of a value, at the nearest end if it is outside.
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let share =
            if self.is_logarithmic { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) };
        let (start, end) = self.pixels;
        start + share.clamp(0.0, 1.0) * (end - start)
    }

    /// Round values to label: about six, or 1, 2 and 5 of each decade.
    pub fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.range;
        if self.is_logarithmic {
            let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let of_decade: &[f64] = if high / low > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let ticks: Vec<f64> = decades
                .flat_map(|decade| of_decade.iter().map(move |first| first * 10_f64.powi(decade)))
                .filter(|tick| *tick >= low && *tick <= high)
                .collect();
            if ticks.len() >= 3 {
                return ticks;
            }
        }
        let step = round_step((high - low) / 6.0);
        let first = (low / step).ceil() as i64;
        (first..first + MOST_TICKS).map(|at| at as f64 * step).take_while(|tick| *tick <= high * (1.0 + 1e-9)).collect()
    }
}

/// Smallest of 1, 2, 2.5 and 5 times a power of ten that is no smaller than a step.
pub fn round_step(least: f64) -> f64 {
    let unit = 10_f64.powi(least.log10().floor() as i32);
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|step| step * unit).find(|step| *step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        assert_eq!(AxisScale::linear(11.0, (0.0, 1.0)).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let wide = AxisScale { range: (0.8, 60.0), pixels: (0.0, 1.0), is_logarithmic: true };
        assert_eq!(wide.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        let narrow = AxisScale { range: (100.0, 112.0), pixels: (0.0, 1.0), is_logarithmic: true };
        assert_eq!(narrow.ticks(), [100.0, 102.0, 104.0, 106.0, 108.0, 110.0, 112.0]);
        assert!(AxisScale::logarithmic(std::iter::empty(), (0.0, 1.0)).ticks().len() > 1);
    }
}
