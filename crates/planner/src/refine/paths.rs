//! Dependency paths of a schedule: the longest is a lower bound on the pipeline's time, and so is every weighted mean.

use super::program::StageProgram;
use super::split::StageLoad;
use meshwright_engine::schedule::paths;
use meshwright_engine::schedule::paths::{Pairing, Path};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::units::Seconds;

/// Weighted mean of dependency paths: the weight of a second of each stage's passes.
///
/// ```text
/// length = Σ_S φ_S·F_S + β_S·B_S + ω_S·W_S + ε_S·E_S
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PathWeights {
    /// Forward of each stage.
    pub forward: Vec<f64>,
    /// Backward with weight gradients.
    pub backward: Vec<f64>,
    /// Weight gradients beyond those of the backwards.
    pub wgrad: Vec<f64>,
    /// Expert traffic, where pairs change what it takes.
    pub traffic: Vec<f64>,
}

impl PathWeights {
    /// Mean of paths with these weights.
    pub fn of<'a>(stages: usize, paths: impl Iterator<Item = (&'a Path, f64)>) -> Self {
        let none = vec![0.0; stages];
        let mut weighted = Self { forward: none.clone(), backward: none.clone(), wgrad: none.clone(), traffic: none };
        for (path, weight) in paths.filter(|(_, weight)| *weight > 0.0) {
            for stage in 0..stages {
                weighted.forward[stage] += weight * path.forward[stage];
                weighted.backward[stage] += weight * path.backward[stage];
                weighted.wgrad[stage] += weight * path.wgrad[stage];
                weighted.traffic[stage] += weight * path.traffic[stage];
            }
        }
        weighted
    }

    /// Length that a stage adds, a lower bound where its frontier was thinned.
    pub fn length_of(&self, stage: usize, load: &StageLoad) -> f64 {
        self.forward[stage] * load.forward
            + self.backward[stage] * (load.backward - load.slack)
            + self.wgrad[stage] * load.wgrad
            + self.traffic[stage] * load.traffic
    }
}

/// Length of a dependency path, in seconds.
pub fn length(path: &Path, loads: &[StageLoad]) -> f64 {
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

/// Euclidean projection on the simplex: the nearest weights that are not negative and sum to 1.
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

/// All work of one rank, as a path.
fn rank_path(program: &StageProgram, rank: usize) -> Path {
    let m = program.stager.micro_batches();
    let here: Vec<f64> =
        (0..program.chunks).map(|chunk| if program.rank_of(chunk) == rank { m } else { 0.0 }).collect();
    let times = |factor: f64| here.iter().map(|here| here * factor).collect::<Vec<f64>>();
    let (passes, traffic) = program.stager.pairs().on_average();
    Path {
        forward: times(passes),
        backward: times(passes),
        traffic: times(traffic),
        ..Path::empty(rank as u32, program.chunks)
    }
}

/// Dependency paths of the schedule; all work of each rank where it has no list of operations.
pub fn dependency_paths(program: &StageProgram) -> Vec<Path> {
    let plan = program.stager.plan();
    if program.is_closed() || plan.schedule.is_bidirectional() {
        (0..program.ranks).map(|rank| rank_path(program, rank)).collect()
    } else {
        paths::paths(plan.schedule, plan.layout.pp, program.stager.micro_batches() as u32)
    }
}

/// Stages as the simulator takes them; a pair of passes counts its lower bound.
pub fn stage_times(Pairing { slower, traffic }: Pairing, loads: &[StageLoad]) -> Vec<StageTime> {
    let s = Seconds::new;
    let time = |(load, other): (&StageLoad, &StageLoad)| StageTime {
        forward: s(load.forward),
        backward: s(load.backward),
        wgrad: s(load.wgrad),
        paired: s(slower * (load.forward + other.backward) + traffic * (load.traffic + other.traffic)),
    };
    loads.iter().zip(loads.iter().rev()).map(time).collect()
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
