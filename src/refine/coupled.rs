//! Ranks that own several stages: a search over cuts, and what no cuts can beat.

use std::collections::BTreeSet;

use super::Options;
use super::blend::length;
use super::bound;
use super::decompose::Budget;
use super::integer::{self, Found};
use super::mixes::{Known, fastest, loads};
use super::program::{Load, Program};
use super::separable::{Answer, Split};
use super::walk;
use crate::schedule::paths::{Path, paths};
use crate::schedule::replay::{StageTime, critical_path};
use crate::units::Seconds;

/// All work of one rank.
fn rank_path(program: &Program, rank: usize) -> Path {
    let m = program.stager.micro_batches();
    let here: Vec<f64> =
        (0..program.chunks).map(|chunk| if program.rank_of(chunk) == rank { m } else { 0.0 }).collect();
    Path {
        rank: rank as u32,
        forward: here.clone(),
        backward: here,
        wgrad: vec![0.0; program.chunks],
        separate: false,
        sends: 0.0,
    }
}

/// Chains of the schedule; all work of each rank where it has no list.
pub fn chains(program: &Program) -> Vec<Path> {
    let plan = program.stager.plan();
    if program.is_closed() {
        (0..program.ranks).map(|rank| rank_path(program, rank)).collect()
    } else {
        paths(plan.schedule, plan.layout.pp, program.stager.micro_batches() as u32)
    }
}

/// Cuts at the shares of time that each stage should take: ranks alike, and a rank's stages alike but for the model's ends.
fn balanced(program: &Program) -> Vec<usize> {
    let n = program.len();
    let ends: Vec<f64> = (0..program.chunks).map(|chunk| program.fastest(chunk, 0, 0).both()).collect();
    let layers = program.layers_time(0, n);
    let mean = (layers + ends.iter().sum::<f64>()) / program.ranks as f64;
    let mut of_rank = vec![mean; program.ranks];
    for (chunk, end) in ends.iter().enumerate() {
        of_rank[program.rank_of(chunk)] -= end;
    }
    let v = (program.chunks / program.ranks) as f64;
    let mut cuts = vec![0];
    let mut target = 0.0;
    for chunk in 0..program.chunks - 1 {
        target += (of_rank[program.rank_of(chunk)] / v).max(0.0);
        let before = cuts[chunk];
        let near = |b: usize| (program.layers_time(0, b) - target).abs();
        let cut = (before..=n).min_by(|&a, &b| near(a).total_cmp(&near(b))).unwrap_or(n);
        cuts.push(cut);
    }
    cuts.push(n);
    repair(program, &mut cuts);
    cuts
}

/// Makes every stage that must hold a layer hold one.
fn repair(program: &Program, cuts: &mut [usize]) {
    let n = program.len();
    let last = cuts.len() - 1;
    for chunk in 1..last {
        let least = cuts[chunk - 1] + usize::from(chunk > 1);
        cuts[chunk] = cuts[chunk].max(least);
    }
    for chunk in (1..last).rev() {
        let most = if chunk + 1 == last { n } else { cuts[chunk + 1] - 1 };
        cuts[chunk] = cuts[chunk].min(most);
    }
}

