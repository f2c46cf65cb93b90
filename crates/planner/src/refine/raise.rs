//! Raises what a branch takes at the least, by prices that follow what they chose.

use super::weigh::{Field, Known, Pool, Prices, SURPRISE};

/// Most rounds of prices before the first branch, and on a branch. How many are worth their time was tried
/// on plans of docs/refine.md (docs/decisions/0007-prices-not-programs.md); no bound depends on it but by how near it comes.
const ROUNDS_AT_ROOT: usize = 4000;
const ROUNDS: usize = 150;
/// Rounds without a better bound after which prices are moved by less; the least pace.
const PATIENCE: usize = 8;
const SLOWER: f64 = 0.85;
const LEAST_PACE: f64 = 0.02;
/// Share of the goal that is a better bound.
const BETTER: f64 = 1e-6;
/// What a mean of what prices chose forgets in a round.
const FORGETS: f64 = 0.03;
/// What pricing a choice takes, in multiplications.
const CHOICE: usize = 24;

/// Splits that are left.
pub struct Branch {
    /// Choices of each rank.
    pub left: Vec<Vec<usize>>,
    /// Where its prices begin.
    pub prices: Prices,
    /// No split of it has a shorter longest chain.
    pub bound: f64,
    /// How many choices were made on the way to it.
    pub depth: usize,
    /// Whether its cuts are known: what is left to choose is what is recomputed.
    pub leaf: bool,
}

/// What raising a branch came to.
pub struct Raised {
    /// What is left of it; none where no split under the goal is.
    pub rest: Option<Rest>,
    /// Choices with no chain as long as the goal, if any were met.
    pub short: Option<Vec<usize>>,
    /// Chains that were met.
    pub fresh: Pool,
    /// Multiplications, and operations played.
    pub work: usize,
}

/// What is left of a branch.
pub struct Rest {
    /// Without choices that no split under the goal has.
    pub branch: Branch,
    /// What its prices chose, as shares of each rank's choices.
    pub shares: Vec<Vec<(usize, f64)>>,
    /// By rank and choice left: no split with it has a shorter longest chain.
    pub each: Vec<Vec<f64>>,
}

/// Raises the bound of a branch until it is the goal, prices no longer raise it, or some choices have no chain as long as the goal.
pub fn raise(field: &Field, pool: &Pool, branch: Branch, goal: f64) -> Raised {
    let mut known = Known::new(pool);
    let (mut work, mut short) = (0, None);
    let rest = raised(field, branch, goal, (&mut known, &mut work, &mut short));
    Raised { rest, short, fresh: known.fresh, work }
}

fn raised(
    field: &Field,
    mut here: Branch,
    goal: f64,
    (known, work, short): (&mut Known, &mut usize, &mut Option<Vec<usize>>),
) -> Option<Rest> {
    let choices: usize = here.left.iter().map(Vec::len).sum();
    let mut at = here.prices.clone();
    let mut most = f64::NEG_INFINITY;
    let (mut pace, mut stalled) = (1.0, 0);
    let mut shares: Vec<Vec<(usize, f64)>> = vec![Vec::new(); here.left.len()];
    for _ in 0..if here.depth == 0 { ROUNDS_AT_ROOT } else { ROUNDS } {
        *work += CHOICE * choices + 2 * field.width() * at.chains.len();
        let priced = field.priced(&here.left, &at, known)?;
        for (shares, &chosen) in shares.iter_mut().zip(&priced.chosen) {
            remember(shares, chosen);
        }
        stalled = if priced.value > most + BETTER * goal { 0 } else { stalled + 1 };
        if priced.value > most {
            most = priced.value;
            here.prices.clone_from(&at);
        }
        if most >= goal {
            return None;
        }
        let mut lengths = field.lengths(&priced.chosen, &at, known);
        if lengths.iter().all(|&length| length < goal) {
            let certain: Vec<Vec<(usize, f64)>> = priced.chosen.iter().map(|&choice| vec![(choice, 1.0)]).collect();
            let Some(chain) = field.surprise(&field.loads(&certain), &at, goal, (known, work)) else {
                *short = Some(priced.chosen);
                break;
            };
            at.chains.push((chain, 0.0));
            lengths = field.lengths(&priced.chosen, &at, known);
        }
        if stalled < PATIENCE {
            if !field.step(&mut at, &priced, &lengths, goal, pace) {
                break;
            }
            continue;
        }
        (pace, stalled) = (pace * SLOWER, 0);
        if pace < LEAST_PACE {
            break;
        }
        at = back(&here.prices, &at);
        if let Some(chain) = field.surprise(&field.loads(&shares), &at, most * (1.0 + SURPRISE), (known, work)) {
            at.chains.push((chain, 0.0));
        }
    }
    here.bound = here.bound.max(most);
    let mut each = field.with_each(&here.left, &here.prices, known);
    for (left, each) in here.left.iter_mut().zip(&mut each) {
        let mut bounds = each.iter();
        left.retain(|_| bounds.next().is_some_and(|&bound| bound < goal));
        each.retain(|&bound| bound < goal);
    }
    if here.left.iter().any(Vec::is_empty) { None } else { Some(Rest { branch: here, shares, each }) }
}

/// The best prices; chains that weigh something in either stay.
fn back(best: &Prices, last: &Prices) -> Prices {
    let mut prices = best.clone();
    prices.chains.retain(|(_, weight)| *weight > 0.0);
    for &(chain, _) in last.chains.iter().filter(|(_, weight)| *weight > 0.0) {
        if !prices.chains.iter().any(|known| known.0 == chain) {
            prices.chains.push((chain, 0.0));
        }
    }
    prices
}

/// A mean of choices with one more.
fn remember(shares: &mut Vec<(usize, f64)>, chosen: usize) {
    let forgets = if shares.is_empty() { 1.0 } else { FORGETS };
    for (_, share) in shares.iter_mut() {
        *share *= 1.0 - forgets;
    }
    match shares.iter_mut().find(|(choice, _)| *choice == chosen) {
        Some((_, share)) => *share += forgets,
        None => shares.push((chosen, forgets)),
    }
    shares.retain(|(_, share)| *share > 1e-4);
}
