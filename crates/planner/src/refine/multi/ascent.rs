//! Subgradient ascent of the Lagrangian dual at one branch-and-bound node: the volume algorithm.
//!
//! Barahona and Anbil's variant of the subgradient method: multipliers move from the best ones met along the
//! subgradient at a running mean of the minimisers, and that mean tends to a solution of the linear relaxation. Its
//! critical path is the row to add next, and its shares say where to branch.

use super::dual::{AscentProgress, Dual, Minimiser, PathPool, PathView, VIOLATED};
use super::multipliers::{Multipliers, PathMultiplier};
use super::packed::PackedColumns;

/// Share of the mean that the newest minimiser makes up, how many rounds without a better bound shrink the step, and
/// most rounds: for the root, for a root of many columns, whose mean must span more of them, and for the nodes below.
/// Tried on the plans of docs/refine.md; the bound is valid for any.
const AT_ROOT: Schedule = Schedule { newest: 0.02, patience: 40, rounds: 4000, critical_path_every: 5 };
const AT_WIDE_ROOT: Schedule = Schedule { newest: 0.01, patience: 60, rounds: 20_000, critical_path_every: 2 };
const BELOW: Schedule = Schedule { newest: 0.1, patience: 12, rounds: 300, critical_path_every: 10 };
/// Columns of a root from which it is wide.
const WIDE: usize = 5000;
/// Length of a step as a share of Polyak's: at first, at most and at the end; its growth with a better bound, its
/// shrinkage without.
const FIRST_PACE: f64 = 0.1;
const MOST_PACE: f64 = 2.0;
const LEAST_PACE: f64 = 0.003;
const FASTER: f64 = 1.05;
const SLOWER: f64 = 0.85;
/// Share of the cutoff by which a bound must rise to count as better.
const BETTER: f64 = 1e-6;
/// Rounds after which paths without weight are dropped.
const DROP_EVERY: usize = 50;
/// Rounds after which columns that no split under the cutoff has are dropped.
const FIX_EVERY: usize = 100;
/// Work of the bounds of all columns, in evaluations of the dual: shortest paths from both ends, and their sums.
const EACH: usize = 3;

/// Settings of an ascent.
struct Schedule {
    /// Share of the mean that the newest minimiser makes up.
    newest: f64,
    /// Rounds without a better bound that shrink the step.
    patience: usize,
    /// Most rounds.
    rounds: usize,
    /// Rounds from one critical path of the mean to the next.
    critical_path_every: usize,
}

/// Branch-and-bound node: columns that each rank may still take.
#[derive(Clone)]
pub struct SearchNode {
    /// Columns of each rank, ascending.
    pub left: Vec<Vec<usize>>,
    /// Multipliers to begin with.
    pub multipliers: Multipliers,
    /// Lower bound on the longest dependency path of its splits.
    pub bound: f64,
    /// Number of branchings above it.
    pub depth: usize,
    /// Whether its cuts are fixed, so that only recomputation is left to choose.
    pub leaf: bool,
}

/// Outcome of a node's ascent.
pub struct Ascended {
    /// The node without columns over the cutoff; none where it is pruned.
    pub rest: Option<Rest>,
    /// Columns that hold the model's layers of each kind and whose paths are all shorter than the cutoff, if any were met, with the
    /// longest of those.
    pub short: Option<ShortColumns>,
    /// Critical paths that were met.
    pub fresh: PathPool,
    /// Multiplications, and operations simulated.
    pub work: usize,
}

/// Columns whose dependency paths are all shorter than a cutoff.
pub struct ShortColumns {
    /// Column of each rank.
    pub chosen: Vec<usize>,
    /// Length of the longest of their paths, in seconds.
    pub longest: f64,
}

/// Share of a column in the running mean of the minimisers.
#[derive(Clone, Copy, Debug)]
pub struct ColumnShare {
    /// Index of the column.
    pub column: usize,
    /// Its share.
    pub share: f64,
}

/// Node that survives its ascent.
pub struct Rest {
    /// The node, without columns that no split under the cutoff has.
    pub node: SearchNode,
    /// Running mean of the minimisers, as shares of each rank's columns.
    pub shares: Vec<Vec<ColumnShare>>,
    /// Lower bound of the splits with a column, by rank and column left.
    pub each: Vec<Vec<f64>>,
}

/// Raises the bound of a node until it reaches the cutoff, the step length vanishes, or columns under the cutoff are met that hold
/// the model's layers of each kind.
pub fn ascend(dual: &Dual, pool: &PathPool, node: SearchNode, cutoff: f64) -> Ascended {
    let mut progress = AscentProgress { paths: PathView::new(pool), work: 0 };
    let mut short = None;
    let rest = ascended(dual, node, cutoff, &mut progress, &mut short);
    Ascended { rest, short, fresh: progress.paths.fresh, work: progress.work }
}

