//! One stage a rank: exact programs over cuts, and a proof by chains of the schedule.

use std::collections::BTreeSet;

use super::blend::{Blend, length, project};
use super::coupled::{UNFORESEEN, foresee};
use super::edges::Edges;
use super::program::{Load, Program};

use crate::schedule::paths::Path;

/// A split with what its stages do.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// First item of each stage, and the number of items at the end.
    pub cuts: Vec<usize>,
    /// Stages.
    pub loads: Vec<Load>,
}

/// The program on each kind of device that ranks are of, and which kind each stage is of.
pub struct Kinds<'p, 'a> {
    programs: &'p [Program<'a>],
    of_stage: &'p [usize],
    /// What sends between kinds add to a step for each micro-batch, at most.
    late: f64,
}

impl<'p, 'a> Kinds<'p, 'a> {
    /// `of_stage` names the program of each stage; of the first where it ends. `late` = what sends between kinds add to a step
    /// for each micro-batch, at most.
    pub const fn new(programs: &'p [Program<'a>], of_stage: &'p [usize], late: f64) -> Self {
        Self { programs, of_stage, late }
    }

    /// The first: for what is the same on all.
    fn first(&self) -> &'p Program<'a> {
        &self.programs[0]
    }

    /// That of a stage.
    pub fn of(&self, stage: usize) -> &'p Program<'a> {
        &self.programs[self.of_stage.get(stage).copied().unwrap_or_default()]
    }

    /// The step that a pipeline's length gives on the kind where it is the least.
    fn lift(&self, edges: &Edges, pipe: f64) -> f64 {
        self.programs.iter().map(|program| edges.lift(program, pipe)).fold(f64::INFINITY, f64::min)
    }

    /// A line under that: its value at none, and its slope.
    pub fn line(&self, edges: &Edges, sends: f64) -> (f64, f64) {
        let lines = self.programs.iter().map(|program| edges.line(program, sends));
        lines.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap_or_default()
    }
}

/// Every stage that fits, by first item and length, for a ceiling on its time.
pub struct Table {
    ranks: usize,
    items: usize,
    /// `stage[s][a]` = loads of `a..a`, `a..a+1`, … while they fit and stay under the ceiling.
    stages: Vec<Vec<Vec<Option<Load>>>>,
}

impl Table {
    /// Prices every stage whose fastest time is within `ceiling` and that fits its rank.
    pub fn new(kinds: &Kinds, ceiling: f64) -> Self {
        let (items, ranks) = (kinds.first().len(), kinds.first().chunks);
        let stages = (0..ranks)
            .map(|chunk| {
                let program = kinds.of(chunk);
                (0..=items)
                    .map(|a| {
                        let mut loads = Vec::new();
                        for b in a..=items {
                            if program.fastest(chunk, a, b).both() > ceiling {
                                break;
                            }
                            let load = if program.may_hold(chunk, a, b) { program.fitting(chunk, a, b) } else { None };
                            if b > a && load.is_none() && program.least_excess(chunk, a, b) > 0.0 {
                                break; // more layers never need less
                            }
                            loads.push(load.filter(|load| load.both() <= ceiling));
                        }
                        loads
                    })
                    .collect()
            })
            .collect();
        Self { ranks, items, stages }
    }

    fn of(&self, stage: usize, a: usize) -> impl Iterator<Item = (usize, &Load)> {
        self.stages[stage][a].iter().enumerate().filter_map(move |(len, load)| Some((a + len, load.as_ref()?)))
    }

    /// Stages within `high` that lie on some split of stages within `high`.
    fn usable(&self, high: f64) -> Arcs {
        let n = self.items;
        let within = |load: &Load| load.both() - load.slack <= high;
        let mut ends = vec![vec![false; n + 1]; self.ranks + 1]; // from which the rest can be covered
        ends[self.ranks][n] = true;
        for stage in (0..self.ranks).rev() {
            for a in 0..=n {
                ends[stage][a] = self.of(stage, a).any(|(b, load)| ends[stage + 1][b] && within(load));
            }
        }
        let mut reached = vec![false; n + 1];
        reached[0] = true;
        let stages = (0..self.ranks)
            .map(|stage| {
                let mut next = vec![false; n + 1];
                let mut arcs = Vec::new();
                for a in (0..=n).filter(|&a| reached[a] && ends[stage][a]) {
                    for (b, load) in self.of(stage, a).filter(|(b, load)| ends[stage + 1][*b] && within(load)) {
                        next[b] = true;
                        arcs.push((a, b, *load));
                    }
                }
                reached = next;
                arcs
            })
            .collect();
        Arcs { items: n, stages }
    }

    /// The least time of the slowest stage over all splits.
    pub fn bottleneck(&self) -> Option<f64> {
        let n = self.items;
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        for stage in 0..self.ranks {
            let mut next = vec![f64::INFINITY; n + 1];
            for (a, &so_far) in best.iter().enumerate() {
                if so_far.is_infinite() {
                    continue;
                }
                for (b, load) in self.of(stage, a) {
                    next[b] = next[b].min(so_far.max(load.both()));
                }
            }
            best = next;
        }
        (best[n].is_finite()).then_some(best[n])
    }

