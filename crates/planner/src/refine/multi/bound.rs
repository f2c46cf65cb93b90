//! Lower bound on the pipeline's time where ranks hold several stages.

use super::branch::{BranchAndBound, Budget};
use super::columns::Columns;
use super::coverage::{LayersToPlace, RankCapacity};
use super::shapes::StageShapes;
use crate::refine::edges::StepLine;
use crate::refine::program::StageProgram;
use meshwright_engine::schedule::paths::Path;

/// Step that a lower bound is raised towards.
#[derive(Clone, Copy, Debug)]
pub struct BoundTarget {
    /// Best step so far, in seconds.
    pub incumbent: f64,
    /// Step of a pipeline, a lower bound.
    pub line: StepLine,
    /// Gap to the incumbent, as a share, that does not matter.
    pub tolerance: f64,
}

/// Lower bound on a step, and a search for better splits by the dual.
///
/// Splits found are passed to `simulate`, which returns the updated incumbent. The result is at most the incumbent.
///
/// The bound is the largest of three, each valid for every split that is faster than the incumbent:
///
/// * the busiest rank with every layer under its fastest option ([`busiest`]);
/// * the busiest rank over columns that fit ([`Columns::busiest`]);
/// * the Lagrangian dual, raised by branch and bound ([`BranchAndBound`]).
pub fn lower_bound(
    program: &StageProgram,
    paths: Vec<Path>,
    target: &BoundTarget,
    budget: &mut Budget,
    simulate: &mut dyn FnMut(Vec<usize>) -> f64,
) -> f64 {
    let BoundTarget { incumbent, line, tolerance } = *target;
    let m = program.stager.micro_batches();
    let least = busiest(program);
    let lift = |line: StepLine, pipeline: f64| line.step(pipeline).min(incumbent);
    let target = line.pipeline(incumbent);
    if !target.is_finite() {
        return line.base + line.slope * m * least;
    }
    let ceiling = target / m * (1.0 + 1e-9);
    if least >= ceiling {
        return incumbent;
    }
    let shapes = StageShapes::new(program, ceiling);
    if shapes.is_empty() {
        return incumbent;
    }
    let Some(columns) = Columns::new(program, &shapes, ceiling) else { return lift(line, m * least) };
    let narrow = columns.line(program, &shapes, ceiling, program.sends);
    let line = if narrow.base > line.base { narrow } else { line };
    let enough = tolerance.max(ENOUGH);
    let cutoff = |incumbent: f64| line.pipeline(incumbent * (1.0 - enough));
    let mut simulate = |cuts: Vec<usize>| cutoff(simulate(cuts));
    let tree = BranchAndBound::new(program, &shapes, &columns, paths, cutoff(incumbent));
    let dual = tree.lower_bound(budget, &mut simulate);
    let pipeline = dual.max(m * least).max(m * columns.busiest(program, &shapes));
    lift(line, pipeline)
}

/// Work of all branch-and-bound nodes of a plan, in multiplications: the same on every machine.
pub const MOST_WORK: usize = 2_000_000_000;
/// Gap at which branch and bound stops: to prove more takes longer than it is worth.
pub const ENOUGH: f64 = 9e-3;

/// The least time of the busiest rank over all distributions of the layers over ranks, in any order: each rank takes a
/// number of each kind; its states and what it keeps for its least in-flight chunk must fit.
pub fn busiest(program: &StageProgram) -> f64 {
    let Some(layers) = LayersToPlace::new(program) else { return 0.0 };
    let (all, time) = (&layers.all, &layers.time);
    let whole: f64 = all.iter().zip(time).map(|(&n, t)| n as f64 * t).sum::<f64>() + layers.ends.iter().sum::<f64>();
    let mean = whole / program.ranks as f64;
    let mut low = layers.ends.iter().copied().fold(mean, f64::max);
    if !layers.are_countable() || time[layers.main] <= 0.0 {
        return low;
    }
    let feasible = |ceiling: f64| {
        let ceiling = ceiling * (1.0 + 1e-12);
        layers.covered(ceiling, |rank| capacities_within(&layers, ceiling - layers.ends[rank]))
    };
    if feasible(low) {
        return low;
    }
    // One layer after another on the rank that is least loaded ends by then.
    let longest = all.iter().zip(time).filter(|(n, _)| **n > 0).map(|(_, time)| *time).fold(0.0, f64::max);
    let mut high = low + longest;
    for _ in 0..60 {
        if high - low <= 1e-9 * high {
            break;
        }
        let middle = f64::midpoint(low, high);
        if feasible(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    low
}

/// Capacities of a rank for a time in seconds: every number of layers of the other kinds, with the most of the main
/// kind beside them.
fn capacities_within(layers: &LayersToPlace, within: f64) -> Vec<RankCapacity> {
    let used = |counts: &[usize]| -> f64 {
        counts.iter().zip(&layers.others).map(|(&n, &kind)| n as f64 * layers.time[kind]).sum()
    };
    let mut all: Vec<Vec<usize>> = vec![vec![0; layers.others.len()]];
    for (at, &kind) in layers.others.iter().enumerate() {
        let mut more = Vec::new();
        for counts in &all {
            for n in 0..=layers.all[kind] {
                let mut counts = counts.clone();
                counts[at] = n;
                if used(&counts) > within {
                    break;
                }
                more.push(counts);
            }
        }
        all = more;
    }
    let capacity = |others: Vec<usize>| {
        let main = ((within - used(&others)) / layers.time[layers.main]).floor() as usize;
        RankCapacity { others, main }
    };
    all.into_iter().map(capacity).collect()
}
