//! What no cuts can beat, where ranks own several stages.

use super::integer::{self, Column};
use super::network::{Branch, Multipliers, Network};
use super::program::Program;
use super::separable::Edges;
use crate::schedule::paths::Path;

/// A bound, and what is left beneath it.
pub struct Bound {
    /// No split that fits has a shorter longest chain, but for those beyond the target.
    pub length: f64,
    /// Splits that the bound is made of.
    pub met: Vec<Vec<usize>>,
    /// All stages that a split under the target may have, where they are few.
    pub columns: Option<Vec<Column>>,
}

/// A lower bound on the longest chain of every split that fits and whose longest chain is under `target`; and splits that it is
/// made of, to be played.
///
/// Some rank i is the busiest, and takes T ≥ T* for a micro-batch, where T* shares the layers out with no regard to their
/// order ([`busiest`]). For each rank that it may be, and for T in an interval, multipliers raise the bound
/// ([`Network::raise`]); the interval with the least bound is halved while that helps.
pub fn of(program: &Program, chains: &[Path], target: f64, tolerance: f64) -> Bound {
    let m = program.stager.micro_batches();
    let goal = target * (1.0 - tolerance);
    let ceiling = target / m * (1.0 + 1e-9);
    let least = busiest(program);
    if least >= ceiling {
        return Bound { length: target, met: Vec::new(), columns: None };
    }
    let network = Network::new(program, ceiling);
    if network.is_empty() {
        return Bound { length: target, met: Vec::new(), columns: None };
    }
    let none = Multipliers {
        chains: vec![1.0 / chains.len() as f64; chains.len()],
        memory: vec![0.0; program.ranks],
        most: vec![0.0; program.ranks],
        least: 0.0,
    };
    let whole = Branch { rank: None, low: least, high: ceiling };
    let mut budget = MOST_PRICED;
    let finite = target.is_finite();
    let scale = if finite { target } else { m * least };
    let (root, multipliers, mut met) = network.raise(none, chains, &whole, scale, (ROOT_ROUNDS, &mut budget));
    if !finite || root >= goal {
        return Bound { length: root.min(target), met, columns: None };
    }
    let mut intervals = vec![(root, least * (1.0 - 1e-12), ceiling)];
    for _ in 0..MOST_INTERVALS {
        let Some(at) = (0..intervals.len()).min_by(|&a, &b| intervals[a].0.total_cmp(&intervals[b].0)) else { break };
        let (known, low, high) = intervals.swap_remove(at);
        if known >= goal || high - low <= FINEST * high {
            intervals.push((known, low, high));
            break;
        }
        let middle = if high > 1.03 * low { low * 1.01 } else { f64::midpoint(low, high) };
        for (low, high) in [(low, middle), (middle, high)] {
            let within = Network::new(program, high * (1.0 + 1e-12));
            let mut bound = f64::INFINITY;
            for rank in (0..program.ranks).filter(|_| !within.is_empty()) {
                let branch = Branch { rank: Some(rank), low, high };
                let mut of_rank = known;
                for begin in starts(program, chains, &multipliers, &branch, scale) {
                    let (value, _, cuts) = within.raise(begin, chains, &branch, scale, (ROUNDS, &mut budget));
                    met.extend(cuts.into_iter().rev().take(2));
                    of_rank = of_rank.max(value);
                    if of_rank >= goal {
                        break;
                    }
                }
                bound = bound.min(of_rank);
                if bound <= known {
                    break; // no rank makes up for it
                }
            }
            intervals.push((bound.max(known), low, high));
        }
    }
    let bound = intervals.iter().map(|interval| interval.0).fold(f64::INFINITY, f64::min);
    met.sort();
    met.dedup();
    // Rank times are left to the program's own rows: these columns are those of no branch.
    let columns =
        if bound < goal { network.columns(&multipliers, chains, &whole, target, integer::MOST_COLUMNS) } else { None };
    Bound { length: bound.min(target), met, columns }
}

/// Where multipliers of a branch begin: the rank's own chain, whose visits of the rank are worth the least that it takes; and
/// what was best with no branch.
fn starts(program: &Program, chains: &[Path], root: &Multipliers, branch: &Branch, scale: f64) -> Vec<Multipliers> {
    let Some(rank) = branch.rank else { return vec![root.clone()] };
    let mut all = Vec::new();
    if let Some(own) = chains.iter().rposition(|path| path.rank as usize == rank) {
        let path = &chains[own];
        let visits = (0..program.chunks).filter(|&stage| program.rank_of(stage) == rank);
        let visits = visits.map(|stage| path.forward[stage].min(path.backward[stage])).fold(f64::INFINITY, f64::min);
        let mut weights = vec![0.0; chains.len()];
        weights[own] = 1.0;
        all.push(Multipliers { chains: weights, least: visits * branch.low / scale, ..root.clone() });
    }
    all.push(root.clone());
    all
}

