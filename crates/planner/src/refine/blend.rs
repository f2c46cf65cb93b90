//! Chains of a schedule weighed together: a lower bound on a step is the longest chain, so is every mean of chains.

use super::program::Load;
use meshwright_engine::schedule::paths::Path;

/// A mean of chains, as what one second of each stage's passes counts.
///
/// ```text
/// length = Σ_S φ_S·F_S + β_S·B_S + ω_S·W_S + ε_S·E_S
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Blend {
    /// Forward of each stage.
    pub forward: Vec<f64>,
    /// Backward with weight gradients.
    pub backward: Vec<f64>,
    /// Weight gradients beyond those of the backwards.
    pub wgrad: Vec<f64>,
    /// Expert traffic, where pairs change what it takes.
    pub traffic: Vec<f64>,
}

impl Blend {
    /// Chains with their weights.
    pub fn of<'a>(stages: usize, chains: impl Iterator<Item = (&'a Path, f64)>) -> Self {
        let none = vec![0.0; stages];
        let mut blend = Self { forward: none.clone(), backward: none.clone(), wgrad: none.clone(), traffic: none };
        for (path, weight) in chains.filter(|(_, weight)| *weight > 0.0) {
            for stage in 0..stages {
                blend.forward[stage] += weight * path.forward[stage];
                blend.backward[stage] += weight * path.backward[stage];
                blend.wgrad[stage] += weight * path.wgrad[stage];
                blend.traffic[stage] += weight * path.traffic[stage];
            }
        }
        blend
    }

    /// What a stage adds, at the least that its mix may take.
    pub fn price(&self, stage: usize, load: &Load) -> f64 {
        self.forward[stage] * load.forward
            + self.backward[stage] * (load.backward - load.slack)
            + self.wgrad[stage] * load.wgrad
            + self.traffic[stage] * load.traffic
    }
}

/// Length of a chain.
pub fn length(path: &Path, loads: &[Load]) -> f64 {
    loads
        .iter()
        .enumerate()
        .map(|(stage, load)| {
            path.forward[stage] * load.forward
                + path.backward[stage] * load.backward
                + path.wgrad[stage] * load.wgrad
                + path.traffic[stage] * load.traffic
        })
        .sum()
}

/// The nearest weights that are not negative and sum to 1.
pub fn project(weights: &mut [f64]) {
    let mut sorted = weights.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut shift) = (0.0, 0.0);
    for (at, weight) in sorted.iter().enumerate() {
        sum += weight;
        let candidate = (sum - 1.0) / (at + 1) as f64;
        if *weight > candidate {
            shift = candidate;
        }
    }
    for weight in weights {
        *weight = (*weight - shift).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projected_weights_are_a_mean() {
        for (from, to) in [
            (vec![0.2, 0.8], vec![0.2, 0.8]),
            (vec![2.0, 0.5, -1.0], vec![1.0, 0.0, 0.0]),
            (vec![1.0, 1.0], vec![0.5, 0.5]),
        ] {
            let mut weights = from;
            project(&mut weights);
            assert!(weights.iter().zip(&to).all(|(a, b)| (a - b).abs() < 1e-12), "{weights:?} {to:?}");
        }
    }
}
