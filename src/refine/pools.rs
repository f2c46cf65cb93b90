//! The stages of one plan over unlike devices: the exact program of one stage a rank, with a table of stages for each kind.

use super::blend::length;
use super::edges::Edges;
use super::program::Program;
use super::separable::{self, Answer, Kinds, Split};
use super::{Freedom, Infeasible, Options, Refined, coupled, cuts, finish};
use crate::cost::{Footprint, Mixed, StagedEvaluation, Stager};
use crate::plan::{Layout, Offload, Plan, Recompute};
use crate::schedule::paths::Path;
use crate::stages::StagedPlan;
use crate::units::Bytes;

/// Finds layers and recomputation of every stage of a plan whose ranks are of several kinds: `stagers` price it on each,
/// `of_rank` says which is whose, `mixed` prices all together; layers recompute `recompute` where they are not free, and all
/// leave `offload` on the host.
///
/// The answer is priced by `mixed`, which knows nothing of the program; each rank is held under its own memory. The bound knows
/// nothing of late sends between kinds.
///
/// # Errors
/// Says why no stages fit.
pub fn refine_over(
    stagers: &[Stager],
    of_rank: &[usize],
    mixed: &Mixed,
    (recompute, offload): (Recompute, Offload),
    options: &Options,
) -> Result<Refined, Infeasible> {
    let freedom = Freedom { offload, ..options.freedom };
    let plan = Plan { recompute, offload, ..*stagers[0].plan() };
    if plan.schedule.virtual_stages() > 1 || plan.schedule.is_bidirectional() || !stagers[0].plays() {
        return Err(Infeasible::Unsupported("only schedules with one stage a rank are refined over unlike devices"));
    }
    let programs: Vec<Program> = stagers.iter().map(|stager| Program::new(stager, recompute, freedom)).collect();
    let first = &programs[0];
    let needed = (first.chunks as u32).saturating_sub(2);
    if needed as usize > first.len() {
        return Err(Infeasible::TooFewLayers { stages: needed, layers: first.len() as u32 });
    }
    let kinds = Kinds::new(&programs, of_rank, mixed.late().get());
    let staged = |split: &Split| {
        let mut staged = first.staged(&split.cuts, &vec![None; first.chunks]);
        staged.plan = plan;
        for (chunk, load) in split.loads.iter().enumerate() {
            staged.stages[chunk].mixes = kinds.of(chunk).mixes(split.cuts[chunk], split.cuts[chunk + 1], load.point);
        }
        staged
    };
    let price = |split: &Split| mixed.evaluate(&staged(split));
    let step = |split: &Split| price(split).map_or(f64::INFINITY, |price| price.evaluation.step.total().get());
    let limits = (options.tolerance, options.most_replays);
    let (chains, sends) = (coupled::chains(first), mixed.closed_sends().get());
    let mut answer = separable::solve(&kinds, chains.clone(), sends, limits, step);
    let edges = programs.iter().map(Edges::least);
    let edges =
        edges.reduce(|a, b| Edges { forward: a.forward.max(b.forward), backward: a.backward.max(b.backward), ..a });
    let least = Least { line: edges.map(|edges| kinds.line(&edges, sends)).unwrap_or_default(), chains };
    if options.enumerate && coupled::splits(first) <= MOST_SPLITS {
        every_split(&kinds, first, &least, step, &mut answer);
    } else if options.enumerate {
        descend(&kinds, first, &least, step, &mut answer);
    }
    let found = answer.best.as_ref().and_then(|(_, split)| Some((staged(split), price(split)?)));
    let Some((staged, price)) = found else {
        return Err(Infeasible::Unsupported("no layers and recomputation of its stages fit every rank"));
    };
    if let Some(rank) = over(stagers, of_rank, &price) {
        debug_assert!(false, "the evaluator refutes the program on rank {rank}");
        return Err(Infeasible::Unsupported("the evaluator refutes the program"));
    }
    if let Some((needed, available)) = over_hosts(stagers, of_rank, mixed, &staged) {
        return Err(Infeasible::Host { needed, available });
    }
    Ok(finish(staged, price, None, &answer))
}

