//! Bisection of the bottleneck, one stage a rank: shortest paths over cuts bound the dependency paths of the schedule.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::table::{Arcs, FirstItems, ShortestPath, StageTable};
use crate::refine::cuts::neighbours;
use crate::refine::edges::{Edges, StepLine};
use crate::refine::options::{Options, Technique};
use crate::refine::paths::{PathTable, PathWeights, length, project};
use crate::refine::program::StageProgram;
use crate::refine::split::{Incumbent, Solution, StageLoad, StagedSplit};
use meshwright_engine::schedule::paths::Path;

/// Width below which an interval of bottlenecks is no longer halved, as a share.
const FINEST: f64 = 2e-4;
/// Gap under which such an interval is not branched on its cuts either, as a share.
const ENOUGH: f64 = 0.005;
/// Most intervals that are bounded.
const MOST_STEPS: usize = 400;
/// Work of all intervals, in arcs of shortest paths and visits of dependency paths to stages: the same on every
/// machine. Gaps of docs/refine.md are those without a limit; a model of 64 layers on 32 stages, which took minutes,
/// ends (`benches/runs/2026-11-26-2-cores.txt`).
const MOST_WORK: usize = 500_000_000;

/// Splits in which every stage begins in its window, and the slowest takes more than `low` and at most `high`.
struct Interval {
    /// Lower bound of their steps.
    bound: f64,
    low: f64,
    high: f64,
    /// First items that each stage may have.
    windows: Rc<FirstItems>,
    /// Stages under `high`, once they are listed.
    under: Option<Rc<Under>>,
}

/// Stages under a ceiling, with bounds on the parts of their step outside the pipeline.
struct Under {
    arcs: Arcs,
    edges: Edges,
}

/// Split and lower bound of a program with one stage a rank.
///
/// Branches on the time T of the slowest stage: a split whose slowest stage, on rank i, takes T in (low, high] is no
/// faster than any dependency path through rank i, and the length of such a path is a sum over stages, so that its
/// least over those splits is a shortest path over cuts. Splits met on the way are simulated. An interval is halved
/// until its bound is over the incumbent, and then branched on the cut that differs most among the splits that it met.
///
/// `step` gives a split's step time; splits are wanted whose step is faster than `cutoff`.
pub fn solve(
    program: &StageProgram,
    paths: Vec<Path>,
    options: &Options,
    cutoff: f64,
    step: impl FnMut(&StagedSplit) -> f64,
) -> Solution {
    let &Options { tolerance, most_evaluations, .. } = options;
    let sends = program.sends;
    let m = program.stager.micro_batches();
    // A first ceiling: twice the mean; grown while nothing fits under it.
    let whole: f64 = (0..program.chunks)
        .map(|chunk| {
            let longest = program.longest(chunk, 0, if chunk == 0 { program.len() } else { 0 });
            longest.forward + longest.backward
        })
        .sum();
    let mean = whole / program.chunks as f64;
    let mut ceiling = 2.0 * mean;
    let (table, low) = loop {
        let table = StageTable::new(program, ceiling * (1.0 + 1e-9));
        if let Some(low) = table.bottleneck() {
            let enough = low * (m + 2.0 * program.ranks as f64) / m + program.late;
            if ceiling >= enough || ceiling >= whole * 4.0 {
                break (table, low);
            }
            ceiling = enough;
        } else if ceiling > whole * 4.0 {
            return Solution { best: None, bound: f64::INFINITY, evaluated: 0, cut_short: false };
        } else {
            ceiling *= 2.0;
        }
    };
    let mut search = Search {
        program,
        table: &table,
        paths: PathTable::new(program.chunks, paths),
        slow: 0,
        line: table.edges(program, &table.usable(f64::INFINITY, &table.windows())).line(program, sends),
        step,
        most_evaluations,
        cutoff,
        best: None,
        evaluated: 0,
        cut_short: false,
        seen: BTreeSet::new(),
    };
    let windows = Rc::new(table.windows());
    let mut intervals = vec![Interval { bound: 0.0, low: low * (1.0 - 1e-12), high: ceiling, windows, under: None }];
    let mut closed = f64::INFINITY; // least bound of intervals that are not halved any more
    let mut work = 0;
    for _ in 0..MOST_STEPS {
        let is_over = work >= MOST_WORK;
        search.cut_short |= is_over;
        if is_over || search.cut_short && !options.prove {
            break; // no split can be simulated any more: further intervals would only raise the bound
        }
        let least = |&a: &usize, &b: &usize| intervals[a].bound.total_cmp(&intervals[b].bound);
        let Some(at) = (0..intervals.len()).min_by(least) else { break };
        let Interval { bound, low, high, windows, under } = intervals.swap_remove(at);
        let time = search.least();
        if bound >= closed.min(time * (1.0 - tolerance)) {
            // No other interval has a lesser bound, and those that are halved no more keep theirs.
            intervals.push(Interval { bound, low, high, windows, under });
            break;
        }
        // Slower stages would hide more of what lies beside the pipeline: these do not.
        let under = under.unwrap_or_else(|| {
            let arcs = table.usable(high, &windows);
            Rc::new(Under { edges: table.edges(program, &arcs), arcs })
        });
        let cutoff = under.edges.line(program, sends).pipeline(time * (1.0 - tolerance));
        let relaxation = Relaxation { program, table: &table, arcs: &under.arcs, paths: &search.paths };
        let (least, candidates) = relaxation.bound(low, cutoff, &mut work);
        let branch = widest(&candidates);
        for cuts in candidates {
            search.offer(cuts);
        }
        let bound = bound.max(if least.is_finite() { under.edges.lift(program, least + sends) } else { least });
        if bound.is_infinite() {
            continue;
        }
        if high - low > FINEST * high && options.uses(Technique::Bisection) {
            let middle = if high > 1.05 * low { low * 1.01 } else { f64::midpoint(low, high) };
            intervals.push(Interval { bound, low, high: middle, windows: Rc::clone(&windows), under: None });
            intervals.push(Interval { bound, low: middle, high, windows, under: Some(under) });
        } else if let (true, Some((stage, first))) = (bound < search.least() * (1.0 - ENOUGH), branch) {
            for window in [windows[stage].start..first, first..windows[stage].end] {
                let mut windows = FirstItems::clone(&windows);
                windows[stage] = window;
                intervals.push(Interval { bound, low, high, windows: Rc::new(windows), under: None });
            }
        } else {
            closed = closed.min(bound);
        }
    }
    let bound = intervals.iter().map(|interval| interval.bound).fold(closed, f64::min);
    if bound < search.least() * (1.0 - tolerance) && options.uses(Technique::Descent) {
        search.descend();
    }
    let bound = bound.min(search.least());
    Solution { best: search.best, bound, evaluated: search.evaluated, cut_short: search.cut_short }
}

