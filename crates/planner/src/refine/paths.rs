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
    /// Expert traffic, where pairs change its time.
    pub traffic: Vec<f64>,
}

impl PathWeights {
    /// No visits to any of `stages` stages.
    fn none(stages: usize) -> Self {
        let none = vec![0.0; stages];
        Self { forward: none.clone(), backward: none.clone(), wgrad: none.clone(), traffic: none }
    }

    /// Mean of paths with these weights.
    pub fn of<'a>(stages: usize, paths: impl Iterator<Item = (&'a Path, f64)>) -> Self {
        let mut weighted = Self::none(stages);
        for (path, weight) in paths.filter(|(_, weight)| *weight > 0.0) {
            weighted.add_passes(path, weight);
            weighted.add_others(path, weight);
        }
        weighted
    }

    /// Adds the forwards and backwards of a path with a weight.
    fn add_passes(&mut self, path: &Path, weight: f64) {
        add_weighted(&mut self.forward, &path.forward, weight);
        add_weighted(&mut self.backward, &path.backward, weight);
    }

    /// Adds the weight gradients and expert traffic of a path with a weight.
    fn add_others(&mut self, path: &Path, weight: f64) {
        add_weighted(&mut self.wgrad, &path.wgrad, weight);
        add_weighted(&mut self.traffic, &path.traffic, weight);
    }

    /// Length that a stage adds, a lower bound where its frontier was thinned.
    pub fn length_of(&self, stage: usize, load: &StageLoad) -> f64 {
        self.forward[stage] * load.forward
            + self.backward[stage] * (load.backward - load.slack)
            + self.wgrad[stage] * load.wgrad
            + self.traffic[stage] * load.traffic
    }
}

