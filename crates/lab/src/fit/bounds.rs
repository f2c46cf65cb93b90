//! Least squares with bounds: parameters are scaled to their ranges, and a penalty keeps them inside.

use crate::least_squares::{Function, Stop, descend as free_descent};

/// Penalty residual of a parameter outside by the width of its range; large enough that none stays there.
const WALL: f64 = 1e3;
/// Stopping criterion of a curve fit.
const STOP: Stop = Stop { tolerance: 1e-7, patience: 40 };

/// Lower and upper bound of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Least allowed value.
    pub low: f64,
    /// Largest allowed value.
    pub high: f64,
}

impl From<(f64, f64)> for Bounds {
    fn from((low, high): (f64, f64)) -> Self {
        Self { low, high }
    }
}

impl Bounds {
    /// Nearest value inside the bounds.
    pub fn clamp(&self, value: f64) -> f64 {
        value.max(self.low).min(self.high)
    }

    /// Width of the range.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// Penalty residual of a value; zero inside the bounds.
    pub fn wall(&self, value: f64) -> f64 {
        (value - self.clamp(value)) / self.width() * WALL
    }
}

/// Parameters inside `bounds`, near `start`, that minimise the sum of squared residuals.
pub fn descend(residuals: &dyn Fn(&[f64]) -> Vec<f64>, start: &[f64], bounds: &[Bounds]) -> Vec<f64> {
    let values = |shares: &[f64]| -> Vec<f64> {
        shares.iter().zip(bounds).map(|(share, bounds)| bounds.low + share * bounds.width()).collect()
    };
    let inside = |values: &[f64]| -> Vec<f64> {
        values.iter().zip(bounds).map(|(value, bounds)| bounds.clamp(*value)).collect()
    };
    let walled = |shares: &[f64]| {
        let values = values(shares);
        let mut all = residuals(&inside(&values));
        all.extend(values.iter().zip(bounds).map(|(value, bounds)| bounds.wall(*value)));
        all
    };
    let shares: Vec<f64> = inside(start)
        .iter()
        .zip(bounds)
        .map(|(value, bounds)| if bounds.width() > 0.0 { (value - bounds.low) / bounds.width() } else { 0.0 })
        .collect();
    inside(&values(&free_descent(&Function(walled), &shares, STOP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_a_valley_is_found() {
        let valley = |x: &[f64]| vec![x[0] - 3.0, 3.0 * (x[1] - x[0])];
        let found = descend(&valley, &[9.0, 1.0], &[Bounds { low: 0.0, high: 10.0 }; 2]);
        assert!(found.iter().all(|x| (x - 3.0).abs() < 1e-4), "{found:?}");
    }

    #[test]
    fn bounds_hold_and_what_nothing_depends_on_stays() {
        let found = descend(&|x| vec![x[0] - 5.0, 0.0], &[0.5, 0.25], &[Bounds { low: 0.0, high: 2.0 }; 2]);
        assert!((found[0] - 2.0).abs() < 1e-3 && found[0] <= 2.0, "{found:?}");
        assert!((found[1] - 0.25).abs() < 1e-9, "{found:?}");
    }
}
