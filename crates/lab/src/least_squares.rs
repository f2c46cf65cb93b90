//! Damped least squares (Levenberg–Marquardt, MINPACK's algorithm) over a few parameters, with differences for derivatives.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

/// Step of the central differences, on parameters of order one (logarithms).
const STEP: f64 = 1e-5;
/// Residuals above this weigh linearly, not by their square: a few kernels that no smooth curve meets do not bend it.
const SCALE: f64 = 0.05;
/// Evaluations of the residuals after which a fit stops, as multiples of the parameters.
const PATIENCE: usize = 200;

/// What is made least: the sum of the squares of residuals.
pub trait Problem {
    /// The residuals; always as many.
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

/// A function is a problem whose derivatives are differences.
pub struct Function<F>(pub F);

impl<F: Fn(&[f64]) -> Vec<f64>> Problem for Function<F> {
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        (self.0)(at)
    }
}

/// How close is close enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// Relative gain of a step, and relative length of one, below which there is no use in another.
    pub tolerance: f64,
    /// Most evaluations of the residuals, as a multiple of the parameters.
    pub patience: usize,
}

impl Stop {
    /// To the precision of the arithmetic.
    pub const EXACT: Self = Self { tolerance: f64::EPSILON * 30.0, patience: PATIENCE };
}

struct Adapter<'a, P> {
    problem: &'a P,
    at: DVector<f64>,
}

impl<P: Problem> LeastSquaresProblem<f64, Dyn, Dyn> for Adapter<'_, P> {
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

/// The parameters near `start` that make the squares of the residuals least. There must be at least as many residuals as
/// parameters. Where the residuals are not finite at the start, it is the answer.
pub fn descend(problem: &impl Problem, start: &[f64], stop: Stop) -> Vec<f64> {
    let adapter = Adapter { problem, at: DVector::from_column_slice(start) };
    let (end, _) = LevenbergMarquardt::new()
        .with_ftol(stop.tolerance)
        .with_xtol(stop.tolerance)
        .with_gtol(stop.tolerance)
        .with_patience(stop.patience)
        .minimize(adapter);
    end.at.as_slice().to_vec()
}

/// The residual whose square is the soft L1 loss: as it is where small against the scale, and of the order of its root
/// where large, so that a run that no physics explains does not bend what explains the others.
///
/// ```text
/// r' = sign(r)·√(2·δ²·(√(1 + (r/δ)²) − 1))          r' → r for r ≪ δ
/// ```
pub fn softened(residual: f64, scale: f64) -> f64 {
    let x = (residual / scale).powi(2);
    // √(1 + x) − 1 without cancellation.
    let loss = x / ((1.0 + x).sqrt() + 1.0);
    residual.signum() * scale * (2.0 * loss).sqrt()
}

/// The parameters near one of `starts` that make the residuals least, and the soft L1 loss that is left.
///
/// There must be at least as many residuals as parameters; with fewer, or where no start gives finite residuals, there is
/// no answer. Every start is tried, and the best end wins, the first of equals.
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
}