/// Adds the visits of a path to each stage with a weight.
fn add_weighted(sums: &mut [f64], visits: &[f64], weight: f64) {
    for (sum, visits) in sums.iter_mut().zip(visits) {
        *sum += weight * visits;
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

/// Visits of a path to a stage, but for forwards and backwards.
#[derive(Clone, Copy, Debug)]
struct OtherVisits {
    /// Weight gradients.
    wgrad: f64,
    /// Expert traffic.
    traffic: f64,
}

/// Dependency paths with their visits stage by stage: those of all paths to a stage lie together, for all lengths to be
/// summed at once.
pub struct PathTable {
    /// The paths.
    pub paths: Vec<Path>,
    /// Forwards of each path, for each stage.
    forward: Vec<Vec<f64>>,
    /// Backwards of each path, for each stage.
    backward: Vec<Vec<f64>>,
    /// Other visits of each path, for each stage; empty where no path has any.
    others: Vec<Vec<OtherVisits>>,
}

impl PathTable {
    /// Table of paths through a pipeline of `stages` stages.
    pub fn new(stages: usize, paths: Vec<Path>) -> Self {
        let by_stage = |of: fn(&Path) -> &[f64]| -> Vec<Vec<f64>> {
            (0..stages).map(|stage| paths.iter().map(|path| of(path)[stage]).collect()).collect()
        };
        let (wgrad, traffic) = (by_stage(|path| &path.wgrad), by_stage(|path| &path.traffic));
        let has_others = wgrad.iter().chain(&traffic).flatten().any(|visits| *visits != 0.0);
        let pairs = |(wgrad, traffic): (Vec<f64>, Vec<f64>)| {
            wgrad.into_iter().zip(traffic).map(|(wgrad, traffic)| OtherVisits { wgrad, traffic }).collect()
        };
        Self {
            forward: by_stage(|path| &path.forward),
            backward: by_stage(|path| &path.backward),
            others: if has_others { wgrad.into_iter().zip(traffic).map(pairs).collect() } else { Vec::new() },
            paths,
        }
    }

    /// Number of pairs of a path and a stage.
    pub const fn len(&self) -> usize {
        self.paths.len() * self.forward.len()
    }

    /// Length of each path, in seconds.
    pub fn lengths(&self, loads: &[StageLoad]) -> Vec<f64> {
        let mut lengths = vec![0.0; self.paths.len()];
        for (stage, (load, passes)) in loads.iter().zip(self.forward.iter().zip(&self.backward)).enumerate() {
            let StageLoad { forward, backward, wgrad, traffic, .. } = *load;
            let visits = lengths.iter_mut().zip(passes.0).zip(passes.1);
            if let Some(others) = self.others.get(stage) {
                for (((length, forwards), backwards), others) in visits.zip(others) {
                    *length +=
                        forwards * forward + backwards * backward + others.wgrad * wgrad + others.traffic * traffic;
                }
            } else {
                for ((length, forwards), backwards) in visits {
                    *length += forwards * forward + backwards * backward;
                }
            }
        }
        lengths
    }

    /// Mean of the paths with these weights.
    pub fn mean(&self, weights: &[f64]) -> PathWeights {
        let mut mean = PathWeights::none(self.forward.len());
        for (path, &weight) in self.paths.iter().zip(weights).filter(|(_, weight)| **weight > 0.0) {
            mean.add_passes(path, weight);
            if !self.others.is_empty() {
                mean.add_others(path, weight);
            }
        }
        mean
    }
}

/// Rounds in which a projection leaves out weights that become zero.
const NARROWINGS: usize = 3;
/// Relative error of a shift there, far above rounding: weights that are so near to it are sorted.
const NARROWING_ERROR: f64 = 1e-6;

/// Euclidean projection on the simplex: the nearest weights that are not negative and sum to 1.
pub fn project(weights: &mut [f64]) {
    // Sorted are those alone that may stay: the shift is at least that under which all weights together sum to 1, and so on for
    // those that are left.
    let mut sorted = weights.to_vec();
    for _ in 0..NARROWINGS {
        let least = (sorted.iter().sum::<f64>() - 1.0) / sorted.len() as f64;
        sorted.retain(|weight| *weight >= least - NARROWING_ERROR * (1.0 + least.abs()));
    }
    sorted.sort_by(f64::total_cmp);
    sorted.reverse();
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
    let factors = program.stager.pairs().on_average();
    Path {
        forward: times(factors.passes),
        backward: times(factors.passes),
        traffic: times(factors.traffic),
        ..Path::empty(rank as u32, program.chunks)
    }
}

/// Dependency paths of the schedule; all work of each rank where it has no list of operations.
pub fn dependency_paths(program: &StageProgram) -> Vec<Path> {
    let plan = program.stager.plan();
    if program.is_closed() || plan.schedule.is_bidirectional() {
        (0..program.ranks).map(|rank| rank_path(program, rank)).collect()
    } else {
        paths::paths(plan.pipeline(), program.stager.micro_batches() as u32)
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
    use meshwright_engine::schedule::Schedule;

    /// Numbers between −1 and 2, some of them zero.
    fn numbers(count: u64, seed: u64) -> Vec<f64> {
        let number = |at: u64| {
            let bits = (at + seed * 977).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            if bits.is_multiple_of(3) { 0.0 } else { bits as f64 / f64::from(1 << 24) * 3.0 - 1.0 }
        };
        (0..count).map(number).collect()
    }

    /// Only weights that stay are sorted; the projection is that of all of them sorted.
    #[test]
    fn weights_left_out_of_a_projection_change_nothing() {
        for (count, seed) in (1..80).zip(0..) {
            let weights = numbers(count, seed);
            let mut sorted = weights.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let (mut sum, mut shift) = (0.0, 0.0);
            for (at, weight) in sorted.iter().enumerate() {
                sum += weight;
                let candidate = (sum - 1.0) / (at + 1) as f64;
                shift = if *weight > candidate { candidate } else { shift };
            }
            let plain: Vec<f64> = weights.iter().map(|weight| (weight - shift).max(0.0)).collect();
            let mut projected = weights;
            project(&mut projected);
            assert_eq!(projected, plain, "{count} {seed}");
        }
    }

    /// Lengths and means of the table are those of each path by itself, bit for bit.
    #[test]
    fn the_table_of_paths_agrees_with_each_path() {
        for schedule in [Schedule::OneFOneB, Schedule::GPipe, Schedule::ZbH1] {
            let stages = 6;
            let paths = paths::paths(schedule.on(6), 24);
            let table = PathTable::new(stages, paths.clone());
            let load = |seed: u64| {
                let [forward, backward, wgrad, traffic] = numbers(4, seed)[..] else {
                    unreachable!("four were asked for")
                };
                let parts = [forward, backward, wgrad, traffic].map(f64::abs);
                StageLoad {
                    forward: parts[0],
                    backward: parts[1],
                    wgrad: parts[2],
                    traffic: parts[3],
                    slack: 0.0,
                    ..StageLoad::default()
                }
            };
            let loads: Vec<StageLoad> = (1..=stages as u64).map(load).collect();
            let each: Vec<f64> = paths.iter().map(|path| length(path, &loads)).collect();
            assert_eq!(table.lengths(&loads), each, "{schedule:?}");
            let weights = numbers(paths.len() as u64, 5);
            let mean = PathWeights::of(stages, paths.iter().zip(weights.iter().copied()));
            assert_eq!(table.mean(&weights), mean, "{schedule:?}");
        }
    }

    #[test]
    fn projected_weights_are_a_mean() {
        for (from, to) in [
            (vec![0.2, 0.8], vec![0.2, 0.8]),
            (vec![2.0, 0.5, -1.0], vec![1.0, 0.0, 0.0]),
            (vec![1.0, 1.0], vec![0.5, 0.5]),
            (vec![0.1, 0.9, 0.7, -3.0, 0.0, 0.1, 0.05], vec![0.0, 0.6, 0.4, 0.0, 0.0, 0.0, 0.0]),
        ] {
            let mut weights = from;
            project(&mut weights);
            assert!(weights.iter().zip(&to).all(|(a, b)| (a - b).abs() < 1e-12), "{weights:?} {to:?}");
        }
    }
}
