//! Ranks that own several stages: a search over cuts, and what no cuts can beat.

use std::collections::BTreeSet;

use super::Options;
use super::blend::length;
use super::bound;
use super::branch::Budget;
use super::cuts::{legal, nearest_split, neighbours, starts};
use super::edges::Edges;
use super::integer::{self, Found};
use super::mixes::{Known, fastest, loads};
use super::polish::polish;
use super::program::{Load, Program};
use super::separable::{Answer, Split};
use super::walk;
use meshwright_engine::schedule::paths::{Pairing, Path, paths};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::units::Seconds;

/// All work of one rank.
fn rank_path(program: &Program, rank: usize) -> Path {
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

/// Chains of the schedule; all work of each rank where it has no list.
pub fn chains(program: &Program) -> Vec<Path> {
    let plan = program.stager.plan();
    if program.is_closed() || plan.schedule.is_bidirectional() {
        (0..program.ranks).map(|rank| rank_path(program, rank)).collect()
    } else {
        paths(plan.schedule, plan.layout.pp, program.stager.micro_batches() as u32)
    }
}

/// Most stages priced in chains to look at neighbours, the same on every machine.
const MOST_LOOKED: usize = 60_000_000;

/// What is known while splits are searched.
struct Search<'a> {
    program: &'a Program<'a>,
    step: &'a mut dyn FnMut(&Split) -> f64,
    most_replays: usize,
    /// Chains that no split is faster than: the schedule's own, and what played splits waited for.
    chains: Vec<Path>,
    /// The step that a pipeline's length gives: at none, and for one second more.
    line: (f64, f64),
    best: Option<(f64, Split)>,
    replayed: usize,
    cut_short: bool,
    /// Stages priced in chains.
    looked: usize,
    seen: BTreeSet<Vec<usize>>,
    known: Known,
}

impl Search<'_> {
    fn lift(&self, pipe: f64) -> f64 {
        self.line.0 + self.line.1 * pipe
    }

    fn floor(&self, loads: &[Load]) -> f64 {
        self.lift(self.chains.iter().map(|path| length(path, loads)).fold(0.0, f64::max))
    }

    /// Plays a split, keeps it if it is the fastest, and what it waited for if the known chains did not foresee that.
    fn play(&mut self, split: &Split) -> f64 {
        let time = (self.step)(split);
        self.replayed += 1;
        if self.best.as_ref().is_none_or(|(known, _)| time < *known) {
            self.best = Some((time, split.clone()));
        }
        if self.floor(&split.loads) < time * (1.0 - UNFORESEEN) {
            foresee(self.program, &split.loads, &mut self.chains);
        }
        time
    }

    /// Plays cuts, and goes on from them where they are the fastest; the shortest step that is known.
    fn try_split(&mut self, cuts: Vec<usize>) -> f64 {
        let known = self.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
        if !self.seen.contains(&cuts)
            && self.replayed < self.most_replays
            && legal(self.program, &cuts)
            && let Some(loads) = loads(self.program, &cuts, &mut self.known)
            && self.play(&Split { cuts: cuts.clone(), loads }) < known
        {
            self.descend(cuts);
        }
        self.best.as_ref().map_or(known, |(time, _)| *time)
    }

    /// Plays cuts, then moves single layers between stages while the step gets shorter.
    fn descend(&mut self, start: Vec<usize>) {
        let program = self.program;
        let m = program.stager.micro_batches();
        if !legal(program, &start) || !self.seen.insert(start.clone()) {
            return;
        }
        let Some(first) = loads(program, &start, &mut self.known) else { return };
        let mut here = start;
        let mut time = self.play(&Split { cuts: here.clone(), loads: first });
        while self.replayed < self.most_replays && self.looked < MOST_LOOKED {
            let mut moved: Option<(f64, Vec<usize>)> = None;
            for cuts in neighbours(program, &here) {
                if self.replayed >= self.most_replays || self.looked >= MOST_LOOKED {
                    self.cut_short = true;
                    break;
                }
                self.looked += program.chunks * self.chains.len();
                let limit = moved.as_ref().map_or(time, |(known, _)| *known);
                let at_least = fastest(program, &cuts);
                if self.lift(m * busiest(program, &at_least)) >= limit || self.floor(&at_least) >= limit {
                    continue;
                }
                if !self.seen.insert(cuts.clone()) {
                    continue;
                }
                let Some(loads) = loads(program, &cuts, &mut self.known) else { continue };
                if self.floor(&loads) >= limit {
                    continue;
                }
                let split = Split { cuts, loads };
                let played = self.play(&split);
                if played < limit {
                    moved = Some((played, split.cuts));
                }
            }
            let Some((better, cuts)) = moved else { return };
            (time, here) = (better, cuts);
        }
        self.cut_short = true;
    }
}

