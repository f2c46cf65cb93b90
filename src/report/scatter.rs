//! Scatter plot of predicted against measured step times as SVG: logarithmic axes, the diagonal, and a 10 % band.

use std::fmt::Write;

use super::markup::xml;
use meshwright_lab::validate::ScoredPoint;

/// Side of the plot in pixels, and the margin for its labels.
const SIDE: f64 = 640.0;
const MARGIN: f64 = 64.0;
/// Colours of dense and MoE models, distinguishable with colour blindness.
const DENSE: &str = "#0072b2";
const MOE: &str = "#d55e00";
/// Half-width of the band around the diagonal.
const BAND: f64 = 0.1;

/// Renders the plot; a point shows its run, figures and error on hover.
pub fn svg(points: &[ScoredPoint]) -> String {
    let (low, high) = decades(points);
    let place = |seconds: f64| (seconds.log10() - low) / (high - low) * SIDE;
    let x = |seconds: f64| MARGIN + place(seconds);
    let y = |seconds: f64| MARGIN + SIDE - place(seconds);
    let whole = SIDE + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} {whole}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<title>Predicted against measured step time</title>\n\
         <rect width=\"{whole}\" height=\"{whole}\" fill=\"white\"/>\n\
         <clipPath id=\"frame\"><rect x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{SIDE}\" height=\"{SIDE}\"/></clipPath>\n"
    );
    let (first, last) = (10_f64.powf(low), 10_f64.powf(high));
    let mut line = |x1: f64, y1: f64, x2: f64, y2: f64, style: &str| {
        let _ = writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
    };
    let mut ticks = Vec::new();
    for decade in (low as i32)..=(high as i32) {
        let seconds = 10_f64.powi(decade);
        line(x(seconds), y(first), x(seconds), y(last), "stroke=\"#ddd\"");
        line(x(first), y(seconds), x(last), y(seconds), "stroke=\"#ddd\"");
        ticks.push(seconds);
    }
    line(x(first), y(first), x(last), y(last), "stroke=\"#444\"");
    for side in [1.0 + BAND, 1.0 / (1.0 + BAND)] {
        let style = "stroke=\"#999\" stroke-dasharray=\"4 4\" clip-path=\"url(#frame)\"";
        line(x(first), y(first * side), x(last), y(last * side), style);
    }
    for seconds in ticks {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{seconds}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{seconds}</text>",
            x(seconds),
            y(first) + 20.0,
            x(first) - 8.0,
            y(seconds) + 4.0
        );
    }
    let middle = MARGIN + SIDE / 2.0;
    let _ = writeln!(
        out,
        "<text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">measured step time, s</text>\n\
         <text x=\"20\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 20 {middle})\">predicted step time, s</text>\n\
         <circle cx=\"{:.1}\" cy=\"30\" r=\"4\" fill=\"{DENSE}\"/><text x=\"{:.1}\" y=\"34\">dense</text>\n\
         <circle cx=\"{:.1}\" cy=\"30\" r=\"4\" fill=\"{MOE}\"/><text x=\"{:.1}\" y=\"34\">mixture of experts</text>",
        MARGIN + SIDE + 44.0,
        MARGIN + 4.0,
        MARGIN + 14.0,
        MARGIN + 84.0,
        MARGIN + 94.0
    );
    for point in points {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.6\"><title>{}: measured {:.4} s, \
             predicted {:.4} s, {:+.1} %</title></circle>",
            x(point.measured_s),
            y(point.predicted_s),
            if point.moe { MOE } else { DENSE },
            xml(&point.id),
            point.measured_s,
            point.predicted_s,
            point.error * 100.0
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Exponents of the decades that enclose all figures.
fn decades(points: &[ScoredPoint]) -> (f64, f64) {
    let logs = || points.iter().flat_map(|point| [point.measured_s.log10(), point.predicted_s.log10()]);
    let low = logs().fold(f64::INFINITY, f64::min).floor();
    let high = logs().fold(f64::NEG_INFINITY, f64::max).ceil();
    if low.is_finite() && high > low { (low, high) } else { (0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_a_point() {
        let point = |id: &str, moe| ScoredPoint { id: id.into(), moe, measured_s: 2.0, predicted_s: 1.0, error: -0.5 };
        let text = svg(&[point("a<b", true), point("c", false)]);
        assert!(text.contains("a&lt;b: measured 2.0000 s, predicted 1.0000 s, -50.0 %"));
        assert_eq!(text.matches("<circle").count(), 4, "two of them the legend");
        assert!(svg(&[]).ends_with("</svg>\n"));
    }
}
