//! One stage a rank: exact programs over cuts, and a proof by chains of the schedule.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::blend::{Blend, length, project};
use super::coupled::{UNFORESEEN, foresee};
use super::cuts::neighbours;
use super::edges::Edges;
use super::program::{Load, Program};
use super::table::{Arcs, Table};
use meshwright_engine::schedule::paths::Path;

/// A split with what its stages do.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// First item of each stage, and the number of items at the end.
    pub cuts: Vec<usize>,
    /// Stages.
    pub loads: Vec<Load>,
}

/// Width below which an interval of bottlenecks is no longer halved, as a share.
const FINEST: f64 = 2e-4;
/// Most halvings.
const MOST_STEPS: usize = 400;

/// Splits whose slowest stage takes more than `low` and no more than `high`.
struct Interval {
    /// None of them is faster.
    bound: f64,
    low: f64,
    high: f64,
    /// What is under `high`, where it is known.
    under: Option<Rc<Under>>,
}

/// Stages under a ceiling, and what a step of them pays around its pipeline.
struct Under {
    arcs: Arcs,
    edges: Edges,
}

/// What the search over bottlenecks found.
pub struct Answer {
    /// The best split and its replayed time.
    pub best: Option<(f64, Split)>,
    /// No split is faster.
    pub bound: f64,
    /// Splits replayed.
    pub replayed: usize,
    /// Whether a limit ended the search.
    pub cut_short: bool,
}

/// Branches on the time T of the slowest stage: a split whose slowest stage, on rank i, takes T in (low, high] is no faster
/// than any chain through rank i, and a chain's length is a sum over stages, so the least over those splits is a shortest
/// path over cuts. Splits met on the way are replayed. An interval is halved until its bound is over the best replay.
///
/// `step` gives a split's step time; `tolerance` is the gap at which to stop,
/// `most_replays` how many splits may be priced.
pub fn solve(
    program: &Program,
    paths: Vec<Path>,
    (tolerance, most_replays): (f64, usize),
    step: impl FnMut(&Split) -> f64,
) -> Answer {
    let sends = program.sends;
    let m = program.stager.micro_batches();
    // A first ceiling: twice the mean; grown while nothing fits under it.
    let whole: f64 = (0..program.chunks)
        .map(|chunk| {
            let [forward, backward, ..] = program.longest(chunk, 0, if chunk == 0 { program.len() } else { 0 });
            forward + backward
        })
        .sum();
    let mean = whole / program.chunks as f64;
    let mut ceiling = 2.0 * mean;
    let (table, low) = loop {
        let table = Table::new(program, ceiling * (1.0 + 1e-9));
        if let Some(low) = table.bottleneck() {
            let enough = low * (m + 2.0 * program.ranks as f64) / m + program.late;
            if ceiling >= enough || ceiling >= whole * 4.0 {
                break (table, low);
            }
            ceiling = enough;
        } else if ceiling > whole * 4.0 {
            return Answer { best: None, bound: f64::INFINITY, replayed: 0, cut_short: false };
        } else {
            ceiling *= 2.0;
        }
    };
    let mut search = Search {
        program,
        table: &table,
        paths,
        line: table.edges(program, &table.usable(f64::INFINITY)).line(program, sends),
        step,
        most_replays,
        best: None,
        replayed: 0,
        cut_short: false,
        seen: BTreeSet::new(),
    };
    let mut intervals = vec![Interval { bound: 0.0, low: low * (1.0 - 1e-12), high: ceiling, under: None }];
    let mut closed = f64::INFINITY; // least bound of intervals that are not halved any more
    for _ in 0..MOST_STEPS {
        let least = |&a: &usize, &b: &usize| intervals[a].bound.total_cmp(&intervals[b].bound);
        let Some(at) = (0..intervals.len()).min_by(least) else { break };
        let Interval { bound, low, high, under } = intervals.swap_remove(at);
        let time = search.least();
        if bound >= closed.min(time * (1.0 - tolerance)) {
            // No other interval has a lesser bound, and those that are halved no more keep theirs.
            intervals.push(Interval { bound, low, high, under });
            break;
        }
        // Slower stages would hide more of what lies beside the pipeline: these do not.
        let under = under.unwrap_or_else(|| {
            let arcs = table.usable(high);
            Rc::new(Under { edges: table.edges(program, &arcs), arcs })
        });
        let (base_here, slope_here) = under.edges.line(program, sends);
        let goal = (time * (1.0 - tolerance) - base_here) / slope_here;
        let (least, candidates) = interval_bound(program, (&table, &under.arcs), &search.paths, low, goal);
        for cuts in candidates {
            search.offer(cuts);
        }
        let bound = bound.max(if least.is_finite() { under.edges.lift(program, least + sends) } else { least });
        if bound.is_infinite() {
            continue;
        }
        if high - low <= FINEST * high {
            closed = closed.min(bound);
        } else {
            let middle = if high > 1.05 * low { low * 1.01 } else { f64::midpoint(low, high) };
            intervals.push(Interval { bound, low, high: middle, under: None });
            intervals.push(Interval { bound, low: middle, high, under: Some(under) });
        }
    }
    let bound = intervals.iter().map(|interval| interval.bound).fold(closed, f64::min);
    if bound < search.least() * (1.0 - tolerance) {
        search.descend();
    }
    let bound = bound.min(search.least());
    Answer { best: search.best, bound, replayed: search.replayed, cut_short: search.cut_short }
}

