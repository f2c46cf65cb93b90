//! A walk over splits that now and then takes a slower one, so as to leave what single moves of a layer cannot.

use super::blend::length;
use super::coupled::stage_times;
use super::cuts::legal;
use super::mixes::{Known, fastest, loads};
use super::program::{Load, Program};
use meshwright_engine::schedule::paths::Path;

/// Operations played by one walk, the same on every machine; and most of its steps.
const MOST_PLAYED: usize = 24_000_000;
const MOST_STEPS: usize = 12_000;
/// By how much a step may be slower at the beginning, as a share, and what of that is left at the end.
const WARM: f64 = 0.01;
const COLD: f64 = 1e-3;

/// Numbers without a seed from outside (SplitMix64): the same walk on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    /// Between 0 and 1, not 0.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }
}

/// Simulated annealing over cuts from `start`, as one of so many `programs`: the fastest cuts met, by the replay of their
/// stages. `None` where nothing is played or the start does not fit.
pub fn walk(
    program: &Program,
    chains: &[Path],
    start: Vec<usize>,
    known: &mut Known,
    programs: usize,
) -> Option<Vec<usize>> {
    if program.chunks < 3 {
        return None;
    }
    let player = program.player()?;
    let played = |loads: &[Load]| player.makespan(&stage_times(program.stager.pairs().pairing(), loads)).get();
    let floor = |loads: &[Load]| chains.iter().map(|path| length(path, loads)).fold(0.0, f64::max);
    let mut here = start;
    let mut time = played(&loads(program, &here, known)?);
    let (mut best, mut least) = (here.clone(), time);
    let mut numbers = Numbers(1);
    let mut left = MOST_PLAYED / programs;
    let steps = MOST_STEPS / programs;
    let operations = player.operations();
    for step in 0..steps {
        let cuts = moved(program, &here, &mut numbers);
        let warmth = WARM * COLD.powf(step as f64 / steps as f64);
        let limit = time * (1.0 - warmth * numbers.share().ln());
        if !legal(program, &cuts) || floor(&fastest(program, &cuts)) >= limit {
            continue;
        }
        let Some(loads) = loads(program, &cuts, known) else { continue };
        if floor(&loads) >= limit {
            continue;
        }
        if left < operations {
            break;
        }
        left -= operations;
        let own = played(&loads);
        if own < limit {
            (here, time) = (cuts, own);
            if time < least {
                (best, least) = (here.clone(), time);
            }
        }
    }
    Some(best)
}

/// Cuts with one layer moved between two stages, neighbours more often than others.
fn moved(program: &Program, cuts: &[usize], numbers: &mut Numbers) -> Vec<usize> {
    let last = program.chunks - 1;
    let (one, other) = (numbers.below(last + 1), numbers.below(last + 1));
    let (low, mut high) = (one.min(other), one.max(other));
    if low == high || numbers.below(3) == 0 {
        high = (low + 1).min(last);
    }
    let up = numbers.below(2) == 0;
    let mut cuts = cuts.to_vec();
    for cut in &mut cuts[low + 1..=high] {
        *cut = if up { *cut + 1 } else { cut.saturating_sub(1) };
    }
    cuts
}
