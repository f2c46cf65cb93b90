//! Lower bound on the step where ranks hold several stages.

use super::branch::{BranchAndBound, Budget};
use super::columns::Columns;
use super::coverage::{LayersToPlace, RankCapacity};
use super::shapes::StageShapes;
use crate::refine::edges::StepLine;
use crate::refine::program::StageProgram;
use meshwright_engine::schedule::paths::Path;

/// Incumbent, and when to stop raising the bound towards it.
#[derive(Clone, Copy, Debug)]
pub struct BoundTarget {
    /// Best step so far, in seconds.
    pub incumbent: f64,
    /// Lower bound of the step as a function of the time of its pipeline.
    pub line: StepLine,
    /// Optimality gap at which the bound suffices, as a share of the incumbent.
    pub tolerance: f64,
}

/// Lower bound on the step in seconds, at most the incumbent. Splits that minimise the dual are passed to `simulate` as cuts, which
/// returns the updated incumbent.
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

/// Most work of branch and bound for one plan, in multiplications, which are the same on every machine.
pub const MOST_WORK: usize = 2_000_000_000;
/// Optimality gap at which branch and bound stops: 0.9 %. To prove more takes longer than it is worth (docs/refine.md).
pub const ENOUGH: f64 = 9e-3;

/// Least time of the busiest rank for one micro-batch, in seconds, over all distributions of layers over ranks in any order.
/// A rank takes a number of layers of each kind; their states must fit, with activations as in its chunk with the fewest
/// micro-batches in flight. Found by bisection.
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
    // List scheduling, each layer on the rank that is least loaded so far, takes no longer.
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

/// Capacities of a rank within a time in seconds: for every number of layers of the other kinds, the most of the main kind.
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
