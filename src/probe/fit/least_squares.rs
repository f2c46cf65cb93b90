//! Damped least squares (Levenberg–Marquardt) over a few parameters, with differences for derivatives.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

/// Step of the central differences, on parameters of order one (logarithms).
const STEP: f64 = 1e-5;
/// Residuals above this weigh linearly, not by their square: a few kernels that no smooth curve meets do not bend it.
const SCALE: f64 = 0.05;
/// Evaluations of the residuals after which a fit stops, as multiples of the parameters.
const PATIENCE: usize = 200;

struct Fit<'a> {
    residuals: &'a dyn Fn(&[f64]) -> Vec<f64>,
    at: DVector<f64>,
}

impl Fit<'_> {
    fn value(&self, at: &DVector<f64>) -> Option<DVector<f64>> {
        let residuals: Vec<f64> = (self.residuals)(at.as_slice()).into_iter().map(softened).collect();
        residuals.iter().all(|r| r.is_finite()).then(|| DVector::from_vec(residuals))
    }
}

/// The residual whose square is the soft L1 loss.
///
/// ```text
/// r' = sign(r)·√(2·δ²·(√(1 + (r/δ)²) − 1))          r' → r for r ≪ δ
/// ```
fn softened(residual: f64) -> f64 {
    let x = (residual / SCALE).powi(2);
    // √(1 + x) − 1 without cancellation.
    let loss = x / ((1.0 + x).sqrt() + 1.0);
    residual.signum() * SCALE * (2.0 * loss).sqrt()
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Fit<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, at: &DVector<f64>) {
        self.at.copy_from(at);
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        self.value(&self.at)
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let columns: Vec<DVector<f64>> = (0..self.at.len())
            .map(|which| {
                let moved = |by: f64| {
                    let mut at = self.at.clone();
                    at[which] += by;
                    self.value(&at)
                };
                Some((moved(STEP)? - moved(-STEP)?) / (2.0 * STEP))
            })
            .collect::<Option<_>>()?;
        Some(DMatrix::from_columns(&columns))
    }
}

/// The parameters near one of `starts` that make the residuals least, and the soft L1 loss that is left.
///
/// There must be at least as many residuals as parameters; with fewer, or where no start gives finite residuals, there is
/// no answer. Every start is tried, and the best end wins, the first of equals.
pub fn minimise(starts: &[Vec<f64>], residuals: &dyn Fn(&[f64]) -> Vec<f64>) -> Option<(Vec<f64>, f64)> {
    let mut best: Option<(Vec<f64>, f64)> = None;
    for start in starts {
        if residuals(start).len() < start.len() {
            continue;
        }
        let fit = Fit { residuals, at: DVector::from_vec(start.clone()) };
        let (end, _) = LevenbergMarquardt::new().with_patience(PATIENCE).minimize(fit);
        let squares: f64 = residuals(end.at.as_slice()).into_iter().map(|r| softened(r).powi(2)).sum();
        if squares.is_finite() && best.as_ref().is_none_or(|(_, least)| squares < *least) {
            best = Some((end.at.as_slice().to_vec(), squares));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_found_again() {
        let curve = |p: &[f64], x: f64| p[0].exp() * (1.0 + (p[1].exp() / x).powf(p[2].exp()));
        let truth = [0.7, 2.0, -0.5];
        let xs: Vec<f64> = (1..40).map(f64::from).collect();
        let residuals = |p: &[f64]| xs.iter().map(|&x| (curve(p, x) / curve(&truth, x)).ln()).collect::<Vec<_>>();
        let (found, squares) = minimise(&[vec![0.0, 0.0, 0.0]], &residuals).unwrap();
        assert!(squares < 1e-16, "{squares}");
        for (found, truth) in found.iter().zip(truth) {
            assert!((found - truth).abs() < 1e-5, "{found} {truth}");
        }
    }

    #[test]
    fn too_few_points_are_no_fit() {
        assert_eq!(minimise(&[vec![0.0, 0.0]], &|p| vec![p[0] - p[1]]), None);
        assert_eq!(minimise(&[vec![0.0]], &|_| vec![f64::NAN]), None);
    }
}