/// Stage whose first item differs most among these cuts, and the middle between its least and its greatest; none if
/// they are all the same.
fn widest(candidates: &[Vec<usize>]) -> Option<(usize, usize)> {
    let range = |stage: usize| {
        let first = candidates.iter().map(|cuts| cuts[stage]);
        Some((first.clone().min()?, first.max()?))
    };
    let ranges = (1..candidates.first()?.len() - 1).filter_map(|stage| Some((stage, range(stage)?)));
    let (stage, (least, greatest)) = ranges.max_by_key(|(_, (least, greatest))| greatest - least)?;
    (greatest > least).then_some((stage, (least + greatest).div_ceil(2)))
}

/// Incumbent and the splits that were simulated.
struct Search<'a, F> {
    program: &'a StageProgram<'a>,
    table: &'a StageTable,
    /// Dependency paths of the schedule.
    paths: PathTable,
    /// The path on which cuts were last found to be slow.
    slow: usize,
    /// Step of a path, a lower bound.
    line: StepLine,
    step: F,
    most_evaluations: usize,
    /// Step time that a split must beat.
    cutoff: f64,
    best: Option<Incumbent>,
    evaluated: usize,
    cut_short: bool,
    /// Cuts that were simulated, or not for want of simulations.
    seen: BTreeSet<Vec<usize>>,
}

impl<F: FnMut(&StagedSplit) -> f64> Search<'_, F> {
    /// Step time of the incumbent, or the cutoff if that is less.
    fn least(&self) -> f64 {
        Incumbent::lower(self.best.as_ref(), self.cutoff)
    }

    /// Simulates cuts whose paths are shorter than the incumbent's step. Whether they become the incumbent.
    fn offer(&mut self, cuts: Vec<usize>) -> bool {
        if self.seen.contains(&cuts) {
            return false;
        }
        let Some(loads) = self.table.loads(&cuts) else { return false };
        let least = self.least();
        let is_slow = |path: &Path| self.line.step(length(path, &loads)) >= least;
        // Neighbouring cuts are slow on the same path.
        if self.line.base >= least || self.paths.paths.get(self.slow).is_some_and(is_slow) {
            return false;
        }
        if let Some(slow) = self.paths.paths.iter().position(is_slow) {
            self.slow = slow;
            return false;
        }
        self.seen.insert(cuts.clone());
        if self.evaluated >= self.most_evaluations {
            self.cut_short = true;
            return false;
        }
        let split = StagedSplit { cuts, loads };
        let time = (self.step)(&split);
        self.evaluated += 1;
        if time < least {
            self.best = Some(Incumbent { step: time, split });
        }
        time < least
    }

    /// Moves single layers between stages of the best split while the step gets shorter.
    fn descend(&mut self) {
        while let Some(Incumbent { split, .. }) = &self.best {
            let (here, mut moved) = (split.cuts.clone(), false);
            for cuts in neighbours(self.program, &here) {
                moved |= self.offer(cuts);
            }
            if !moved {
                return;
            }
        }
    }
}

