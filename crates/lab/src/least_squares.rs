//! Damped least squares (Levenberg–Marquardt, MINPACK's algorithm) over a few parameters, with differences for derivatives.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

/// Step of the central differences, on parameters of order one (logarithms).
const STEP: f64 = 1e-5;
/// Scale above which residuals count linearly instead of quadratically, so that outliers do not bend a smooth curve.
const SCALE: f64 = 0.05;
/// Largest number of residual evaluations, as a multiple of the number of parameters.
const PATIENCE: usize = 200;

/// Least-squares problem: minimise the sum of squared residuals.
pub trait LeastSquares {
    /// Residuals at a point; their number is constant.
    fn residuals(&self, at: &[f64]) -> Vec<f64>;

    /// Derivatives of the residuals by one parameter, by central differences.
    fn derivatives(&self, at: &[f64], which: usize) -> Vec<f64> {
        let moved = |by: f64| {
            let mut at = at.to_vec();
            at[which] += by;
            self.residuals(&at)
        };
        moved(STEP).iter().zip(moved(-STEP)).map(|(after, before)| (after - before) / (2.0 * STEP)).collect()
    }
}

/// Least-squares problem of a function, with derivatives by differences.
pub struct Function<F>(pub F);

impl<F: Fn(&[f64]) -> Vec<f64>> LeastSquares for Function<F> {
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        (self.0)(at)
    }
}

/// Stopping criterion of a descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// Relative gain of a step, and relative length of a step, below which the descent stops.
    pub tolerance: f64,
    /// Largest number of residual evaluations, as a multiple of the number of parameters.
    pub patience: usize,
}

impl Stop {
    /// Criterion at the precision of the arithmetic.
    pub const EXACT: Self = Self { tolerance: f64::EPSILON * 30.0, patience: PATIENCE };
}

struct Adapter<'a, P> {
    problem: &'a P,
    at: DVector<f64>,
}

impl<P: LeastSquares> LeastSquaresProblem<f64, Dyn, Dyn> for Adapter<'_, P> {
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
        finite(self.problem.residuals(self.at.as_slice()))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let columns: Vec<DVector<f64>> = (0..self.at.len())
            .map(|which| finite(self.problem.derivatives(self.at.as_slice(), which)))
            .collect::<Option<_>>()?;
        Some(DMatrix::from_columns(&columns))
    }
}

fn finite(values: Vec<f64>) -> Option<DVector<f64>> {
    values.iter().all(|value| value.is_finite()).then(|| DVector::from_vec(values))
}

/// Parameters near `start` that minimise the sum of squared residuals. There must be at least as many residuals as
/// parameters. If the residuals are not finite at the start, the start is returned.
pub fn descend(problem: &impl LeastSquares, start: &[f64], stop: Stop) -> Vec<f64> {
    let adapter = Adapter { problem, at: DVector::from_column_slice(start) };
    let (end, _) = LevenbergMarquardt::new()
        .with_ftol(stop.tolerance)
        .with_xtol(stop.tolerance)
        .with_gtol(stop.tolerance)
        .with_patience(stop.patience)
        .minimize(adapter);
    end.at.as_slice().to_vec()
}

/// Residual whose square is the soft L1 loss: unchanged where small relative to the scale, and of the order of its square
/// root where large, so that outliers do not dominate the fit.
///
/// ```text
/// r' = sign(r)·√(2·δ²·(√(1 + (r/δ)²) − 1))          r' → r for r ≪ δ
/// ```
pub(crate) fn softened(residual: f64, scale: f64) -> f64 {
    let x = (residual / scale).powi(2);
    // √(1 + x) − 1 without cancellation.
    let loss = x / ((1.0 + x).sqrt() + 1.0);
    residual.signum() * scale * (2.0 * loss).sqrt()
}

/// Residual whose square is Cauchy's loss: unchanged where small relative to the scale, and hardly growing where large, so
/// that outliers have no pull.
///
/// ```text
/// r' = sign(r)·δ·√(ln(1 + (r/δ)²))          r' → r for r ≪ δ
/// ```
pub(crate) fn cauchy(residual: f64, scale: f64) -> f64 {
    residual.signum() * scale * (residual / scale).powi(2).ln_1p().sqrt()
}

/// Parameters near one of `starts` that minimise the soft L1 loss, with the loss that remains.
///
/// There must be at least as many residuals as parameters; with fewer, or if no start gives finite residuals, the result is
/// `None`. Every start is tried, and the best result wins, the first among equals.
pub fn minimise(starts: &[Vec<f64>], residuals: &dyn Fn(&[f64]) -> Vec<f64>) -> Option<(Vec<f64>, f64)> {
    let soft = |at: &[f64]| residuals(at).into_iter().map(|residual| softened(residual, SCALE)).collect::<Vec<f64>>();
    let mut best: Option<(Vec<f64>, f64)> = None;
    for start in starts {
        if residuals(start).len() < start.len() {
            continue;
        }
        let end = descend(&Function(soft), start, Stop::EXACT);
        let squares: f64 = soft(&end).into_iter().map(|residual| residual.powi(2)).sum();
        if squares.is_finite() && best.as_ref().is_none_or(|(_, least)| squares < *least) {
            best = Some((end, squares));
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

    #[test]
    fn one_run_out_of_line_does_not_move_the_others() {
        let measured = [1.0, 1.02, 0.98, 1.01, 0.99, 3.0];
        let residuals = |at: &[f64]| measured.iter().map(|value| softened(at[0] - value, 0.05)).collect();
        let found = descend(&Function(residuals), &[2.0], Stop::EXACT);
        assert!((found[0] - 1.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn outliers_have_hardly_any_pull_under_cauchys_loss() {
        let measured = [1.0, 1.02, 0.98, 1.01, 0.99, 3.0, 3.2, 2.8];
        let fitted = |loss: fn(f64, f64) -> f64| {
            let residuals = |at: &[f64]| measured.iter().map(|value| loss(at[0] - value, 0.05)).collect();
            descend(&Function(residuals), &[1.2], Stop::EXACT)[0]
        };
        assert!((fitted(cauchy) - 1.0).abs() < 0.005, "{}", fitted(cauchy));
        assert!(fitted(softened) - 1.0 > 0.01, "{}", fitted(softened));
        assert!((cauchy(-1e-4, 0.05) + 1e-4).abs() < 1e-9, "small residuals stay");
    }
}