/// What the fullest host of a kind is left, where that is over its memory: stages lie in whole hosts of their own kind, one behind
/// another.
pub fn over_hosts(stagers: &[Stager], of_rank: &[usize], mixed: &Mixed, staged: &StagedPlan) -> Option<(Bytes, Bytes)> {
    let bare = mixed.evaluate(&staged.on_device()?)?.footprints;
    stagers.iter().enumerate().find_map(|(kind, stager)| {
        let here = (0..of_rank.len()).filter(|&rank| of_rank[rank] == kind);
        let (bare, offload): (Vec<Footprint>, Vec<Offload>) =
            here.map(|rank| (bare[rank], staged.offload[rank])).unzip();
        let layout = Layout { pp: bare.len() as u32, ..staged.plan.layout };
        stager.costs().over_host_of(&Plan { layout, ..staged.plan }, &bare, &offload)
    })
}

/// The stages of these cuts, each with the fastest mix that fits its rank.
fn split_of(kinds: &Kinds, cuts: &[usize]) -> Option<Split> {
    let stages = cuts.windows(2).enumerate();
    let loads = stages.map(|(chunk, pair)| kinds.of(chunk).fitting(chunk, pair[0], pair[1])).collect::<Option<_>>()?;
    Some(Split { cuts: cuts.to_vec(), loads })
}

/// What a split takes at the least: its longest chain, and the line that a step is over its pipeline.
struct Least {
    line: (f64, f64),
    chains: Vec<Path>,
}

impl Least {
    fn of(&self, split: &Split) -> f64 {
        let longest = self.chains.iter().map(|path| length(path, &split.loads)).fold(0.0, f64::max);
        self.line.0 + self.line.1 * longest
    }
}

/// Prices a split that may be faster than what is known, and keeps it if it is.
fn offer(least: &Least, split: Split, step: &impl Fn(&Split) -> f64, answer: &mut Answer) -> bool {
    let known = answer.best.as_ref().map_or(f64::INFINITY, |(time, _)| *time);
    if least.of(&split) >= known {
        return false;
    }
    let time = step(&split);
    answer.replayed += 1;
    if time < known {
        answer.best = Some((time, split));
    }
    time < known
}

/// Looks at every split where there are few: late sends, which no chain counts, may prefer one that the program does not meet.
fn every_split(kinds: &Kinds, program: &Program, least: &Least, step: impl Fn(&Split) -> f64, answer: &mut Answer) {
    let mut cuts = vec![0; program.chunks + 1];
    cuts[program.chunks] = program.len();
    coupled::every_cut(program, 1, &mut cuts, &mut |cuts| {
        if let Some(split) = split_of(kinds, cuts) {
            offer(least, split, &step, answer);
        }
    });
    if let Some((time, _)) = answer.best {
        answer.bound = time;
    }
}

/// Moves single layers between neighbouring stages while the step gets shorter.
fn descend(kinds: &Kinds, program: &Program, least: &Least, step: impl Fn(&Split) -> f64, answer: &mut Answer) {
    for _ in 0..MOST_ROUNDS {
        let Some((_, from)) = answer.best.clone() else { return };
        let mut moved = false;
        for (cut, up) in itertools::iproduct!(1..program.chunks, [true, false]) {
            let mut cuts = from.cuts.clone();
            cuts[cut] = if up { cuts[cut] + 1 } else { cuts[cut].saturating_sub(1) };
            if cuts::legal(program, &cuts)
                && let Some(split) = split_of(kinds, &cuts)
            {
                moved |= offer(least, split, &step, answer);
            }
        }
        if !moved {
            return;
        }
    }
}

/// Splits up to which all are looked at: most are left out by their busiest stage alone.
const MOST_SPLITS: f64 = 20_000.0;
/// Most rounds of moves.
const MOST_ROUNDS: usize = 12;

/// The first rank that is over its own memory.
pub fn over(stagers: &[Stager], of_rank: &[usize], price: &StagedEvaluation) -> Option<usize> {
    let budget = |rank: usize| -> Bytes { stagers[of_rank[rank]].costs().problem.hbm_budget() };
    (0..of_rank.len()).find(|&rank| price.footprints[rank].device() > budget(rank))
}