impl Search<'_> {
    /// Chooses again what the best split recomputes, by what the step waits for.
    fn polish(&mut self) {
        if let Some((_, split)) = &self.best
            && let Some(player) = self.program.player()
        {
            let mut split = split.clone();
            polish(self.program, player, &split.cuts, &mut split.loads);
            self.play(&split);
        }
    }
}

/// Share of a step by which a played split may surprise the known chains before what it waited for joins them.
pub const UNFORESEEN: f64 = 2e-4;
/// Most chains.
const MOST_CHAINS: usize = 200;

/// What a step of these stages waits for; none where no list of operations is played, or its passes are not the program's.
pub fn foreseen(program: &Program, loads: &[Load]) -> Option<Path> {
    let pairing = program.stager.pairs().pairing();
    program.player()?.critical_path(&stage_times(pairing, loads), pairing)
}

/// Stages as the replay takes them; of a pair, what its passes take at the least.
pub fn stage_times(Pairing { slower, traffic }: Pairing, loads: &[Load]) -> Vec<StageTime> {
    let s = Seconds::new;
    let time = |(load, other): (&Load, &Load)| StageTime {
        forward: s(load.forward),
        backward: s(load.backward),
        wgrad: s(load.wgrad),
        paired: s(slower * (load.forward + other.backward) + traffic * (load.traffic + other.traffic)),
    };
    loads.iter().zip(loads.iter().rev()).map(time).collect()
}

/// Adds to the chains what a split's step waits for.
pub fn foresee(program: &Program, loads: &[Load], chains: &mut Vec<Path>) {
    if chains.len() < MOST_CHAINS
        && let Some(path) = foreseen(program, loads)
        && !chains.contains(&path)
    {
        chains.push(path);
    }
}

/// Most times that the bound sends the search to new splits.
const MOST_TURNS: usize = 3;

/// Moves single layers between stages while the replay gets shorter, from several starts and from the splits that the bound
/// is made of, until none of them is faster.
pub fn solve(program: &Program, (options, programs): (&Options, usize), mut step: impl FnMut(&Split) -> f64) -> Answer {
    let mut search = Search {
        program,
        step: &mut step,
        most_replays: options.most_replays,
        chains: chains(program),
        line: Edges::least(program).line(program, program.sends),
        best: None,
        replayed: 0,
        cut_short: false,
        looked: 0,
        seen: BTreeSet::new(),
        known: Known::new(),
    };
    for start in starts(program) {
        search.descend(start);
    }
    if search.best.is_none() {
        search.descend(nearest_split(program).1);
    }
    if options.rough {
        let proved = search.lift(program.stager.micro_batches() * bound::busiest(program));
        return Answer { best: search.best, bound: proved, replayed: search.replayed, cut_short: true };
    }
    if let Some((_, split)) = &search.best
        && let Some(cuts) = walk::walk(program, &search.chains, split.cuts.clone(), &mut search.known, programs)
    {
        search.descend(cuts);
    }
    let mut proved = 0.0_f64;
    let mut budget = Budget { left: bound::MOST_WORK / programs };
    let mut chains = search.chains.clone();
    for _ in 0..MOST_TURNS {
        let before = search.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
        let line = search.line;
        let mut play = |cuts: Vec<usize>| search.try_split(cuts);
        let bound = bound::of(program, &mut chains, (before, line), options.tolerance, &mut budget, &mut play);
        let (mut length, target) = (bound.length.min(bound.target), bound.target);
        // Only splits faster than what is known are looked at from here on.
        search.line = bound.line;
        for cuts in bound.met {
            if search.replayed < search.most_replays {
                search.descend(cuts);
            }
        }
        if let Some(columns) = bound.columns {
            match integer::choose(program, &columns, &search.chains, target) {
                Found::Optimal(chosen, value) => {
                    length = length.max(value.min(target));
                    let cuts: Vec<usize> = [0].into_iter().chain(chosen.iter().map(|column| column.b)).collect();
                    search.descend(cuts);
                }
                Found::Nothing => length = target,
                Found::Unknown => search.cut_short = true,
            }
        }
        proved = proved.max(search.lift(length).min(before));
        let now = search.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
        if proved >= now * (1.0 - options.tolerance.max(bound::ENOUGH)) || now >= before {
            break;
        }
    }
    search.polish();
    Answer { best: search.best, bound: proved, replayed: search.replayed, cut_short: search.cut_short }
}

