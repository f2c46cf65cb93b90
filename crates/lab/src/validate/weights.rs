//! Weights of published runs in the quantiles of errors, and how these are rounded.

use meshwright_planner::confidence::{LEVELS, Quantiles};

/// Exponent of a source's weight in its number of measurements (or pairs): its runs err together.
pub(super) const OF_SOURCE: f64 = 0.75;

/// Quantiles rounded to thousandths, away from the median, so that an interval holds no less than before.
pub(super) fn outwards(mut quantiles: Quantiles) -> Quantiles {
    for (value, level) in quantiles.values.iter_mut().zip(LEVELS) {
        let thousandth = *value * 1e3;
        *value = if level < 0.5 { thousandth.floor() } else { thousandth.ceil() } / 1e3;
    }
    quantiles
}
