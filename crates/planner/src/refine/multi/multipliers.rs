//! Lagrange multipliers of the dual of a node, and a step along its subgradient.

use crate::refine::paths::project;

/// Lagrange multipliers. Any are valid as long as the weights of paths are not negative and sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Multipliers {
    /// Multipliers of paths.
    pub paths: Vec<PathMultiplier>,
    /// Seconds for a layer of each kind.
    pub kinds: Vec<f64>,
}

/// Multiplier of one dependency path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathMultiplier {
    /// Index of the path in the pool.
    pub path: usize,
    /// Its weight.
    pub weight: f64,
}

impl Multipliers {
    /// Multipliers moved along a subgradient, the lengths of paths and the missing layers, by `rise` in the direction's
    /// own measure; `None` where the subgradient is zero. `unit` is that of the multipliers of kinds, in seconds a
    /// layer.
    ///
    /// ```text
    /// w ← project(w + s·(length − Σ w·length)),   π ← π + s·u²·missing,   s = rise / (|Δw|² + |u·missing|²)
    /// ```
    pub fn stepped(&self, unit: f64, lengths: &[f64], missing: &[f64], rise: f64) -> Option<Self> {
        let mean: f64 = lengths.iter().zip(&self.paths).map(|(length, of)| length * of.weight).sum();
        let slope = |(length, of): (&f64, &PathMultiplier)| {
            let slope = length - mean;
            if of.weight <= 0.0 && slope < 0.0 { 0.0 } else { slope }
        };
        let slopes: Vec<f64> = lengths.iter().zip(&self.paths).map(slope).collect();
        let norm: f64 = slopes.iter().map(|slope| slope * slope).sum::<f64>()
            + missing.iter().map(|missing| (missing * unit).powi(2)).sum::<f64>();
        if norm <= 0.0 {
            return None;
        }
        let step = rise / norm;
        let mut weights: Vec<f64> =
            self.paths.iter().zip(&slopes).map(|(of, slope)| of.weight + step * slope).collect();
        project(&mut weights);
        let paths = self.paths.iter().zip(weights).map(|(of, weight)| PathMultiplier { weight, ..*of }).collect();
        let kinds = self.kinds.iter().zip(missing).map(|(kind, missing)| kind + step * missing * unit * unit);
        Some(Self { paths, kinds: kinds.collect() })
    }
}