/// Whether cuts leave no stage empty that may not be.
pub fn legal(program: &Program, cuts: &[usize]) -> bool {
    (0..program.chunks)
        .all(|chunk| cuts[chunk] <= cuts[chunk + 1] && program.may_hold(chunk, cuts[chunk], cuts[chunk + 1]))
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

/// Share of a step by which a played split may surprise the known chains before what it waited for joins them.
pub const UNFORESEEN: f64 = 2e-4;
/// Most chains.
const MOST_CHAINS: usize = 200;

/// What a step of these stages waits for; none where no list of operations is played.
pub fn foreseen(program: &Program, loads: &[Load]) -> Option<Path> {
    if !program.stager.plays() {
        return None;
    }
    let (plan, m) = (program.stager.plan(), program.stager.micro_batches() as u32);
    critical_path(plan.schedule, plan.layout.pp, m, &stage_times(loads))
}

/// Stages as the replay takes them.
pub fn stage_times(loads: &[Load]) -> Vec<StageTime> {
    let s = Seconds::new;
    let time = |load: &Load| {
        let (forward, backward, wgrad) = (s(load.forward), s(load.backward), s(load.wgrad));
        StageTime { forward, backward, wgrad, ..StageTime::default() }
    };
    loads.iter().map(time).collect()
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
pub fn solve(
    program: &Program,
    (options, programs): (&Options, usize),
    sends: f64,
    mut step: impl FnMut(&Split) -> f64,
) -> Answer {
    let mut search = Search {
        program,
        step: &mut step,
        most_replays: options.most_replays,
        chains: chains(program),
        line: bound::edges(program).line(program, sends),
        best: None,
        replayed: 0,
        cut_short: false,
        looked: 0,
        seen: BTreeSet::new(),
        known: Known::new(),
    };
    let own = search.chains.len();
    for start in starts(program) {
        search.descend(start);
    }
    if let Some((_, split)) = &search.best
        && let Some(cuts) = walk::walk(program, &search.chains, split.cuts.clone(), &mut search.known, programs)
    {
        search.descend(cuts);
    }
    let mut proved = 0.0_f64;
    let mut budget = Budget { left: bound::MOST_WORK / programs };
    for _ in 0..MOST_TURNS {
        let before = search.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
        let chains = search.chains.len();
        let bound = bound::of(program, (&search.chains, own), (before, search.line), options.tolerance, &mut budget);
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
        if proved >= now * (1.0 - options.tolerance.max(bound::ENOUGH))
            || (now >= before && search.chains.len() == chains)
        {
            break;
        }
    }
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
pub fn enumerate(program: &Program, sends: f64, mut step: impl FnMut(&Split) -> f64, answer: &mut Answer) {
    let family = chains(program);
    let edges = bound::edges(program);
    let floor =
        |loads: &[Load]| edges.lift(program, family.iter().map(|path| length(path, loads)).fold(0.0, f64::max) + sends);
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

fn every_cut(program: &Program, chunk: usize, cuts: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
    let from = cuts[chunk - 1];
    if chunk == program.chunks {
        if program.may_hold(chunk - 1, from, cuts[chunk]) {
            visit(cuts);
        }
        return;
    }
    for to in from..=program.len() {
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

/// Where the search starts: balanced by time, even by layers with what is too many taken from the ends, and with it added.
fn starts(program: &Program) -> Vec<Vec<usize>> {
    let n = program.len();
    let from_counts = |counts: Vec<u32>| {
        let mut cuts = vec![0];
        for count in counts {
            cuts.push(cuts[cuts.len() - 1] + count as usize);
        }
        repair(program, &mut cuts);
        cuts
    };
    let mut starts = vec![balanced(program)];
    starts.push(from_counts(crate::cost::split::even(n as u32, program.chunks as u32)));
    let (each, more) = (n / program.chunks, n % program.chunks);
    starts.push(from_counts((0..program.chunks).map(|chunk| (each + usize::from(chunk < more)) as u32).collect()));
    starts
}

/// Cuts with one layer moved from one stage to another, those between shifting along.
fn neighbours(program: &Program, cuts: &[usize]) -> Vec<Vec<usize>> {
    let chunks = program.chunks;
    let mut found = Vec::new();
    for low in 0..chunks {
        for high in low + 1..chunks {
            for up in [true, false] {
                let mut moved = cuts.to_vec();
                let mut fits = true;
                for cut in &mut moved[low + 1..=high] {
                    if up {
                        *cut += 1;
                    } else if *cut > 0 {
                        *cut -= 1;
                    } else {
                        fits = false;
                    }
                }
                if fits && moved[high] <= cuts[chunks] && legal(program, &moved) {
                    found.push(moved);
                }
            }
        }
    }
    found
}

/// The split that comes nearest to fitting under the smallest mixes, and its fullest rank.
pub fn nearest_split(program: &Program) -> (usize, Vec<usize>) {
    let excess = |cuts: &[usize]| -> (f64, usize) {
        let mut of_rank: Vec<f64> = program.room.iter().map(|room| -room).collect();
        for chunk in 0..program.chunks {
            let rank = program.rank_of(chunk);
            of_rank[rank] += program.least_excess(chunk, cuts[chunk], cuts[chunk + 1]) + program.room[rank];
        }
        let rank = (0..of_rank.len()).max_by(|&a, &b| of_rank[a].total_cmp(&of_rank[b])).unwrap_or(0);
        (of_rank[rank], rank)
    };
    let mut best = starts(program)
        .into_iter()
        .filter(|cuts| legal(program, cuts))
        .min_by(|a, b| excess(a).0.total_cmp(&excess(b).0));
    let mut here = best.take().unwrap_or_else(|| balanced(program));
    let mut least = excess(&here);
    for _ in 0..program.len() {
        let near = neighbours(program, &here).into_iter().min_by(|a, b| excess(a).0.total_cmp(&excess(b).0));
        match near {
            Some(cuts) if excess(&cuts).0 < least.0 => {
                least = excess(&cuts);
                here = cuts;
            }
            Some(_) | None => break,
        }
    }
    (least.1, here)
}
