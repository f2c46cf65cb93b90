//! The least of a function of a few bounded numbers, without its gradient: Nelder and Mead's simplex, from `argmin`.

use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::neldermead::NelderMead;

/// First step of each number, as a share of its range.
const STEP: f64 = 0.15;
/// Simplex values this close end the search.
const TOLERANCE: f64 = 1e-7;

/// Bounds of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

impl From<(f64, f64)> for Bounds {
    fn from((low, high): (f64, f64)) -> Self {
        Self { low, high }
    }
}

impl Bounds {
    /// The value nearest inside.
    pub fn clamp(&self, value: f64) -> f64 {
        value.max(self.low).min(self.high)
    }

    fn width(&self) -> f64 {
        self.high - self.low
    }
}

struct Bounded<'a, F> {
    function: F,
    bounds: &'a [Bounds],
}

impl<F: Fn(&[f64]) -> f64> CostFunction for Bounded<'_, F> {
    type Param = Vec<f64>;
    type Output = f64;

    /// Outside the bounds, the value at the nearest point inside, and more with the distance to it.
    fn cost(&self, at: &Vec<f64>) -> Result<f64, Error> {
        let inside: Vec<f64> = at.iter().zip(self.bounds).map(|(share, bounds)| value_at(*share, *bounds)).collect();
        let outside: f64 = at.iter().map(|share| (share - share.clamp(0.0, 1.0)).abs()).sum();
        let cost = (self.function)(&inside);
        Ok(if cost.is_finite() { cost * (1.0 + outside) + outside } else { f64::MAX })
    }
}

fn value_at(share: f64, bounds: Bounds) -> f64 {
    bounds.low + share.clamp(0.0, 1.0) * bounds.width()
}

/// The best point found from `start` in at most `iterations` steps; never worse than `start`. Deterministic.
pub fn minimise(function: impl Fn(&[f64]) -> f64, start: &[f64], bounds: &[Bounds], iterations: u64) -> Vec<f64> {
    let shares: Vec<f64> = start
        .iter()
        .zip(bounds)
        .map(
            |(value, bounds)| {
                if bounds.width() > 0.0 { (bounds.clamp(*value) - bounds.low) / bounds.width() } else { 0.0 }
            },
        )
        .collect();
    let corners = (0..shares.len()).map(|at| {
        let mut corner = shares.clone();
        corner[at] += if corner[at] > 0.5 { -STEP } else { STEP };
        corner
    });
    let simplex: Vec<Vec<f64>> = [shares.clone()].into_iter().chain(corners).collect();
    let start: Vec<f64> = shares.iter().zip(bounds).map(|(share, bounds)| value_at(*share, *bounds)).collect();
    let at_start = function(&start);
    let Ok(solver) = NelderMead::new(simplex).with_sd_tolerance(TOLERANCE) else { return start };
    let problem = Bounded { function: &function, bounds };
    let Ok(result) = Executor::new(problem, solver).configure(|state| state.max_iters(iterations)).run() else {
        return start;
    };
    let Some(best) = result.state().get_best_param() else { return start };
    let best: Vec<f64> = best.iter().zip(bounds).map(|(share, bounds)| value_at(*share, *bounds)).collect();
    if function(&best) < at_start { best } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_a_valley_is_found() {
        let valley = |x: &[f64]| (x[0] - 3.0).powi(2) + 10.0 * (x[1] - x[0]).powi(2);
        let bounds = [Bounds { low: 0.0, high: 10.0 }; 2];
        let found = minimise(valley, &[9.0, 1.0], &bounds, 500);
        assert!(found.iter().all(|x| (x - 3.0).abs() < 1e-2), "{found:?}");
    }

    #[test]
    fn bounds_hold_and_the_start_is_never_made_worse() {
        let found = minimise(|x| -x[0], &[0.5], &[Bounds { low: 0.0, high: 2.0 }], 200);
        assert!((found[0] - 2.0).abs() < 1e-6, "{found:?}");
        let flat = minimise(|_| 1.0, &[0.25], &[Bounds { low: 0.0, high: 1.0 }], 50);
        assert!((flat[0] - 0.25).abs() < 1e-12);
    }
}