    /// The least length of a chain over all splits.
    pub fn shortest(&self, path: &Path) -> Option<f64> {
        let blend = Blend::of(self.ranks, [(path, 1.0)].into_iter());
        self.usable(f64::INFINITY).cheapest(|stage, load| blend.price(stage, load)).map(|(sum, _)| sum)
    }

    /// What every split of these stages has: the least heaviest rank, and the longest forward and backward it hides behind.
    ///
    /// The heaviest rank of a split holds at least H parameters, H = the least over splits of their most; of those no more
    /// than the most that any stage here holds are experts, and no more than the most are dense. Stages beyond `high` are left
    /// out.
    pub fn edges(&self, program: &Program, high: f64) -> Edges {
        let n = self.items;
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        let (mut most, mut forward, mut backward) = ([0.0_f64; 2], 0.0_f64, 0.0_f64);
        for stage in 0..self.ranks {
            let mut next = vec![f64::INFINITY; n + 1];
            for (a, &so_far) in best.iter().enumerate().filter(|(_, so_far)| so_far.is_finite()) {
                for (b, load) in self.of(stage, a).filter(|(_, load)| load.both() - load.slack <= high) {
                    let [dense, experts] = program.parameters(stage, a, b);
                    most = [most[0].max(dense), most[1].max(experts)];
                    (forward, backward) = (forward.max(load.forward), backward.max(load.backward));
                    next[b] = next[b].min(so_far.max(dense + experts));
                }
            }
            best = next;
        }
        let least = if best[n].is_finite() { best[n] } else { 0.0 };
        Edges { dense: (least - most[1]).max(0.0), experts: (least - most[0]).max(0.0), forward, backward }
    }

    /// Loads of a split.
    pub fn loads(&self, cuts: &[usize]) -> Option<Vec<Load>> {
        (0..self.ranks).map(|s| *self.stages[s].get(cuts[s])?.get(cuts[s + 1].checked_sub(cuts[s])?)?).collect()
    }
}

/// Stages by first item and end.
struct Arcs {
    items: usize,
    stages: Vec<Vec<(usize, usize, Load)>>,
}

impl Arcs {
    /// The split whose sum of `price` is the least; stages of infinite price are left out. The sum, and the cuts.
    fn cheapest(&self, price: impl Fn(usize, &Load) -> f64) -> Option<(f64, Vec<usize>)> {
        let n = self.items;
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        let mut from: Vec<Vec<usize>> = Vec::with_capacity(self.stages.len());
        for (stage, arcs) in self.stages.iter().enumerate() {
            let mut next = vec![f64::INFINITY; n + 1];
            let mut cut = vec![usize::MAX; n + 1];
            for (a, b, load) in arcs {
                let sum = best[*a] + price(stage, load);
                if sum < next[*b] {
                    next[*b] = sum;
                    cut[*b] = *a;
                }
            }
            best = next;
            from.push(cut);
        }
        if best[n].is_infinite() {
            return None;
        }
        let mut cuts = vec![n];
        for cut in from.iter().rev() {
            cuts.push(cut[cuts[cuts.len() - 1]]);
        }
        cuts.reverse();
        Some((best[n], cuts))
    }
}

