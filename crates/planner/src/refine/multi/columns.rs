//! Columns of a rank: layers for each of its stages and a recomputation with which they fit, as in Dantzig and Wolfe's decomposition.

use super::coverage::{LayersToPlace, RankCapacity};
use super::recomputation::{ExtraTime, Recomputations};
use super::shapes::StageShapes;
use crate::refine::edges::{Edges, StepLine};
use crate::refine::program::StageProgram;
use crate::refine::split::StageSeconds;

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
        let items_of = |shape: usize| stages.shapes()[shape].items;
        let of: Vec<StageSeconds> = self
            .chunks
            .iter()
            .zip(shapes)
            .map(|(&chunk, &shape)| program.times(chunk, items_of(shape).0, items_of(shape).1))
            .collect();
        self.times.extend(of.iter().map(|time| time.forward));
        self.times.extend(of.iter().zip(&extra.of_stage).map(|(time, extra)| time.backward + extra));
        self.times.extend(of.iter().map(|time| time.wgrad));
        self.times.extend(of.iter().map(|time| time.traffic));
        let base: f64 = of.iter().map(|time| program.busy(*time)).sum();
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
            let of_chunk: Vec<Vec<(usize, f64)>> = chunks
                .iter()
                .map(|&chunk| {
                    let time = |shape: usize| {
                        let (a, b) = stages.shapes()[shape].items;
                        program.fastest(chunk, a, b).busy
                    };
                    stages.shapes_of(chunk).into_iter().map(|shape| (shape, time(shape))).collect()
                })
                .collect();
            let mut of_rank = RankColumns {
                chunks,
                time: Vec::new(),
                listed: true,
                shapes: Vec::new(),
                times: Vec::new(),
                unplaced: Vec::new(),
                kinds: Vec::new(),
            };
            let least: Vec<f64> =
                of_chunk.iter().map(|list| list.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min)).collect();
            let combinations =
                Combinations { of_chunk: &of_chunk, least: &least, ceiling, most: left, found: Vec::new() };
            for (shapes, time) in combinations.within_ceiling()? {
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
            let (a, b) = stages.shapes()[shape].items;
            (program.times(chunk, a, b), program.parameters(chunk, a, b))
        };
        let [dense, experts] = (0..program.chunks)
            .map(|chunk| program.parameters(chunk, 0, if chunk == 0 { program.len() } else { 0 }))
            .fold([0.0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        let mean = (dense + experts) / program.ranks as f64 * (1.0 - 1e-12);
        let (mut longest, mut held) = ([0.0_f64; 2], Vec::<[f64; 2]>::new());
        for of_rank in &self.ranks {
            for set in 0..of_rank.time.len() {
                let (mut forward, mut own) = (0.0, [0.0; 2]);
                for (&chunk, &shape) in of_rank.chunks.iter().zip(of_rank.shapes(set)) {
                    let (time, parameters) = times(chunk, shape);
                    forward += time.forward - time.traffic / 2.0;
                    own = [own[0] + parameters[0], own[1] + parameters[1]];
                }
                longest = [longest[0].max(forward), longest[1].max(ceiling - forward)];
                if own[0] + own[1] >= mean && !held.contains(&own) {
                    held.push(own);
                }
            }
        }
        let lines = held.into_iter().map(|[dense, experts]| {
            let [forward, backward] = longest.map(|time| time / program.share);
            Edges { dense, experts, forward, backward }.line(program, sends)
        });
        lines.reduce(|a, b| if b.base < a.base { b } else { a }).unwrap_or(StepLine { base: f64::INFINITY, slope: 1.0 })
    }
}

/// Enumeration of the combinations of a shape for each stage of a rank.
struct Combinations<'c> {
    /// Shapes of each stage, with the fastest time of each.
    of_chunk: &'c [Vec<(usize, f64)>],
    /// Least of those times, by stage.
    least: &'c [f64],
    /// Largest time of all stages together.
    ceiling: f64,
    /// Largest number of combinations.
    most: usize,
    /// Those that are complete, with the time of their stages.
    found: Vec<(Vec<usize>, f64)>,
}

impl Combinations<'_> {
    /// Every combination whose fastest times are within the ceiling. `None` where there are too many.
    fn within_ceiling(mut self) -> Option<Vec<(Vec<usize>, f64)>> {
        self.extend(&mut Vec::new(), 0.0)?;
        Some(self.found)
    }

    /// Adds every combination that begins with the `chosen` shapes, which take `time`.
    fn extend(&mut self, chosen: &mut Vec<usize>, time: f64) -> Option<()> {
        let at = chosen.len();
        if at == self.of_chunk.len() {
            self.found.push((chosen.clone(), time));
            return (self.found.len() <= self.most).then_some(());
        }
        let behind: f64 = self.least[at + 1..].iter().sum();
        for &(shape, own) in &self.of_chunk[at] {
            if time + own + behind <= self.ceiling {
                chosen.push(shape);
                self.extend(chosen, time + own)?;
                chosen.pop();
            }
        }
        Some(())
    }
}