/// Splits up to which all are looked at.
pub const MOST_ENUMERATED: f64 = 4000.0;

/// How many splits there are: cuts that leave no stage empty but those with an end of the model.
pub fn splits(program: &Program) -> f64 {
    let n = program.len();
    let mut ways = vec![0.0; n + 1];
    ways[0] = 1.0;
    for chunk in 0..program.chunks {
        let mut next = vec![0.0; n + 1];
        for (a, &so_far) in ways.iter().enumerate() {
            for b in (a..=n).filter(|&b| program.may_hold(chunk, a, b)) {
                next[b] += so_far;
            }
        }
        ways = next;
    }
    ways[n]
}

/// Looks at every split, and says what it proves: the least of the exact times where no rank had to choose what to recompute,
/// and of the chains' lengths where one had to and holds several stages, for which of them recomputes is then chosen alone.
pub fn enumerate(program: &Program, mut step: impl FnMut(&Split) -> f64, answer: &mut Answer) {
    let family = chains(program);
    let edges = Edges::least(program);
    let line = edges.line(program, program.sends);
    let longest = |loads: &[Load]| family.iter().map(|path| length(path, loads)).fold(0.0, f64::max);
    let floor = |loads: &[Load]| line.0 + line.1 * longest(loads);
    let mut known = Known::new();
    let mut proved = f64::INFINITY;
    let single = program.chunks == program.ranks;
    let mut cuts = vec![0; program.chunks + 1];
    cuts[program.chunks] = program.len();
    every_cut(program, 1, &mut cuts, &mut |cuts| {
        let time = answer.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
        let at_least = floor(&fastest(program, cuts));
        if at_least >= time {
            return;
        }
        let Some(loads) = loads(program, cuts, &mut known) else { return };
        let exact = single || loads.iter().all(|load| load.point.is_none());
        let split = Split { cuts: cuts.to_vec(), loads };
        let own = step(&split);
        answer.replayed += 1;
        proved = proved.min(if exact { own } else { at_least });
        if own < time {
            answer.best = Some((own, split));
        }
    });
    let best = answer.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
    answer.bound = answer.bound.max(proved.min(best));
}

/// Every legal cuts of a program's items, from stage `chunk` on. Cuts that leave too few items for the stages behind them are
/// not begun: with as many stages as items there are few cuts, and very many beginnings.
pub fn every_cut(program: &Program, chunk: usize, cuts: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
    let from = cuts[chunk - 1];
    if chunk == program.chunks {
        if program.may_hold(chunk - 1, from, cuts[chunk]) {
            visit(cuts);
        }
        return;
    }
    // All stages behind this one hold an item, but the last.
    let behind = program.chunks - 1 - chunk;
    for to in from..=program.len().saturating_sub(behind) {
        if program.may_hold(chunk - 1, from, to) {
            cuts[chunk] = to;
            every_cut(program, chunk + 1, cuts, visit);
        }
    }
}

/// Time of the rank that takes the longest.
fn busiest(program: &Program, loads: &[Load]) -> f64 {
    let mut ranks = vec![0.0; program.ranks];
    for (chunk, load) in loads.iter().enumerate() {
        ranks[program.rank_of(chunk)] += load.both();
    }
    ranks.into_iter().fold(0.0, f64::max)
}
