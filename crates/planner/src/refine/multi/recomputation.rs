//! Least recomputation with which a rank's stages fit its memory.

use std::ops::Range;

use super::shapes::StageShapes;
use crate::refine::program::StageProgram;
use meshwright_engine::ascending::sort_by_numbers;

/// Time that a rank's recomputation adds to its fastest mixes, in seconds of backward for one micro-batch.
pub struct ExtraTime {
    /// Time that is added to each of its stages.
    pub of_stage: Vec<f64>,
    /// Lower bound of a sum over the stages that is not placed on any of them.
    pub unplaced: f64,
}

/// Most undominated pairs of recomputations that are all listed; of more, only the lower hull.
const MOST_LISTED: usize = 24;

/// Undominated mixes of recomputation of one shape whose recomputed layers need no more than a working set.
pub struct MixStairs {
    /// Largest working set of a recomputed layer, in bytes.
    working_set: f64,
    /// Its mixes, the fastest first.
    steps: Vec<MixStep>,
}

/// Mix of recomputation of some layers, for one micro-batch.
#[derive(Clone, Copy, Debug)]
struct MixStep {
    /// Time beyond that of the fastest mix, in seconds.
    extra: f64,
    /// Kept activations in bytes.
    kept: f64,
}

/// Recomputations of ranks by the shapes of their stages, with the mixes of each shape computed once.
pub struct Recomputations<'a> {
    program: &'a StageProgram<'a>,
    stages: &'a StageShapes,
    /// Mixes of the layers of each shape, computed on first use.
    mixes: Vec<Option<Vec<MixStairs>>>,
}

impl<'a> Recomputations<'a> {
    /// Recomputations of no shape yet.
    pub fn new(program: &'a StageProgram<'a>, stages: &'a StageShapes) -> Self {
        let mut mixes = Vec::new();
        mixes.resize_with(stages.shapes().len(), || None);
        Self { program, stages, mixes }
    }

    /// Recomputations with which `shapes`, one for each of the `chunks` of a rank, fit the rank, none over `ceiling`,
    /// and whether they are complete.
    ///
    /// One of two stages: every undominated pair, or the vertices of its lower hull where there are many. Of more: one entry, the
    /// largest over the moments of memory of the linear relaxation. Empty where the shapes do not fit.
    pub fn of_shapes(
        &mut self,
        rank: usize,
        chunks: &[usize],
        shapes: &[usize],
        ceiling: f64,
    ) -> (Vec<ExtraTime>, bool) {
        let (program, stages) = (self.program, self.stages);
        let items_of = |shape: usize| &stages.shapes()[shape].items;
        let loads = || {
            let load = |(&chunk, &shape): (&usize, &usize)| {
                let items = items_of(shape);
                program.fastest(chunk, items.start, items.end)
            };
            chunks.iter().zip(shapes).map(load)
        };
        let states_of = |items: &Range<usize>| program.states(items.start, items.end);
        let states: f64 = shapes.iter().map(|&shape| states_of(items_of(shape))).sum();
        let room = program.room[rank] - states;
        let working_set = loads().map(|load| load.working_set).fold(0.0, f64::max);
        let weights =
            |moment: &[f64]| -> Vec<f64> { chunks.iter().map(|&chunk| moment[chunk / program.ranks]).collect() };
        let tight: Vec<Vec<f64>> = program.stager.peak_moments()[rank]
            .iter()
            .map(|moment| weights(moment))
            .filter(|weights| {
                loads().zip(weights).map(|(load, weight)| load.kept * weight).sum::<f64>() + working_set > room
            })
            .collect();
        let none = vec![0.0; chunks.len()];
        if tight.is_empty() {
            return (vec![ExtraTime { of_stage: none, unplaced: 0.0 }], true);
        }
        for (&chunk, &shape) in chunks.iter().zip(shapes) {
            if self.mixes[shape].is_none() {
                self.mixes[shape] = Some(mix_stairs(program, chunk, items_of(shape)));
            }
        }
        let stairs: Vec<&[MixStairs]> = shapes.iter().filter_map(|&shape| self.mixes[shape].as_deref()).collect();
        let slack = |(&chunk, &shape): (&usize, &usize)| {
            let items = items_of(shape);
            program.frontier(chunk, items.start, items.end).slack
        };
        let slack: Vec<f64> = chunks.iter().zip(shapes).map(slack).collect();
        let levels = Levels::new(&stairs);
        if shapes.len() == 2 {
            return listed_pairs(&levels, &tight, room, [slack[0], slack[1]], ceiling);
        }
        let unplaced = (least_sum(&levels, &tight, room) - slack.iter().sum::<f64>()).max(0.0);
        let listed = if unplaced > ceiling { Vec::new() } else { vec![ExtraTime { of_stage: none, unplaced }] };
        (listed, false)
    }
}

