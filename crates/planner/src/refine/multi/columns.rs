//! Columns of a rank: layers for each of its stages and a recomputation with which they fit, as in Dantzig and Wolfe's
//! decomposition.

use std::ops::{Add, Range};

use super::coverage::{LayersToPlace, RankCapacity};
use super::recomputation::{ExtraTime, Recomputations};
use super::shapes::StageShapes;
use crate::refine::edges::{Edges, StepLine};
use crate::refine::program::StageProgram;
use crate::refine::split::{StageParameters, StageSeconds};

/// Most columns of all ranks together.
const MOST: usize = 30_000;
/// Most stages of a rank: with more, there are too many columns to list.
const MOST_OF_RANK: usize = 4;

/// Columns of all ranks under a ceiling on the time of a rank.
pub struct Columns {
    /// Columns of each rank.
    pub ranks: Vec<RankColumns>,
}

/// Columns of one rank, in arrays with one column after another.
pub struct RankColumns {
    /// Its stages.
    pub chunks: Vec<usize>,
    /// Time of each column for one micro-batch, a lower bound.
    pub time: Vec<f64>,
    /// Whether the columns are complete: else convex combinations stand for recomputations that are not listed.
    pub listed: bool,
    /// Shape of each stage.
    shapes: Vec<usize>,
    /// Forwards of all stages, then backwards, weight gradients and expert traffic, seconds.
    times: Vec<f64>,
    /// Recomputation that is not placed on a stage, seconds.
    unplaced: Vec<f64>,
    /// Layers by kind.
    kinds: Vec<u32>,
}

impl RankColumns {
    /// Number of columns.
    pub fn len(&self) -> usize {
        self.time.len()
    }
    /// Shapes of a column's stages.
    pub fn shapes(&self, column: usize) -> &[usize] {
        &self.shapes[column * self.chunks.len()..(column + 1) * self.chunks.len()]
    }
    /// Times of a column: forwards of all stages, then backwards, weight gradients and expert traffic.
    pub fn times(&self, column: usize) -> &[f64] {
        let width = 4 * self.chunks.len();
        &self.times[column * width..(column + 1) * width]
    }
    /// Recomputation of a column that is not placed on a stage.
    pub fn unplaced(&self, column: usize) -> f64 {
        self.unplaced[column]
    }
    /// Layers by kind.
    pub fn kinds(&self, column: usize) -> &[u32] {
        let width = self.kinds.len() / self.len();
        &self.kinds[column * width..(column + 1) * width]
    }
    /// Layers of each stage.
    pub fn sizes(&self, column: usize, stages: &StageShapes) -> Vec<u32> {
        self.shapes(column).iter().map(|&shape| stages.shapes()[shape].counts.iter().sum()).collect()
    }

    fn push(&mut self, program: &StageProgram, stages: &StageShapes, shapes: &[usize], extra: &ExtraTime) {
        let time_of = |(&chunk, &shape): (&usize, &usize)| {
            let Range { start, end } = stages.shapes()[shape].items;
            program.times(chunk, start, end)
        };
        let stage_times: Vec<StageSeconds> = self.chunks.iter().zip(shapes).map(time_of).collect();
        self.times.extend(stage_times.iter().map(|time| time.forward));
        self.times.extend(stage_times.iter().zip(&extra.of_stage).map(|(time, extra)| time.backward + extra));
        self.times.extend(stage_times.iter().map(|time| time.wgrad));
        self.times.extend(stage_times.iter().map(|time| time.traffic));
        let base: f64 = stage_times.iter().map(|time| program.busy(*time)).sum();
        let extra_time = extra.of_stage.iter().sum::<f64>() + extra.unplaced;
        self.time.push(base + program.slower() * extra_time);
        self.unplaced.push(extra.unplaced);
        self.shapes.extend(shapes);
        let kinds = program.layer_kinds();
        let counts =
            (0..kinds).map(|kind| shapes.iter().map(|&shape| stages.shapes()[shape].counts[kind]).sum::<u32>());
        self.kinds.extend(counts);
    }
}

impl Columns {
    /// Every column that fits and whose time is within `ceiling`. `None` where they are too many.
    pub fn new(program: &StageProgram, stages: &StageShapes, ceiling: f64) -> Option<Self> {
        if program.chunks > MOST_OF_RANK * program.ranks {
            return None;
        }
        let mut recomputations = Recomputations::new(program, stages);
        let mut left = MOST;
        let mut ranks = Vec::with_capacity(program.ranks);
        for rank in 0..program.ranks {
            let chunks: Vec<usize> = (0..program.chunks).filter(|&chunk| program.rank_of(chunk) == rank).collect();
            let timed_shapes = |&chunk: &usize| -> Vec<TimedShape> {
                let timed = |shape: usize| {
                    let Range { start, end } = stages.shapes()[shape].items;
                    TimedShape { shape, time: program.fastest(chunk, start, end).busy }
                };
                stages.shapes_of(chunk).into_iter().map(timed).collect()
            };
            let of_chunk: Vec<Vec<TimedShape>> = chunks.iter().map(timed_shapes).collect();
            let mut of_rank = RankColumns {
                chunks,
                time: Vec::new(),
                listed: true,
                shapes: Vec::new(),
                times: Vec::new(),
                unplaced: Vec::new(),
                kinds: Vec::new(),
            };
            let least_time = |shapes: &Vec<TimedShape>| shapes.iter().map(|of| of.time).fold(f64::INFINITY, f64::min);
            let least: Vec<f64> = of_chunk.iter().map(least_time).collect();
            let combinations =
                Combinations { of_chunk: &of_chunk, least: &least, ceiling, most: left, found: Vec::new() };
            for Combination { shapes, time } in combinations.within_ceiling()? {
                let most = (ceiling - time) / program.slower();
                let (extras, all) = recomputations.of_shapes(rank, &of_rank.chunks, &shapes, most);
                of_rank.listed &= all;
                for extra in extras {
                    of_rank.push(program, stages, &shapes, &extra);
                }
            }
            left = left.checked_sub(of_rank.time.len())?;
            ranks.push(of_rank);
        }
        Some(Self { ranks })
    }