/// Splits that are played.
struct Search<'a, F> {
    program: &'a Program<'a>,
    table: &'a Table,
    /// Chains that no split is faster than: the schedule's own, and what played splits waited for.
    paths: Vec<Path>,
    /// The step that a chain's length gives: at none, and for one second more.
    line: (f64, f64),
    step: F,
    most_replays: usize,
    best: Option<(f64, Split)>,
    replayed: usize,
    cut_short: bool,
    seen: BTreeSet<Vec<usize>>,
}

impl<F: FnMut(&Split) -> f64> Search<'_, F> {
    /// The best step so far.
    fn least(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time)
    }

    /// Plays cuts whose chains are shorter than the best step. Whether they are faster than that.
    fn offer(&mut self, cuts: Vec<usize>) -> bool {
        let Some(loads) = self.table.loads(&cuts) else { return false };
        let known = self.least();
        let longest = self.paths.iter().map(|path| length(path, &loads)).fold(0.0, f64::max);
        let floor = self.line.0 + self.line.1 * longest;
        if floor >= known || !self.seen.insert(cuts.clone()) {
            return false;
        }
        if self.replayed >= self.most_replays {
            self.cut_short = true;
            return false;
        }
        let split = Split { cuts, loads };
        let time = (self.step)(&split);
        self.replayed += 1;
        if floor < time * (1.0 - UNFORESEEN) {
            foresee(self.program, &split.loads, &mut self.paths);
        }
        if time < known {
            self.best = Some((time, split));
        }
        time < known
    }

    /// Moves single layers between stages of the best split while the step gets shorter.
    fn descend(&mut self) {
        while let Some((_, split)) = &self.best {
            let mut moved = false;
            for cuts in neighbours(self.program, &split.cuts) {
                moved |= self.offer(cuts);
            }
            if !moved {
                return;
            }
        }
    }
}

/// The least length of chains over splits of these arcs whose slowest stage takes more than `low`, or `goal` where it is more; and
/// the splits that are as short. Where a rank's own chains are under `goal`, all are weighed together.
fn interval_bound(
    program: &Program,
    (table, arcs): (&Table, &Arcs),
    paths: &[Path],
    low: f64,
    goal: f64,
) -> (f64, Vec<Vec<usize>>) {
    let mut least = f64::INFINITY;
    let mut candidates: Vec<Vec<usize>> = Vec::new();
    for rank in (0..program.ranks).filter(|&rank| table.any_slower(arcs, rank, low)) {
        let own = |stage: usize, load: &Load| stage == rank && load.both() <= low;
        let mut of_rank: Option<(f64, usize)> = None;
        let mut met: Vec<Vec<usize>> = Vec::new();
        for (at, path) in paths.iter().enumerate().filter(|(_, path)| path.rank as usize == rank) {
            let blend = Blend::of(program.chunks, [(path, 1.0)].into_iter());
            let price = |stage: usize, load: &Load| {
                if own(stage, load) { f64::INFINITY } else { blend.price(stage, load) }
            };
            let Some((sum, cuts)) = table.cheapest(arcs, price) else {
                of_rank = None;
                break;
            };
            if of_rank.is_none_or(|(known, _)| sum > known) {
                of_rank = Some((sum, at));
            }
            if sum >= goal {
                met.clear(); // none of them is faster than what is known
                break;
            }
            met.push(cuts);
        }
        candidates.extend(met);
        if let Some((length, at)) = of_rank {
            let (raised, met) = if length < goal.min(least) {
                weighed((table, arcs), paths, at, &own, goal.min(least))
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

/// Rounds of the weights.
const ROUNDS: usize = 24;

/// The least mean of chains over splits without the stages left out, with weights from one chain alone on that raise it; and
/// the splits met.
fn weighed(
    (table, arcs): (&Table, &Arcs),
    paths: &[Path],
    first: usize,
    left_out: &impl Fn(usize, &Load) -> bool,
    goal: f64,
) -> (f64, Vec<Vec<usize>>) {
    let mut weights = vec![0.0; paths.len()];
    weights[first] = 1.0;
    let (mut most, mut met, mut pace) = (f64::NEG_INFINITY, Vec::new(), 1.0);
    for _ in 0..ROUNDS {
        let blend = Blend::of(paths[first].forward.len(), paths.iter().zip(weights.iter().copied()));
        let price = |stage: usize, load: &Load| {
            if left_out(stage, load) { f64::INFINITY } else { blend.price(stage, load) }
        };
        let Some((sum, cuts)) = table.cheapest(arcs, price) else { return (f64::INFINITY, met) };
        if sum <= most {
            pace *= 0.7;
        }
        most = most.max(sum);
        let Some(loads) = table.loads(&cuts) else { break };
        met.push(cuts);
        if most >= goal || goal.is_infinite() {
            break;
        }
        let lengths: Vec<f64> = paths.iter().map(|path| length(path, &loads)).collect();
        let mean: f64 = lengths.iter().zip(&weights).map(|(length, weight)| length * weight).sum();
        let slope = |length: f64, weight: f64| if weight <= 0.0 && length < mean { 0.0 } else { length - mean };
        let norm: f64 = lengths.iter().zip(&weights).map(|(&l, &w)| slope(l, w).powi(2)).sum();
        if norm <= 0.0 {
            break;
        }
        let step = pace * (goal - sum) / norm;
        for (weight, &length) in weights.iter_mut().zip(&lengths) {
            *weight += step * slope(length, *weight);
        }
        project(&mut weights);
    }
    (most, met)
}