/// Stairs of a rank's stages, by the largest working set that their recomputed layers may need.
struct Levels<'a> {
    stairs: &'a [&'a [MixStairs]],
    /// Working sets in bytes, ascending.
    working_sets: Vec<f64>,
}

impl<'a> Levels<'a> {
    fn new(stairs: &'a [&'a [MixStairs]]) -> Self {
        let mut working_sets: Vec<f64> = stairs.iter().flat_map(|list| list.iter().map(|s| s.working_set)).collect();
        working_sets.sort_by(f64::total_cmp);
        working_sets.dedup();
        Self { stairs, working_sets }
    }

    /// Each working set with the steps that it allows each stage; those that leave a stage without any are left out.
    fn iter(&self) -> impl Iterator<Item = (f64, Vec<&'a [MixStep]>)> {
        let steps = |level: f64, list: &&'a [MixStairs]| {
            list.iter().rev().find(|stairs| stairs.working_set <= level).map(|stairs| stairs.steps.as_slice())
        };
        self.working_sets.iter().filter_map(move |&level| {
            Some((level, self.stairs.iter().map(|list| steps(level, list)).collect::<Option<_>>()?))
        })
    }
}

/// Undominated pairs of extra times of two stages that fit together, none over `ceiling` in sum, and whether all are listed; where
/// they are many, the vertices of their lower hull. `slack` is the time that each stage has to spare.
fn listed_pairs(
    levels: &Levels,
    moments: &[Vec<f64>],
    room: f64,
    slack: [f64; 2],
    ceiling: f64,
) -> (Vec<ExtraTime>, bool) {
    let mut all: Vec<Point> = Vec::new();
    for (level, lists) in levels.iter() {
        fitting_pairs(lists[0], lists[1], moments, room - level, &mut all);
    }
    let beyond_slack = |extra: f64, at: usize| (extra - slack[at]).max(0.0);
    let all = all.into_iter().map(|Point { x, y }| Point { x: beyond_slack(x, 0), y: beyond_slack(y, 1) });
    let all = undominated(all.filter(|Point { x, y }| x + y <= ceiling).collect());
    let all_listed = all.len() <= MOST_LISTED;
    let listed = if all_listed { all } else { lower_hull(all) };
    let extra = |Point { x, y }| ExtraTime { of_stage: vec![x, y], unplaced: 0.0 };
    (listed.into_iter().map(extra).collect(), all_listed)
}

/// Lower bound of the sum of a rank's extra times: the largest over the moments of memory, each at its best working set.
fn least_sum(levels: &Levels, moments: &[Vec<f64>], room: f64) -> f64 {
    moments.iter().fold(0.0, |most: f64, weights| {
        let sums = levels.iter().filter_map(|(level, lists)| least_extra(&lists, weights, room - level));
        most.max(sums.fold(f64::INFINITY, f64::min))
    })
}

/// Adds to `all` the extra times of pairs of steps, one of each list, that fit at every moment: for each step of the first list the
/// fastest of the second.
fn fitting_pairs(first: &[MixStep], second: &[MixStep], moments: &[Vec<f64>], room: f64, all: &mut Vec<Point>) {
    // As the first is slower and smaller, the second may be faster and larger.
    let mut at = second.len();
    for step in first {
        let fits = |other: &MixStep| moments.iter().all(|w| step.kept * w[0] + other.kept * w[1] <= room);
        while at > 0 && fits(&second[at - 1]) {
            at -= 1;
        }
        if let Some(other) = second.get(at) {
            all.push(Point { x: step.extra, y: other.extra });
        }
    }
}

/// Two quantities of which less is better: the extra times of two stages in seconds, or a stage's extra time and its kept bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

/// Points that no other is below in both coordinates, by ascending `x`.
fn undominated(mut all: Vec<Point>) -> Vec<Point> {
    sort_by_numbers(&mut all, |&Point { x, y }| [x, y]);
    let mut kept: Vec<Point> = Vec::new();
    for next in all {
        if kept.last().is_none_or(|known| next.y < known.y) {
            kept.push(next);
        }
    }
    kept
}

