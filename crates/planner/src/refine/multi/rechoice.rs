//! Second choice of a split's recomputation, by the simulated pipeline: a rank's fastest mixes are not always the step's.

use crate::refine::paths::stage_times;
use crate::refine::program::StageProgram;
use crate::refine::split::StageLoad;
use meshwright_engine::schedule::simulator::Simulator;

/// Most pairs of mixes tried for two stages of a rank.
const MOST_TRIED: usize = 24;
/// Most rounds over all ranks.
const MOST_ROUNDS: usize = 6;

/// Moves recomputation between the stages of each rank while the pipeline gets shorter, within the rank's memory.
pub fn rechoose(program: &StageProgram, simulator: &Simulator, cuts: &[usize], loads: &mut [StageLoad]) {
    let time = |loads: &[StageLoad]| simulator.makespan(&stage_times(program.stager.pairs().pairing(), loads)).get();
    let mut least = time(loads);
    for _ in 0..MOST_ROUNDS {
        let before = least;
        for rank in 0..program.ranks {
            let own: Vec<usize> = (0..program.chunks).filter(|&chunk| program.rank_of(chunk) == rank).collect();
            for (at, &one) in own.iter().enumerate() {
                for &other in &own[at + 1..] {
                    for pair in exchanges(program, cuts, loads, &own, one, other) {
                        let old = (loads[one], loads[other]);
                        (loads[one], loads[other]) = pair;
                        let now = time(loads);
                        if now < least {
                            least = now;
                        } else {
                            (loads[one], loads[other]) = old;
                        }
                    }
                }
            }
        }
        if least >= before * (1.0 - 1e-6) {
            break;
        }
    }
}

/// Pairs of mixes for two stages of a rank with which it fits, of which none is slower in both than another.
fn exchanges(
    program: &StageProgram,
    cuts: &[usize],
    loads: &[StageLoad],
    own: &[usize],
    one: usize,
    other: usize,
) -> Vec<(StageLoad, StageLoad)> {
    let states: f64 = own.iter().map(|&chunk| program.states(cuts[chunk], cuts[chunk + 1])).sum();
    let room = program.room[program.rank_of(one)] - states;
    let moments = &program.stager.peak_moments()[program.rank_of(one)];
    let beside: Vec<usize> = own.iter().copied().filter(|&chunk| chunk != one && chunk != other).collect();
    let working_set = beside.iter().map(|&chunk| loads[chunk].working_set).fold(0.0, f64::max);
    let left: Vec<[f64; 3]> = moments
        .iter()
        .map(|moment| {
            let held: f64 = beside.iter().map(|&chunk| loads[chunk].kept * moment[chunk / program.ranks]).sum();
            [room - held, moment[one / program.ranks], moment[other / program.ranks]]
        })
        .collect();
    let mixes = |chunk: usize| {
        let (a, b) = (cuts[chunk], cuts[chunk + 1]);
        let frontier = program.frontier(chunk, a, b);
        (0..frontier.points.len()).map(|at| program.load(chunk, a, b, at, &frontier)).collect::<Vec<StageLoad>>()
    };
    let (first, second) = (mixes(one), mixes(other));
    let fits = |a: &StageLoad, b: &StageLoad| {
        let working_set = working_set.max(a.working_set).max(b.working_set);
        left.iter().all(|[room, one, other]| a.kept * one + b.kept * other + working_set <= *room)
    };
    let mut found: Vec<(StageLoad, StageLoad)> = Vec::new();
    for a in &first {
        let Some(b) = second.iter().find(|b| fits(a, b)) else { continue };
        if found.last().is_none_or(|(_, known)| b.backward < known.backward) {
            found.push((*a, *b));
        }
    }
    let step = found.len().div_ceil(MOST_TRIED).max(1);
    let last = found.len().saturating_sub(1);
    (0..found.len()).filter(|at| at % step == 0 || *at == last).map(|at| found[at]).collect()
}
