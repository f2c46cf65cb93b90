//! The stages of one plan over unlike devices: the exact program of one stage a rank, with a table of stages for each kind.

use super::program::Program;
use super::separable::{self, Kinds, Split};
use super::{Freedom, Infeasible, Options, Proof, Refined, coupled};
use crate::cost::{Mixed, StagedEvaluation, Stager};
use crate::plan::{Offload, Plan, Recompute};
use crate::units::{Bytes, Seconds};

/// Finds layers and recomputation of every stage of a plan whose ranks are of several kinds: `stagers` price it on each,
/// `of_rank` says which is whose, `mixed` prices all together; layers
/// recompute `recompute` where they are not free, and all leave `offload` on the host.
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
    let answer = separable::solve(&kinds, coupled::chains(first), mixed.closed_sends().get(), limits, step);
    let found = answer.best.as_ref().and_then(|(_, split)| Some((staged(split), price(split)?)));
    let Some((staged, price)) = found else {
        return Err(Infeasible::Unsupported("no layers and recomputation of its stages fit every rank"));
    };
    if let Some(rank) = over(stagers, of_rank, &price) {
        debug_assert!(false, "the evaluator refutes the program on rank {rank}");
        return Err(Infeasible::Unsupported("the evaluator refutes the program"));
    }
    let step = price.evaluation.step.total();
    let bound = Seconds::new(answer.bound).min(step);
    let gap = (step - bound) / step;
    let proof = match gap {
        none if none <= 1e-9 => Proof::Optimal,
        gap if answer.cut_short => Proof::TimeLimit { gap },
        gap => Proof::WithinGap { gap },
    };
    Ok(Refined { staged, price, before: None, bound, proof, replayed: answer.replayed })
}

/// The first rank that is over its own memory.
pub fn over(stagers: &[Stager], of_rank: &[usize], price: &StagedEvaluation) -> Option<usize> {
    let budget = |rank: usize| -> Bytes { stagers[of_rank[rank]].costs().problem.hbm_budget() };
    (0..of_rank.len()).find(|&rank| price.footprints[rank].device() > budget(rank))
}