/// Rounds of the multipliers with no branch, and within one.
const ROOT_ROUNDS: usize = 150;
const ROUNDS: usize = 30;
/// Most arcs priced for one bound, the same on every machine.
const MOST_PRICED: usize = 40_000_000;
/// Most intervals halved.
const MOST_INTERVALS: usize = 4;
/// Width below which an interval is not halved, as a share.
const FINEST: f64 = 1e-3;

/// What the edges of a step are at their best, whatever the split: parameters shared out evenly; nothing is known of the
/// windows but that the whole model is no longer.
pub fn edges(program: &Program) -> Edges {
    let n = program.len();
    let (mut all, mut forward, mut backward) = ([0.0; 2], 0.0, 0.0);
    for chunk in 0..program.chunks {
        let items = if chunk == 0 { n } else { 0 };
        let [dense, experts] = program.parameters(chunk, 0, items);
        all = [all[0] + dense, all[1] + experts];
        let load = program.fastest(chunk, 0, items);
        (forward, backward) = (forward + load.forward / program.share, backward + load.backward / program.share);
    }
    let ranks = program.ranks as f64;
    let mean = (all[0] + all[1]) / ranks;
    // Of a mixture, the heaviest rank may hold few experts or little else: nothing is said of either.
    let dense = if all[1] > 0.0 { 0.0 } else { mean };
    Edges { dense, experts: 0.0, forward, backward }
}

/// Most states of the sharing out; beyond, the mean over ranks is the bound.
const MOST_STATES: usize = 20_000;

/// The least time of the busiest rank over all ways to share the layers out among ranks, whatever their order: each rank takes
/// a number of each kind; its states and what it keeps for its least in-flight chunk must fit.
pub fn busiest(program: &Program) -> f64 {
    let kinds = program.options.len();
    let mut all = vec![0_usize; kinds];
    for &kind in &program.items {
        all[kind] += 1;
    }
    let time: Vec<f64> = program.options.iter().map(|o| (o[0].time.forward + o[0].time.backward).get()).collect();
    let mut ends = vec![0.0; program.ranks];
    for chunk in 0..program.chunks {
        ends[program.rank_of(chunk)] += program.fastest(chunk, 0, 0).both();
    }
    let whole: f64 = all.iter().zip(&time).map(|(&n, t)| n as f64 * t).sum::<f64>() + ends.iter().sum::<f64>();
    let mean = whole / program.ranks as f64;
    let mut low = ends.iter().copied().fold(mean, f64::max);
    // The kind with the most layers is maximised, the others are the state.
    let Some(main) = (0..kinds).max_by_key(|&kind| all[kind]) else { return low };
    let others: Vec<usize> = (0..kinds).filter(|&kind| kind != main && all[kind] > 0).collect();
    let states: usize = others.iter().map(|&kind| all[kind] + 1).product();
    if states > MOST_STATES || time[main] <= 0.0 {
        return low;
    }
    let feasible = |ceiling: f64| share_out(&all, &time, &ends, main, &others, ceiling * (1.0 + 1e-12));
    if feasible(low) {
        return low;
    }
    let mut high = whole;
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

/// Whether ranks under a ceiling can take all layers: for every count of the other kinds, the most of the main kind.
fn share_out(all: &[usize], time: &[f64], ends: &[f64], main: usize, others: &[usize], ceiling: f64) -> bool {
    let sizes: Vec<usize> = others.iter().map(|&kind| all[kind] + 1).collect();
    let states: usize = sizes.iter().product();
    let mut most: Vec<Option<usize>> = vec![None; states];
    most[0] = Some(0);
    for end in ends {
        // What this rank may take of the other kinds, and of the main kind with that.
        let mut takes: Vec<(Vec<usize>, usize)> = vec![(vec![0; others.len()], 0)];
        for at in 0..others.len() {
            let mut more = Vec::new();
            for (counts, _) in &takes {
                for n in 0..sizes[at] {
                    let mut counts = counts.clone();
                    counts[at] = n;
                    let used: f64 = counts.iter().zip(others).map(|(&n, &kind)| n as f64 * time[kind]).sum();
                    if used + end > ceiling {
                        break;
                    }
                    more.push((counts, 0));
                }
            }
            takes = more;
        }
        for (counts, mains) in &mut takes {
            let used: f64 = counts.iter().zip(others).map(|(&n, &kind)| n as f64 * time[kind]).sum();
            *mains = ((ceiling - end - used) / time[main]).floor() as usize;
        }
        let mut next: Vec<Option<usize>> = vec![None; states];
        for (state, &had) in most.iter().enumerate() {
            let Some(had) = had else { continue };
            let mut rest = state;
            let used: Vec<usize> = sizes
                .iter()
                .map(|size| {
                    let digit = rest % size;
                    rest /= size;
                    digit
                })
                .collect();
            for (counts, mains) in &takes {
                let (mut index, mut scale) = (0, 1);
                for ((used, n), size) in used.iter().zip(counts).zip(&sizes) {
                    let sum = (used + n).min(size - 1);
                    index += sum * scale;
                    scale *= size;
                }
                next[index] = next[index].max(Some(had + mains));
            }
        }
        most = next;
    }
    most[states - 1].is_some_and(|most| most >= all[main])
}
