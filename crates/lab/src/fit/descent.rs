//! Descent of a fit: from the start, in units of each constant's prior σ.

use std::cell::RefCell;

use super::task::Task;
use crate::least_squares::{LeastSquares, Stop, descend};
use crate::runs::Figures;

/// Step of the forward differences, in units of σ.
const STEP: f64 = 0.02;
/// Stopping criterion of the fit; predictions have kinks, so finer steps follow noise.
const STOP: Stop = Stop { tolerance: 1e-4, patience: 2 };

/// Least-squares problem of the constants over some rows.
pub(super) struct Descent<'a> {
    task: &'a Task<'a>,
    start: Vec<f64>,
    /// Scored rows, in order.
    counted: Vec<usize>,
    /// Last predictions and their point, from which differences start.
    last: RefCell<(Vec<f64>, Vec<Figures>)>,
}

impl<'a> Descent<'a> {
    /// Descent over the scored rows.
    pub fn new(task: &'a Task<'a>, counted: Vec<usize>) -> Self {
        let start = task.placed.iter().map(super::free::PlacedConstant::start).collect();
        Self { task, start, counted, last: RefCell::default() }
    }

    /// Constants at the end of the better of two descents: from the start, and from the values `other`.
    ///
    /// A constant of a term that is not binding at the start, such as a host floor below the kernels' time, has no slope there and
    /// would keep its value.
    pub fn end(&self, other: Option<&[f64]>) -> Vec<f64> {
        let descend_from = |at: &[f64]| {
            let end = descend(self, at, STOP);
            let loss = self.residuals(&end).iter().map(|residual| residual * residual).sum::<f64>();
            (loss, end)
        };
        let mut best = descend_from(&vec![0.0; self.start.len()]);
        if let Some(values) = other {
            let again = descend_from(&self.at(values));
            if again.0 < best.0 {
                best = again;
            }
        }
        self.values(&best.1)
    }

    /// Point of values, in units of each constant's prior σ.
    fn at(&self, values: &[f64]) -> Vec<f64> {
        let free = self.task.placed.iter().zip(&self.start).zip(values);
        free.map(|((placed, start), value)| (value - start) / placed.free.prior).collect()
    }

    /// Values of the constants, clamped to their bounds.
    fn values(&self, at: &[f64]) -> Vec<f64> {
        let free = self.task.placed.iter().zip(&self.start).zip(at);
        free.map(|((placed, start), at)| placed.bounds().clamp(start + at * placed.free.prior)).collect()
    }

    /// Predictions by row, cached at the last point.
    fn figures(&self, at: &[f64]) -> Vec<Figures> {
        if self.last.borrow().0 != at {
            let mut figures = vec![(None, None); self.task.rows.len()];
            let found = self.task.predict(&self.values(at), &self.counted);
            self.counted.iter().zip(found).for_each(|(&row, found)| figures[row] = found);
            *self.last.borrow_mut() = (at.to_vec(), figures);
        }
        self.last.borrow().1.clone()
    }

    /// Residuals of predictions, of the priors and of the bounds.
    fn with_priors(&self, figures: &[Figures], at: &[f64]) -> Vec<f64> {
        let mut residuals = self.task.residuals(figures, &self.counted);
        let value = |which: usize| self.start[which] + at[which] * self.task.placed[which].free.prior;
        residuals.extend(self.task.parents.iter().enumerate().map(|(which, parent)| match parent {
            Some(parent) => (value(which) - value(*parent)) / self.task.placed[which].free.prior,
            None => (value(which) - self.task.placed[which].mean()) / self.task.placed[which].free.prior,
        }));
        residuals.extend(self.task.placed.iter().enumerate().map(|(which, placed)| placed.bounds().wall(value(which))));
        residuals
    }
}

impl LeastSquares for Descent<'_> {
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        self.with_priors(&self.figures(at), at)
    }

    /// Forward differences over the rows that the parameter affects.
    fn derivatives(&self, at: &[f64], which: usize) -> Vec<f64> {
        let here = self.residuals(at);
        let mut figures = self.figures(at);
        let mut moved = at.to_vec();
        // Step away from the nearer bound, so that a constant at its bound still has a slope.
        let bounds = self.task.placed[which].bounds();
        let value = self.values(at)[which];
        let step = if bounds.high - value < value - bounds.low { -STEP } else { STEP };
        moved[which] += step;
        let touched: Vec<usize> =
            self.task.rows_of[which].iter().copied().filter(|row| self.counted.binary_search(row).is_ok()).collect();
        if !touched.is_empty() {
            let found = self.task.predict(&self.values(&moved), &touched);
            touched.iter().zip(found).for_each(|(&row, found)| figures[row] = found);
        }
        let there = self.with_priors(&figures, &moved);
        there.iter().zip(here).map(|(there, here)| (there - here) / step).collect()
    }
}
