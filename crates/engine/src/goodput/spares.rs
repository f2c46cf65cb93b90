//! Hot spares: their number, and the loss when they are exhausted.

use crate::units::Seconds;

/// Accepted probability that the spares are exhausted.
const RARE: f64 = 0.01;

/// Probability that `spares` or more nodes are under repair when one fails.
///
/// ```text
/// P(n ≥ s),  n ~ Poisson(a),  a = repair time / time between breakages          specification §7.3
/// ```
pub fn exhausted(spares: u32, under_repair: f64) -> f64 {
    let mut term = libm::exp(-under_repair);
    let mut below = 0.0;
    for n in 0..spares {
        below += term;
        term *= under_repair / f64::from(n + 1);
    }
    (1.0 - below).max(0.0)
}

/// Fewest spares that are exhausted in less than one failure of a hundred.
pub fn enough(under_repair: f64) -> u32 {
    // Largest mean for the exact sum: e^-a is 0 in f64 from a = 745 on, and beyond it the mean plus five deviations is
    // enough.
    const MOST_EXACT: f64 = 600.0;
    if under_repair > MOST_EXACT {
        return (under_repair + 5.0 * under_repair.sqrt()).ceil() as u32;
    }
    (0..=u32::MAX).find(|&spares| exhausted(spares, under_repair) < RARE).unwrap_or(u32::MAX)
}

/// Mean time that a failure waits for a node.
///
/// ```text
/// P(exhausted)·repair/(s + 1)          the first of s nodes whose repair is somewhere between its start and its end
/// ```
pub fn wait(spares: u32, under_repair: f64, repair: Seconds) -> Seconds {
    repair * (exhausted(spares, under_repair) / (f64::from(spares) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_tail() {
        assert!((exhausted(0, 3.0) - 1.0).abs() < 1e-12);
        assert!((exhausted(1, 3.0) - (1.0 - libm::exp(-3.0))).abs() < 1e-12);
        assert_eq!(enough(0.0), 1);
        assert!(enough(8.0) > 12 && enough(8.0) < 20, "{}", enough(8.0));
        assert!(enough(1000.0) > 1100);
    }
}