/// Width below which an interval of bottlenecks is no longer halved, as a share.
const FINEST: f64 = 2e-4;
/// Most halvings.
const MOST_STEPS: usize = 400;

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
/// `step` gives a split's step time; `sends` is what no chain counts; `tolerance` is the gap at which to stop,
/// `most_replays` how many splits may be priced.
pub fn solve(
    kinds: &Kinds,
    mut paths: Vec<Path>,
    sends: f64,
    (tolerance, most_replays): (f64, usize),
    mut step: impl FnMut(&Split) -> f64,
) -> Answer {
    let program = kinds.first();
    let m = program.stager.micro_batches();
    let mut best: Option<(f64, Split)> = None;
    let mut replayed = 0;
    let mut seen = BTreeSet::new();
    // A first ceiling: twice the mean; grown while nothing fits under it.
    let whole = |program: &Program| -> f64 {
        (0..program.chunks).map(|s| program.fastest(s, 0, if s == 0 { program.len() } else { 0 }).both()).sum()
    };
    let whole = kinds.programs.iter().map(whole).fold(0.0, f64::max);
    let mean = whole / program.chunks as f64;
    let mut ceiling = best.as_ref().map_or(2.0 * mean, |(time, _)| (time / m).min(2.0 * mean));
    let (table, low) = loop {
        let table = Table::new(kinds, ceiling * (1.0 + 1e-9));
        if let Some(low) = table.bottleneck() {
            // Splits whose slowest stage is over the best replay's share of a micro-batch are slower than it.
            let most = best.as_ref().map_or(f64::INFINITY, |(time, _)| time / m);
            let enough = low * (m + 2.0 * program.ranks as f64) / m + kinds.late;
            if ceiling >= enough.min(most) || ceiling >= whole * 4.0 {
                break (table, low);
            }
            ceiling = enough.min(most);
        } else if ceiling > whole * 4.0 {
            return Answer { best, bound: f64::INFINITY, replayed, cut_short: false };
        } else {
            ceiling *= 2.0;
        }
    };
    let edges = table.edges(program, f64::INFINITY);
    let (base, slope) = kinds.line(&edges, sends);
    let mut cut_short = false;
    let mut intervals: Vec<(f64, f64, f64)> = vec![(0.0, low * (1.0 - 1e-12), ceiling)]; // (bound, low, high]
    let mut closed = f64::INFINITY; // least bound of intervals that are not halved any more
    for _ in 0..MOST_STEPS {
        let Some(at) = (0..intervals.len()).min_by(|&a, &b| intervals[a].0.total_cmp(&intervals[b].0)) else { break };
        let (bound, low, high) = intervals.swap_remove(at);
        let time = best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
        if bound.min(closed) >= time * (1.0 - tolerance) {
            intervals.push((bound, low, high));
            break;
        }
        // Slower stages would hide more of what lies beside the pipeline: these do not.
        let edges = table.edges(program, high);
        let (base_here, slope_here) = kinds.line(&edges, sends);
        let goal = (time * (1.0 - tolerance) - base_here) / slope_here;
        let (least, candidates) = interval_bound(program, &table, &paths, (low, high), goal);
        for cuts in candidates {
            let Some(loads) = table.loads(&cuts) else { continue };
            if !seen.insert(cuts.clone()) {
                continue;
            }
            let known = best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
            let longest = paths.iter().map(|path| length(path, &loads)).fold(0.0, f64::max);
            if base + slope * longest >= known {
                continue;
            }
            if replayed >= most_replays {
                cut_short = true;
                break;
            }
            let split = Split { cuts, loads };
            let time = step(&split);
            replayed += 1;
            if base + slope * longest < time * (1.0 - UNFORESEEN) {
                foresee(program, &split.loads, &mut paths);
            }
            if best.as_ref().is_none_or(|(known, _)| time < *known) {
                best = Some((time, split));
            }
        }
        let bound = bound.max(if least.is_finite() { kinds.lift(&edges, least + sends) } else { least });
        if bound.is_infinite() {
            continue;
        }
        if high - low <= FINEST * high {
            closed = closed.min(bound);
        } else {
            let middle = if high > 1.05 * low { low * 1.01 } else { f64::midpoint(low, high) };
            intervals.push((bound, low, middle));
            intervals.push((bound, middle, high));
        }
    }
    let bound = intervals.iter().map(|interval| interval.0).fold(closed, f64::min);
    let bound = best.as_ref().map_or(bound, |(time, _)| bound.min(*time));
    Answer { best, bound, replayed, cut_short }
}

/// The least length of chains over splits whose slowest stage lies in (low, high], and the splits that reach it. Where that is
/// under `goal`, the chains are weighed together.
fn interval_bound(
    program: &Program,
    table: &Table,
    paths: &[Path],
    (low, high): (f64, f64),
    goal: f64,
) -> (f64, Vec<Vec<usize>>) {
    let mut least = f64::INFINITY;
    let mut candidates: Vec<Vec<usize>> = Vec::new();
    let arcs = table.usable(high);
    for rank in 0..program.ranks {
        if !arcs.stages[rank].iter().any(|(_, _, load)| load.both() > low) {
            continue;
        }
        let own = |stage: usize, load: &Load| stage == rank && load.both() <= low;
        let mut of_rank: Option<(f64, usize)> = None;
        for (at, path) in paths.iter().enumerate().filter(|(_, path)| path.rank as usize == rank) {
            let blend = Blend::of(program.chunks, [(path, 1.0)].into_iter());
            let price = |stage: usize, load: &Load| {
                if own(stage, load) { f64::INFINITY } else { blend.price(stage, load) }
            };
            let Some((sum, cuts)) = arcs.cheapest(price) else {
                of_rank = None;
                break;
            };
            if of_rank.is_none_or(|(known, _)| sum > known) {
                of_rank = Some((sum, at));
            }
            if !candidates.contains(&cuts) {
                candidates.push(cuts);
            }
        }
        if let Some((length, at)) = of_rank {
            let (raised, met) = if length < goal.min(least) {
                weighed(&arcs, table, paths, at, &own, goal.min(least))
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
    arcs: &Arcs,
    table: &Table,
    paths: &[Path],
    first: usize,
    left_out: &impl Fn(usize, &Load) -> bool,
    goal: f64,
) -> (f64, Vec<Vec<usize>>) {
    let mut weights = vec![0.0; paths.len()];
    weights[first] = 1.0;
    let (mut most, mut met, mut pace) = (f64::NEG_INFINITY, Vec::new(), 1.0);
    for _ in 0..ROUNDS {
        let blend = Blend::of(table.ranks, paths.iter().zip(weights.iter().copied()));
        let price = |stage: usize, load: &Load| {
            if left_out(stage, load) { f64::INFINITY } else { blend.price(stage, load) }
        };
        let Some((sum, cuts)) = arcs.cheapest(price) else { return (f64::INFINITY, met) };
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
