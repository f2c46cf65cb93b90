//! Stragglers: a synchronous step waits for the slowest group.

/// Number of GPUs whose step times vary together: those of a node. Source: specification §7.5.
const GROUP: f64 = 8.0;

/// Number of draws below which the expansion for many is not used: between one and two it is not monotone, and negative.
const FEW: f64 = 2.0;

/// Expected largest of `n` standard normal draws.
///
/// ```text
/// E ≈ √(2 ln n) − (ln ln n + ln 4π)/(2·√(2 ln n))          n ≥ 2, specification §7.5
/// E ≈ E(2)·(n − 1)                                         1 ≤ n ≤ 2
/// ```
pub fn expected_maximum(n: f64) -> f64 {
    let of_many = |n: f64| {
        let logarithm = libm::log(n);
        let x = (2.0 * logarithm).sqrt();
        x - (libm::log(logarithm) + libm::log(4.0 * std::f64::consts::PI)) / (2.0 * x)
    };
    if n >= FEW { of_many(n) } else { of_many(FEW) * ((n - 1.0) / (FEW - 1.0)).max(0.0) }
}

/// Share by which stragglers lengthen the step on `gpus` devices (J), where step times spread by `spread` between groups.
pub fn slow_down(gpus: u32, spread: f64) -> f64 {
    spread * expected_maximum(f64::from(gpus) / GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specification §7.5 and appendix A.
    #[test]
    fn two_thousand_nodes_wait_one_percent() {
        for (n, expected) in [(64.0, 2.20), (256.0, 2.69), (2048.0, 3.32), (16384.0, 3.86)] {
            assert!((expected_maximum(n) - expected).abs() < 0.15, "{n}: {}", expected_maximum(n));
        }
        assert!((slow_down(16384, 0.01 / 3.0) - 0.011).abs() < 0.0005);
    }

    /// Twelve GPUs are one and a half groups: the expansion for many is negative there.
    #[test]
    fn more_groups_never_wait_less() {
        let waits: Vec<f64> = (1..=256).map(|gpus| slow_down(gpus, 0.01)).collect();
        assert!(waits[0] >= 0.0 && waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
    }
}