/// The node after its ascent; `None` where it is pruned. Columns as in [`Ascended::short`] are left in `short`.
fn ascended(
    dual: &Dual,
    mut node: SearchNode,
    cutoff: f64,
    progress: &mut AscentProgress,
    short: &mut Option<ShortColumns>,
) -> Option<Rest> {
    let mut packed = dual.packed(&node.left);
    let schedule = match (node.depth, packed.len()) {
        (0, ..WIDE) => AT_ROOT,
        (0, WIDE..) => AT_WIDE_ROOT,
        _ => BELOW,
    };
    let mut at = node.multipliers.clone();
    let mut best = f64::NEG_INFINITY;
    let (mut pace, mut stalled) = (FIRST_PACE, 0);
    let mut mean = Mean::new(node.left.len());
    for round in 0..schedule.rounds {
        progress.work += dual.work(&packed, &at);
        let minimiser = dual.minimise(&packed, &at, &progress.paths)?;
        mean.take(dual, &minimiser, schedule.newest);
        if minimiser.value > best + BETTER * cutoff {
            (pace, stalled) = ((pace * FASTER).min(MOST_PACE), 0);
        } else {
            stalled += 1;
        }
        if minimiser.value > best {
            best = minimiser.value;
            node.multipliers.clone_from(&at);
        }
        if best >= cutoff {
            return None;
        }
        if progress.paths.lengths(&dual.times(&minimiser), &at).iter().all(|&length| length < cutoff) {
            let loads = dual.loads(&dual.times(&minimiser));
            match dual.violated_path(&loads, &at, cutoff, progress) {
                Some(path) => node.multipliers.paths.push(PathMultiplier { path, weight: 0.0 }),
                None if dual.missing(&minimiser).iter().all(|&missing| missing == 0.0) => {
                    let longest = dual.longest_path(&loads, &progress.paths);
                    *short = Some(ShortColumns { chosen: minimiser.chosen, longest });
                    break;
                }
                None => {} // The multipliers of the kinds raise the bound further.
            }
        } else if round % schedule.critical_path_every == 0 || (stalled == 0 && round % 2 == 0) {
            let loads = dual.loads(&mean.times);
            if let Some(path) = dual.violated_path(&loads, &at, best * (1.0 + VIOLATED), progress) {
                node.multipliers.paths.push(PathMultiplier { path, weight: 0.0 });
            }
        }
        if stalled >= schedule.patience {
            (pace, stalled) = (pace * SLOWER, 0);
            if pace < LEAST_PACE {
                break;
            }
        }
        let lengths = progress.paths.lengths(&mean.times, &node.multipliers);
        let Some(next) = node.multipliers.stepped(dual.unit, &lengths, &mean.missing, pace * (cutoff - best)) else {
            break;
        };
        at = next;
        if round % DROP_EVERY == DROP_EVERY - 1 {
            drop_unweighted(&mut node.multipliers, &mut at);
        }
        if round % FIX_EVERY == FIX_EVERY - 1 {
            let before = packed.len();
            progress.work += EACH * dual.work(&packed, &at);
            drop_columns(dual, &packed, &mut node, cutoff, &progress.paths)?;
            if node.left.iter().map(Vec::len).sum::<usize>() < before {
                packed = dual.packed(&node.left);
            }
        }
    }
    node.bound = node.bound.max(best);
    progress.work += EACH * dual.work(&packed, &node.multipliers);
    let each = drop_columns(dual, &packed, &mut node, cutoff, &progress.paths)?;
    Some(Rest { node, shares: mean.shares, each })
}

/// Drops the columns of a node whose own bound reaches the cutoff, and returns the bounds of the others; `None` if a rank has none
/// left.
fn drop_columns(
    dual: &Dual,
    packed: &PackedColumns,
    node: &mut SearchNode,
    cutoff: f64,
    paths: &PathView,
) -> Option<Vec<Vec<f64>>> {
    let mut each = dual.bound_of_each(packed, &node.multipliers, paths);
    for (left, each) in node.left.iter_mut().zip(&mut each) {
        let mut bounds = each.iter();
        left.retain(|_| bounds.next().is_some_and(|&bound| bound < cutoff));
        each.retain(|&bound| bound < cutoff);
    }
    (!node.left.iter().any(Vec::is_empty)).then_some(each)
}

/// Running mean of the minimisers.
struct Mean {
    /// Times that paths count.
    times: Vec<f64>,
    /// Layers of each kind that are missing.
    missing: Vec<f64>,
    /// Shares of each rank's columns.
    shares: Vec<Vec<ColumnShare>>,
}

impl Mean {
    fn new(ranks: usize) -> Self {
        Self { times: Vec::new(), missing: Vec::new(), shares: vec![Vec::new(); ranks] }
    }

    /// Moves towards a minimiser by the share `newest`; the first minimiser replaces the mean.
    fn take(&mut self, dual: &Dual, minimiser: &Minimiser, newest: f64) {
        let newest = if self.times.is_empty() { 1.0 } else { newest };
        let (times, missing) = (dual.times(minimiser), dual.missing(minimiser));
        self.times.resize(times.len(), 0.0);
        self.missing.resize(missing.len(), 0.0);
        self.times.iter_mut().zip(times).for_each(|(mean, own)| *mean += newest * (own - *mean));
        self.missing.iter_mut().zip(missing).for_each(|(mean, own)| *mean += newest * (own - *mean));
        for (shares, &chosen) in self.shares.iter_mut().zip(&minimiser.chosen) {
            for of in shares.iter_mut() {
                of.share *= 1.0 - newest;
            }
            match shares.iter_mut().find(|of| of.column == chosen) {
                Some(of) => of.share += newest,
                None => shares.push(ColumnShare { column: chosen, share: newest }),
            }
            shares.retain(|of| of.share > 1e-4);
        }
    }
}

/// Drops paths that have no weight in either of two multipliers, which list the same paths.
fn drop_unweighted(one: &mut Multipliers, other: &mut Multipliers) {
    let keep: Vec<bool> = one.paths.iter().zip(&other.paths).map(|(a, b)| a.weight > 0.0 || b.weight > 0.0).collect();
    for multipliers in [one, other] {
        let mut kept = keep.iter();
        multipliers.paths.retain(|_| kept.next().is_some_and(|&kept| kept));
    }
}
