//! Compute and communication at the same time.

use crate::units::Seconds;

/// Time of compute C and communication X issued together, where a resident communication kernel slows compute by σ.
///
/// ```text
/// X' = X·(1 + σ/2)
/// T  = C + X'·σ/(1+σ)   if X' ≤ C·(1+σ),   else X'
/// ```
///
/// Source: specification §5.1.
pub fn overlap(compute: Seconds, communication: Seconds, sigma: f64) -> Seconds {
    if communication <= Seconds::ZERO {
        return compute;
    }
    if compute <= Seconds::ZERO {
        return communication;
    }
    let slowed = communication * (1.0 + 0.5 * sigma);
    if slowed <= compute * (1.0 + sigma) { compute + slowed * (sigma / (1.0 + sigma)) } else { slowed }
}

/// Time by which a transfer, slowed by contention (`sigma`, below 1), outlasts the compute that it runs beside.
#[inline]
pub(super) fn outlasting(time: Seconds, window: Seconds, sigma: f64) -> Seconds {
    (time * (1.0 + 0.5 * sigma) - window).or_zero()
}

/// Time that a transfer adds to the compute that it runs beside: where it outlasts that compute, and by which contention
/// (`sigma`, below 1) slows it.
#[inline]
pub(super) fn unhidden(time: Seconds, window: Seconds, sigma: f64) -> Seconds {
    outlasting(time, window, sigma) + time.min(window) * sigma
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specification, appendix A, 5.1: C = 10, σ = 0.12.
    #[test]
    fn six_hides_and_fourteen_does_not() {
        let time = |x| overlap(Seconds::new(10.0), Seconds::new(x), 0.12).get();
        assert!((time(6.0) - 10.68).abs() < 0.005);
        assert!((time(14.0) - 14.84).abs() < 0.005);
    }
}
