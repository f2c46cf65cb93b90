//! What no cuts can beat, where ranks own several stages.

use super::branch::{self, Budget};
use super::configs::Configs;
use super::integer::{self, Column};
use super::network::{Multipliers, Network};
use super::program::Program;
use meshwright_engine::schedule::paths::Path;

/// A bound, and what is left beneath it.
pub struct Bound {
    /// No split that fits has a shorter longest chain, but for those beyond the target.
    pub length: f64,
    /// The step that a pipeline's length gives, of every split within the target: at none, and for one second more.
    pub line: (f64, f64),
    /// The target: the length of a pipeline whose step is what is known.
    pub target: f64,
    /// Splits that the bound is made of.
    pub met: Vec<Vec<usize>>,
    /// All stages that a split under the target may have, where they are few.
    pub columns: Option<Vec<Column>>,
}

/// A lower bound on the longest chain of every split that fits and whose step is under `known`; and splits that it is made of,
/// to be played. `line` = the step that a pipeline's length gives. Chains that are met join the others.
///
/// Some rank is the busiest, and takes no less for a micro-batch than where the layers are shared out with no regard to their
/// order ([`Configs::busiest`]). Beyond that, what the ranks hold is branched on ([`branch::prove`]).
pub fn of(
    program: &Program,
    chains: &mut Vec<Path>,
    (known, line): (f64, (f64, f64)),
    tolerance: f64,
    budget: &mut Budget,
    play: &mut dyn FnMut(Vec<usize>) -> f64,
) -> Bound {
    let m = program.stager.micro_batches();
    let (length, line, met) = (f64::INFINITY, line, Vec::new());
    let target = (known - line.0) / line.1;
    let ceiling = target / m * (1.0 + 1e-9);
    let nothing = Bound { length, line, target, met, columns: None };
    let least = busiest(program);
    if least >= ceiling {
        return nothing;
    }
    let network = Network::new(program, ceiling);
    if network.is_empty() {
        return nothing;
    }
    let none = Multipliers { chains: vec![1.0 / chains.len() as f64; chains.len()], memory: vec![0.0; program.ranks] };
    let scale = if target.is_finite() { target } else { m * least };
    let (root, multipliers, met) = network.raise(none, chains, scale, (ROOT_ROUNDS, &mut MOST_PRICED.clone()));
    if !target.is_finite() {
        return Bound { length: root, met, ..nothing };
    }
    let mut found = Bound { length: root, met, ..nothing };
    if let Some(configs) = Configs::new(program, &network, ceiling) {
        let narrow = configs.line(program, &network, ceiling, program.sends);
        if narrow.0 > line.0 {
            found.line = narrow;
            found.target = (known - narrow.0) / narrow.1;
        }
        let enough = tolerance.max(ENOUGH);
        let line = found.line;
        let goal = |known: f64| (known * (1.0 - enough) - line.0) / line.1;
        let least = least.max(configs.busiest(program, &network));
        let mut play = |cuts: Vec<usize>| goal(play(cuts));
        let length = branch::prove(program, &network, &configs, chains, goal(known), (budget, &mut play));
        found.length = found.length.max(m * least).max(length);
    }
    found.met.sort();
    found.met.dedup();
    if found.length < found.target * (1.0 - tolerance) {
        found.columns = network.columns(&multipliers, chains, found.target, integer::MOST_COLUMNS);
    }
    found
}

/// Rounds of the network's multipliers.
const ROOT_ROUNDS: usize = 150;
/// Most arcs that they price, and most work of the branches, the same on every machine.
const MOST_PRICED: usize = 20_000_000;
pub const MOST_WORK: usize = 3_200_000_000;
/// A proof that is enough: to prove more takes longer than it is worth.
pub const ENOUGH: f64 = 9e-3;

/// Most states of the sharing out; beyond, the mean over ranks is the bound.
const MOST_STATES: usize = 20_000;

/// The least time of the busiest rank over all ways to share the layers out among ranks, whatever their order: each rank takes
/// a number of each kind; its states and what it keeps for its least in-flight chunk must fit.
pub fn busiest(program: &Program) -> f64 {
    let kinds = program.layer_kinds();
    let mut all = vec![0_usize; kinds];
    for &kind in &program.items {
        all[kind] += 1;
    }
    let time = program.least_layers();
    let mut ends = vec![0.0; program.ranks];
    for chunk in 0..program.chunks {
        ends[program.rank_of(chunk)] += program.fastest(chunk, 0, 0).busy;
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

/// Whether ranks under a ceiling can take all layers.
fn share_out(all: &[usize], time: &[f64], ends: &[f64], main: usize, others: &[usize], ceiling: f64) -> bool {
    let takes = |rank: usize| {
        let end = ends[rank];
        // What this rank may take of the other kinds, and of the main kind with that.
        let mut takes: Vec<Vec<usize>> = vec![vec![0; others.len()]];
        for (at, &kind) in others.iter().enumerate() {
            let mut more = Vec::new();
            for counts in &takes {
                for n in 0..=all[kind] {
                    let mut counts = counts.clone();
                    counts[at] = n;
                    let used: f64 = counts.iter().zip(others).map(|(&n, &kind)| n as f64 * time[kind]).sum();
                    if used + end > ceiling {
                        break;
                    }
                    more.push(counts);
                }
            }
            takes = more;
        }
        let with_mains = |counts: Vec<usize>| {
            let used: f64 = counts.iter().zip(others).map(|(&n, &kind)| n as f64 * time[kind]).sum();
            let mains = ((ceiling - end - used) / time[main]).floor() as usize;
            (counts, mains)
        };
        takes.into_iter().map(with_mains).collect()
    };
    shared_out(all, main, others, ends.len(), takes)
}

/// Whether ranks can take all layers, where `takes` says of each what it may take of the `others` kinds, and of the `main` kind
/// with that: for every count of the others, the most of the main one.
pub fn shared_out(
    all: &[usize],
    main: usize,
    others: &[usize],
    ranks: usize,
    takes: impl Fn(usize) -> Vec<(Vec<usize>, usize)>,
) -> bool {
    let sizes: Vec<usize> = others.iter().map(|&kind| all[kind] + 1).collect();
    let states: usize = sizes.iter().product();
    let mut most: Vec<Option<usize>> = vec![None; states];
    most[0] = Some(0);
    for rank in 0..ranks {
        let takes = takes(rank);
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