/// Rounds of the subgradient ascent.
const ROUNDS: usize = 24;

/// Relaxation of a program on the paths of its arcs: which splits have these stages, and how long their dependency paths are.
#[derive(Clone, Copy)]
struct Relaxation<'a> {
    program: &'a StageProgram<'a>,
    table: &'a StageTable,
    arcs: &'a Arcs,
    /// Dependency paths of the schedule.
    paths: &'a PathTable,
}

impl Relaxation<'_> {
    /// Lower bound on the longest dependency path of splits whose slowest stage takes more than `low`, at most `cutoff`, and
    /// the splits met. Where the paths of a rank alone stay under `cutoff`, a weighted mean of all paths raises it.
    fn bound(&self, low: f64, cutoff: f64, work: &mut usize) -> (f64, Vec<Vec<usize>>) {
        let Self { program, table, arcs, paths, .. } = *self;
        let mut least = f64::INFINITY;
        let mut candidates: Vec<Vec<usize>> = Vec::new();
        for rank in (0..program.ranks).filter(|&rank| table.any_slower(arcs, rank, low)) {
            let own = |stage: usize, load: &StageLoad| stage == rank && load.busy <= low;
            let mut of_rank: Option<(f64, usize)> = None;
            let mut met: Vec<Vec<usize>> = Vec::new();
            for (at, path) in paths.paths.iter().enumerate().filter(|(_, path)| path.rank as usize == rank) {
                let weighted = PathWeights::of(program.chunks, [(path, 1.0)].into_iter());
                let price = |stage: usize, load: &StageLoad| {
                    if own(stage, load) { f64::INFINITY } else { weighted.length_of(stage, load) }
                };
                *work += arcs.len();
                let Some(ShortestPath { length: sum, cuts }) = table.shortest_path(arcs, price) else {
                    of_rank = None;
                    break;
                };
                if of_rank.is_none_or(|(longest, _)| sum > longest) {
                    of_rank = Some((sum, at));
                }
                if sum >= cutoff {
                    met.clear(); // none of them is faster than the cutoff
                    break;
                }
                met.push(cuts);
            }
            candidates.extend(met);
            if let Some((length, at)) = of_rank {
                let (raised, met) = if length < cutoff.min(least) {
                    self.weighed(at, &own, cutoff.min(least), work)
                } else {
                    (length, Vec::new())
                };
                least = least.min(raised.max(length));
                candidates.extend(met);
            }
        }
        candidates.sort();
        candidates.dedup();
        (least, candidates)
    }

    /// Lagrangian bound over splits without the stages left out, by subgradient ascent from the weights of one path
    /// alone; and the splits met.
    fn weighed(
        &self,
        first: usize,
        left_out: &impl Fn(usize, &StageLoad) -> bool,
        cutoff: f64,
        work: &mut usize,
    ) -> (f64, Vec<Vec<usize>>) {
        let Self { table, arcs, paths, .. } = *self;
        let mut weights = vec![0.0; paths.paths.len()];
        weights[first] = 1.0;
        let (mut most, mut met, mut pace) = (f64::NEG_INFINITY, Vec::new(), 1.0);
        for _ in 0..ROUNDS {
            let weighted = paths.mean(&weights);
            let price = |stage: usize, load: &StageLoad| {
                if left_out(stage, load) { f64::INFINITY } else { weighted.length_of(stage, load) }
            };
            *work += arcs.len() + paths.len();
            let Some(ShortestPath { length: sum, cuts }) = table.shortest_path(arcs, price) else {
                return (f64::INFINITY, met);
            };
            if sum <= most {
                pace *= 0.7;
            }
            most = most.max(sum);
            let Some(loads) = table.loads(&cuts) else { break };
            met.push(cuts);
            if most >= cutoff || cutoff.is_infinite() {
                break;
            }
            let lengths = paths.lengths(&loads);
            let mean: f64 = lengths.iter().zip(&weights).map(|(length, weight)| length * weight).sum();
            let slope = |length: f64, weight: f64| if weight <= 0.0 && length < mean { 0.0 } else { length - mean };
            let norm: f64 = lengths.iter().zip(&weights).map(|(&l, &w)| slope(l, w).powi(2)).sum();
            if norm <= 0.0 {
                break;
            }
            let step = pace * (cutoff - sum) / norm;
            for (weight, &length) in weights.iter_mut().zip(&lengths) {
                *weight += step * slope(length, *weight);
            }
            project(&mut weights);
        }
        (most, met)
    }
}