    /// Least time of the busiest rank over all choices of one column a rank that hold every layer, in any order.
    pub fn busiest(&self, program: &StageProgram, stages: &StageShapes) -> f64 {
        let mut times: Vec<f64> = self.ranks.iter().flat_map(|rank| rank.time.iter().copied()).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let Some(layers) = LayersToPlace::new(program).filter(LayersToPlace::are_countable) else { return 0.0 };
        let fits = |ceiling: f64| {
            let capacities = |rank: usize| {
                let of_rank = &self.ranks[rank];
                let sets = (0..of_rank.time.len()).filter(|&set| of_rank.time[set] <= ceiling);
                let capacity = |set: usize| {
                    let sum = |kind: usize| {
                        let counts = of_rank.shapes(set).iter().map(|&shape| stages.shapes()[shape].counts[kind]);
                        counts.sum::<u32>() as usize
                    };
                    RankCapacity {
                        others: layers.others.iter().map(|&kind| sum(kind)).collect(),
                        main: sum(layers.main),
                    }
                };
                sets.map(capacity).collect()
            };
            layers.covered(ceiling, capacities)
        };
        let at = times.partition_point(|&time| !fits(time));
        times.get(at).copied().unwrap_or(f64::INFINITY)
    }

    /// Lower bound of the step as a function of the pipeline's time: some rank holds at least the
    /// mean parameters, as one of these columns does, and nothing hides behind more than a rank takes.
    pub fn line(&self, program: &StageProgram, stages: &StageShapes, ceiling: f64, sends: f64) -> StepLine {
        let times = |chunk: usize, shape: usize| {
            let Range { start, end } = stages.shapes()[shape].items;
            (program.times(chunk, start, end), program.parameters(chunk, start, end))
        };
        let all = (0..program.chunks)
            .map(|chunk| program.parameters(chunk, 0, if chunk == 0 { program.len() } else { 0 }))
            .fold(StageParameters::default(), Add::add);
        let mean = all.total() / program.ranks as f64 * (1.0 - 1e-12);
        let (mut longest_forward, mut longest_backward) = (0.0_f64, 0.0_f64);
        let mut heavy: Vec<StageParameters> = Vec::new();
        for of_rank in &self.ranks {
            for set in 0..of_rank.time.len() {
                let (mut forward, mut resident) = (0.0, StageParameters::default());
                for (&chunk, &shape) in of_rank.chunks.iter().zip(of_rank.shapes(set)) {
                    let (time, parameters) = times(chunk, shape);
                    forward += time.forward - time.traffic / 2.0;
                    resident = resident + parameters;
                }
                longest_forward = longest_forward.max(forward);
                longest_backward = longest_backward.max(ceiling - forward);
                if resident.total() >= mean && !heavy.contains(&resident) {
                    heavy.push(resident);
                }
            }
        }
        let (forward, backward) = (longest_forward / program.share, longest_backward / program.share);
        let lines = heavy
            .into_iter()
            .map(|StageParameters { dense, experts }| Edges { dense, experts, forward, backward }.line(program, sends));
        lines.reduce(|a, b| if b.base < a.base { b } else { a }).unwrap_or(StepLine { base: f64::INFINITY, slope: 1.0 })
    }
}

/// Shape that a stage may have, with its time.
#[derive(Clone, Copy, Debug)]
struct TimedShape {
    /// Index of the shape.
    shape: usize,
    /// Time of the stage under its fastest options for one micro-batch, seconds.
    time: f64,
}

/// Shape for each stage of a rank.
struct Combination {
    /// Indices of the shapes, stage by stage.
    shapes: Vec<usize>,
    /// Time of all stages under their fastest options for one micro-batch, seconds.
    time: f64,
}

/// Enumeration of the combinations of a shape for each stage of a rank.
struct Combinations<'c> {
    /// Shapes of each stage.
    of_chunk: &'c [Vec<TimedShape>],
    /// Least of those times, by stage.
    least: &'c [f64],
    /// Largest time of all stages together.
    ceiling: f64,
    /// Largest number of combinations.
    most: usize,
    /// Complete combinations.
    found: Vec<Combination>,
}

impl Combinations<'_> {
    /// Every combination whose fastest times are within the ceiling. `None` where there are too many.
    fn within_ceiling(mut self) -> Option<Vec<Combination>> {
        self.extend(&mut Vec::new(), 0.0)?;
        Some(self.found)
    }

    /// Adds every combination that begins with the `chosen` shapes, which take `time`.
    fn extend(&mut self, chosen: &mut Vec<usize>, time: f64) -> Option<()> {
        let at = chosen.len();
        if at == self.of_chunk.len() {
            self.found.push(Combination { shapes: chosen.clone(), time });
            return (self.found.len() <= self.most).then_some(());
        }
        let behind: f64 = self.least[at + 1..].iter().sum();
        for &TimedShape { shape, time: own } in &self.of_chunk[at] {
            if time + own + behind <= self.ceiling {
                chosen.push(shape);
                self.extend(chosen, time + own)?;
                chosen.pop();
            }
        }
        Some(())
    }
}
