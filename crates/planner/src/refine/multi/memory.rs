//! Fastest recomputation of a rank's stages with which the rank fits its memory.

use std::collections::BTreeMap;

use meshwright_engine::ascending::sort_by_numbers;

use crate::refine::frontier::RecomputePoint;
use crate::refine::program::StageProgram;
use crate::refine::split::StageLoad;

/// Cache of fitting mixes by rank and the layers of each of its stages by kind.
pub type FittingMixes = BTreeMap<Vec<u32>, Option<Vec<usize>>>;

/// The fastest mixes of every stage with which these cuts fit every rank; `None` where they do not fit.
pub fn loads(program: &StageProgram, cuts: &[usize], cache: &mut FittingMixes) -> Option<Vec<StageLoad>> {
    let mut loads = fastest(program, cuts);
    for rank in 0..program.ranks {
        let own: Vec<usize> = (0..program.chunks).filter(|&chunk| program.rank_of(chunk) == rank).collect();
        let states: f64 = own.iter().map(|&chunk| program.states(cuts[chunk], cuts[chunk + 1])).sum();
        let room = program.room[rank] - states;
        let moments = &program.stager.peak_moments()[rank];
        let working_set = own.iter().map(|&chunk| loads[chunk].working_set).fold(0.0, f64::max);
        let kept = |moment: &Vec<f64>| -> f64 {
            own.iter().map(|&chunk| loads[chunk].kept * moment[chunk / program.ranks]).sum()
        };
        if moments.iter().all(|moment| kept(moment) + working_set <= room) {
            continue;
        }
        let mut key = vec![rank as u32];
        for &chunk in &own {
            key.extend(program.counts_between(cuts[chunk], cuts[chunk + 1]));
            key.push(cuts[chunk + 1].saturating_sub(program.decoder_layers.max(cuts[chunk])) as u32);
        }
        let choose = if own.len() <= MOST_EXACT { knapsack } else { greedy };
        let chosen = cache.entry(key).or_insert_with(|| choose(program, cuts, &own, moments, room)).clone()?;
        for (&chunk, at) in own.iter().zip(chosen) {
            let (a, b) = (cuts[chunk], cuts[chunk + 1]);
            loads[chunk] = program.load(chunk, a, b, at, &program.frontier(chunk, a, b));
        }
    }
    Some(loads)
}

/// Stages under their fastest mixes, whether they fit or not.
pub fn fastest(program: &StageProgram, cuts: &[usize]) -> Vec<StageLoad> {
    (0..program.chunks).map(|chunk| program.fastest(chunk, cuts[chunk], cuts[chunk + 1])).collect()
}

/// [`fastest`] of a split beside another, whose stages are `known`: those with the same items are copied.
pub fn fastest_beside(
    program: &StageProgram,
    cuts: &[usize],
    known_cuts: &[usize],
    known: &[StageLoad],
) -> Vec<StageLoad> {
    let load = |chunk: usize| {
        let items = chunk..=chunk + 1;
        if cuts[items.clone()] == known_cuts[items] {
            known[chunk]
        } else {
            program.fastest(chunk, cuts[chunk], cuts[chunk + 1])
        }
    };
    (0..program.chunks).map(load).collect()
}

/// Stages of a rank up to which its mixes are chosen exactly; with more, greedily.
const MOST_EXACT: usize = 3;

/// Step of [`greedy`]: one stage takes a mix that recomputes more.
struct MoreRecomputation {
    /// Bytes saved for a second.
    rate: f64,
    stage: usize,
    mix: usize,
    /// Bytes by which the rank then exceeds its memory.
    excess: f64,
}