/// Lower convex hull of undominated points: every minimiser of a sum with positive weights.
fn lower_hull(all: impl IntoIterator<Item = Point>) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for next in all {
        while let [.., before, here] = hull[..] {
            if (here.y - before.y) * (next.x - here.x) < (next.y - here.y) * (here.x - before.x) {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    hull
}

/// Mixes of some layers of a stage, by the working set that one of them needs.
fn mix_stairs(program: &StageProgram, chunk: usize, items: &Range<usize>) -> Vec<MixStairs> {
    let frontier = program.frontier(chunk, items.start, items.end);
    let mut levels: Vec<f64> = frontier.points.iter().map(|point| point.working_set).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
        .into_iter()
        .map(|working_set| {
            let mut steps: Vec<MixStep> = Vec::new();
            for point in frontier.points.iter().filter(|point| point.working_set <= working_set) {
                if steps.last().is_none_or(|known| point.kept < known.kept) {
                    steps.push(MixStep { extra: point.extra, kept: point.kept });
                }
            }
            MixStairs { working_set, steps }
        })
        .collect()
}

/// Least sum of extra times, one step of each list, whose weighted bytes are within `room`; of several lists the linear relaxation.
/// `None` where nothing fits.
fn least_extra(lists: &[&[MixStep]], weights: &[f64], room: f64) -> Option<f64> {
    match lists {
        [only] => only.iter().find(|step| step.kept * weights[0] <= room).map(|step| step.extra),
        lists => relaxed(lists, weights, room),
    }
}

/// Edge of a lower hull of extra times and kept bytes.
#[derive(Clone, Copy, Debug)]
struct HullEdge {
    /// Time that it adds, in seconds.
    time: f64,
    /// Bytes that it saves, weighted by the micro-batches in flight.
    bytes: f64,
}

/// Linear relaxation of [`least_extra`]: steps along the lower hulls, the most bytes for their time first.
fn relaxed(lists: &[&[MixStep]], weights: &[f64], room: f64) -> Option<f64> {
    let mut over = -room;
    let mut edges: Vec<HullEdge> = Vec::new();
    for (list, weight) in lists.iter().zip(weights) {
        let hull = lower_hull(list.iter().map(|step| Point { x: step.extra, y: step.kept }));
        over += hull.first()?.y * weight;
        let edge = |ends: &[Point]| HullEdge { time: ends[1].x - ends[0].x, bytes: (ends[0].y - ends[1].y) * weight };
        edges.extend(hull.windows(2).map(edge));
    }
    edges.sort_by(|a, b| (a.time * b.bytes).total_cmp(&(b.time * a.bytes)));
    let mut extra = lists.iter().map(|list| list[0].extra).sum::<f64>();
    for HullEdge { time, bytes } in edges {
        if over <= 0.0 {
            break;
        }
        let share = if bytes > 0.0 { (over / bytes).min(1.0) } else { 0.0 };
        extra += time * share;
        over -= bytes * share;
    }
    // Rounding of sums of bytes is not what keeps a rank from fitting.
    (over <= 1e-6 * room.abs()).then_some(extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps<const N: usize>(of: [(f64, f64); N]) -> [MixStep; N] {
        of.map(|(extra, kept)| MixStep { extra, kept })
    }

    /// Of pairs that fit, the hull holds the least of every sum with weights that are not negative.
    #[test]
    fn the_hull_of_shared_steps_holds_every_least() {
        let first = steps([(0.0, 10.0), (1.0, 6.0), (2.5, 5.0), (4.0, 1.0)]);
        let second = steps([(0.0, 8.0), (0.5, 7.0), (2.0, 5.0), (3.0, 2.0)]);
        let moments = [vec![2.0, 1.0], vec![1.0, 3.0]];
        for tenths in 40..400 {
            let room = f64::from(tenths) / 10.0;
            let fits = |a: f64, b: f64| moments.iter().all(|w| a * w[0] + b * w[1] <= room);
            let mut found = Vec::new();
            fitting_pairs(&first, &second, &moments, room, &mut found);
            let hull = lower_hull(found);
            for part in 0..=10 {
                let weight = f64::from(part) / 10.0;
                let price = |a: f64, b: f64| weight * a + (1.0 - weight) * b;
                let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
                let least =
                    pairs.filter(|(a, b)| fits(a.kept, b.kept)).map(|(a, b)| price(a.extra, b.extra)).reduce(f64::min);
                let of_hull = hull.iter().map(|point| price(point.x, point.y)).reduce(f64::min);
                assert_eq!(least.map(|l| (l * 1e9).round()), of_hull.map(|l| (l * 1e9).round()), "{room} {weight}");
            }
        }
    }

    #[test]
    fn what_is_relaxed_is_no_more_than_the_least() {
        let first = steps([(0.0, 10.0), (1.0, 6.0), (4.0, 1.0)]);
        let second = steps([(0.0, 8.0), (2.0, 5.0), (3.0, 2.0)]);
        let all = |room: f64| {
            let sums =
                first.iter().flat_map(|a| second.iter().map(move |b| (a.extra + b.extra, 2.0 * a.kept + b.kept)));
            sums.filter(|sum| sum.1 <= room).map(|sum| sum.0).reduce(f64::min)
        };
        for tenths in 0..300 {
            let room = f64::from(tenths) / 10.0;
            let exact = all(room);
            let relaxed = relaxed(&[&first, &second], &[2.0, 1.0], room);
            match (exact, relaxed) {
                (Some(exact), Some(relaxed)) => assert!(relaxed <= exact + 1e-12, "{room}: {relaxed} {exact}"),
                (exact, relaxed) => assert_eq!(exact.is_some(), relaxed.is_some(), "{room}"),
            }
        }
    }
}
