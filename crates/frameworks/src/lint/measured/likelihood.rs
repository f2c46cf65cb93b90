//! Likelihood of measured times under a hypothesis.

/// Error of a predicted step time, common to measurements of one model and software (specification §10.9).
pub(super) const COMMON: f64 = 0.12;
/// Error of each measurement alone. Runs of one layout that were repeated differ by 3–4 % (README); the model's errors on
/// published runs of one layout at two sizes differ by 3.5 % (rms of 293 pairs without nanotron's sweep).
pub(super) const OWN: f64 = 0.04;
/// Standard deviation of the common error where only ratios are known: as good as free.
pub(super) const FREE: f64 = 10.0;
/// Slowdown that something else may be, at most, and its logarithm's range (assumption).
const ANYTHING: f64 = 4.0;

/// Log density of measured times under those that are predicted, each known to `errors` seconds beside the model's own error.
///
/// ```text
/// r = ln(measured/predicted)      own² = OWN² + (error/predicted)²
/// covariance = common²·11ᵀ + diag(own²)
/// ```
pub(super) fn log_density(measured: &[f64], predicted: &[f64], errors: &[f64], common: f64) -> f64 {
    let (mut weights, mut weighted, mut squares, mut logs) = (0.0, 0.0, 0.0, 0.0);
    for ((measured, predicted), error) in measured.iter().zip(predicted).zip(errors) {
        let own = OWN.powi(2) + (error / predicted).powi(2);
        let residual = (measured / predicted).ln();
        weights += 1.0 / own;
        weighted += residual / own;
        squares += residual * residual / own;
        logs += own.ln();
    }
    let whole = 1.0 + common * common * weights;
    -0.5 * (squares - common * common * weighted * weighted / whole + logs + whole.ln())
}

/// Log density where each run may be slower by anything up to [`ANYTHING`], all factors equally likely on a logarithmic scale.
///
/// ```text
/// Π mean over x in 0 … ln 4 of N(r − x; 0, OWN² + common²)       of ratios: of all runs but the fastest, against it
/// ```
pub(super) fn log_of_anything(measured: &[f64], predicted: &[f64], common: f64) -> f64 {
    const STEPS: u32 = 48;
    let free = common >= FREE;
    let width = if free { OWN * std::f64::consts::SQRT_2 } else { OWN.hypot(common) };
    let mut offs: Vec<f64> =
        measured.iter().zip(predicted).map(|(measured, predicted)| (measured / predicted).ln()).collect();
    offs.sort_by(f64::total_cmp);
    let (least, runs) =
        if free { (offs.first().copied().unwrap_or(0.0), offs.get(1..).unwrap_or(&[])) } else { (0.0, &offs[..]) };
    let of_one = |off: &f64| {
        let deviation_at = |step: u32| (off - least - ANYTHING.ln() * f64::from(step) / f64::from(STEPS)) / width;
        log_sum((0..=STEPS).map(|step| -0.5 * deviation_at(step).powi(2))) - f64::from(STEPS + 1).ln() - width.ln()
    };
    runs.iter().map(of_one).sum::<f64>() - if free { common.ln() } else { 0.0 }
}

/// ln Σ exp(x), without leaving the range of numbers.
pub(super) fn log_sum(items: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = items.clone().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY { most } else { most + items.map(|x| (x - most).exp()).sum::<f64>().ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_density_of_one_residual_is_normal() {
        let spread = COMMON.hypot(OWN);
        let expected = |r: f64| -0.5 * (r / spread).powi(2) - spread.ln();
        for r in [0.0, 0.1, -0.3_f64] {
            let found = log_density(&[r.exp()], &[1.0], &[0.0], COMMON);
            assert!((found - expected(r)).abs() < 1e-9, "{r}: {found}");
        }
    }

    #[test]
    fn a_common_error_is_cheaper_than_two_of_their_own() {
        let log = |measured: &[f64], common| log_density(measured, &[1.0, 1.0], &[0.0, 0.0], common);
        assert!(log(&[1.1, 1.1], COMMON) > log(&[1.1, 0.9], COMMON));
        assert!(log(&[1.6, 1.6], FREE) > log(&[1.0, 1.0], FREE) - 0.1);
        assert!((log_sum([-1000.0, -1000.0].into_iter()) - (-1000.0 + 2.0_f64.ln())).abs() < 1e-9);
    }

    #[test]
    fn an_unsure_loss_may_be_off() {
        let off = |error: f64| log_density(&[1.15], &[1.0], &[error], 0.0);
        assert!(off(0.12) > off(0.0), "15 % off is far for a step, and near for one that is known to 12 %");
    }

    #[test]
    fn anything_explains_all_slowdowns_alike_and_none_well() {
        for common in [COMMON, FREE] {
            let log = |times: f64| log_of_anything(&[1.0, times], &[1.0, 1.0], common);
            assert!((log(1.7) - log(2.5)).abs() < 0.01, "{} {}", log(1.7), log(2.5));
            assert!(log(2.0) > log(8.0) + 3.0, "four times at most");
            let exact = log_density(&[1.0, 2.0], &[1.0, 2.0], &[0.0, 0.0], common);
            assert!(exact > log(2.0) + 1.0, "a cause that fits is likelier: {exact} {}", log(2.0));
        }
    }
}