/// Greedy mixes of a rank with many stages: from the fastest, always the step that saves the most bytes for its time.
fn greedy(
    program: &StageProgram,
    cuts: &[usize],
    own: &[usize],
    moments: &[Vec<f64>],
    room: f64,
) -> Option<Vec<usize>> {
    let frontiers: Vec<_> = own.iter().map(|&chunk| program.frontier(chunk, cuts[chunk], cuts[chunk + 1])).collect();
    let mut at = vec![0_usize; own.len()];
    let over = |at: &[usize]| -> f64 {
        let point = |i: usize| &frontiers[i].points[at[i]];
        let working_set = (0..own.len()).map(|i| point(i).working_set).fold(0.0, f64::max);
        let held = |moment: &Vec<f64>| -> f64 {
            (0..own.len()).map(|i| point(i).kept * moment[own[i] / program.ranks]).sum::<f64>()
        };
        moments.iter().map(held).fold(0.0, f64::max) + working_set - room
    };
    let mut excess = over(&at);
    while excess > 0.0 {
        let mut best: Option<MoreRecomputation> = None;
        for i in 0..own.len() {
            let points = &frontiers[i].points;
            let here = points[at[i]];
            // One step looks at the next few mixes and at some further on.
            let ahead = (1..=8).chain((4..).map(|power| 1 << power).take(5));
            for to in ahead.map(|more| at[i] + more).take_while(|&to| to < points.len()).chain([points.len() - 1]) {
                if to <= at[i] {
                    continue;
                }
                let mut next = at.clone();
                next[i] = to;
                let left = over(&next);
                let saved = excess - left.max(0.0);
                let rate = saved / (points[to].extra - here.extra).max(f64::MIN_POSITIVE);
                if saved > 0.0 && best.as_ref().is_none_or(|best| rate > best.rate) {
                    best = Some(MoreRecomputation { rate, stage: i, mix: to, excess: left });
                }
            }
        }
        let step = best?;
        at[step.stage] = step.mix;
        excess = step.excess;
    }
    Some(at)
}

/// Most partial solutions of the knapsack; beyond, near ones are merged.
const MOST_CHOICES: usize = 512;

/// Partial solution of the knapsack: mixes of some of a rank's stages.
#[derive(Clone)]
struct PartialMix {
    /// Extra time in seconds.
    extra: f64,
    /// Resident bytes at each moment.
    held: Vec<f64>,
    /// Largest working set of a recomputed layer, in bytes.
    working_set: f64,
    /// Point of the frontier of each stage.
    points: Vec<usize>,
}

/// Multiple-choice knapsack: a point of the frontier for each of a rank's stages with the least extra time that fits at
/// every moment.
fn knapsack(
    program: &StageProgram,
    cuts: &[usize],
    own: &[usize],
    moments: &[Vec<f64>],
    room: f64,
) -> Option<Vec<usize>> {
    let mut choices =
        vec![PartialMix { extra: 0.0, held: vec![0.0; moments.len()], working_set: 0.0, points: Vec::new() }];
    for &chunk in own {
        let frontier = program.frontier(chunk, cuts[chunk], cuts[chunk + 1]);
        let extended = |choice: &PartialMix, at: usize, point: &RecomputePoint| PartialMix {
            extra: choice.extra + point.extra,
            held: choice
                .held
                .iter()
                .zip(moments)
                .map(|(held, moment)| held + point.kept * moment[chunk / program.ranks])
                .collect(),
            working_set: choice.working_set.max(point.working_set),
            points: choice.points.iter().copied().chain([at]).collect(),
        };
        let mut all: Vec<PartialMix> = choices
            .iter()
            .flat_map(|choice| frontier.points.iter().enumerate().map(|(at, point)| extended(choice, at, point)))
            .filter(|choice| choice.held.iter().all(|held| held + choice.working_set <= room))
            .collect();
        sort_by_numbers(&mut all, |choice| [choice.extra]);
        choices = undominated(all);
    }
    choices.into_iter().next().map(|choice| choice.points)
}

/// Partial solutions, sorted by extra time, without those that an earlier one is at or below in memory;
/// [`MOST_CHOICES`] at most, at even distances.
fn undominated(all: Vec<PartialMix>) -> Vec<PartialMix> {
    let below = |a: &PartialMix, b: &PartialMix| {
        a.working_set <= b.working_set && a.held.iter().zip(&b.held).all(|(a, b)| a <= b)
    };
    let mut kept: Vec<PartialMix> = Vec::new();
    for choice in all {
        if !kept.iter().rev().any(|known| below(known, &choice)) {
            kept.push(choice);
        }
    }
    if kept.len() > MOST_CHOICES {
        let step = kept.len() as f64 / MOST_CHOICES as f64;
        kept = (0..MOST_CHOICES).map(|at| kept[((at + 1) as f64 * step) as usize - 1].clone()).collect();
    }
    kept
}
