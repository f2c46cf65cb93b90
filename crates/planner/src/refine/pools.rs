//! Stages of one plan over heterogeneous devices: the same program, with the times of layers on each kind of device.

use super::answer::{Infeasible, Refined, SHARED_KEYS, finish};
use super::enumeration;
use super::options::{Effort, Freedom, Options};
use super::program::StageProgram;
use super::solve::solve;
use super::split::{Incumbent, StagedSplit};
use meshwright_engine::cost::host::HostExcess;
use meshwright_engine::cost::{Footprint, HeterogeneousStager, StagedEvaluation, Stager};
use meshwright_engine::plan::{Layout, Offload, Plan, Recompute};
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::Bytes;

/// Refines a plan over several kinds of device: layers and recomputation of every stage.
///
/// `stagers` evaluate the plan on each kind, `of_rank` is the kind of each rank, `heterogeneous` evaluates
/// the whole pipeline. Layers whose recomputation is not chosen take `recompute`, and every rank offloads `offload`. The answer
/// is evaluated by `heterogeneous`, independently of the solver; each rank fits its own memory. The bound ignores
/// late sends between kinds.
///
/// # Errors
/// No stages fit, with the reason.
pub(crate) fn refine_over(
    stagers: &[Stager],
    of_rank: &[usize],
    heterogeneous: &HeterogeneousStager,
    recompute: Recompute,
    offload: Offload,
    options: &Options,
) -> Result<Refined, Infeasible> {
    let freedom = Freedom { offload, ..options.freedom };
    let plan = Plan { recompute, offload, ..stagers[0].plan().clone() };
    runs(&stagers[0]).map_err(Infeasible::Unsupported)?;
    let (sends, late) = (heterogeneous.closed_sends().get(), heterogeneous.most_added_latency().get());
    let program = StageProgram::over(stagers, of_rank, recompute, freedom, sends, late);
    let needed = (program.chunks as u32).saturating_sub(2);
    if needed as usize > program.len() {
        return Err(Infeasible::TooFewLayers { stages: needed, layers: program.len() as u32 });
    }
    let staged = |split: &StagedSplit| StagedPlan { plan: plan.clone(), ..program.staged(split) };
    let price = |split: &StagedSplit| heterogeneous.evaluate(&staged(split));
    let step = |split: &StagedSplit| price(split).map_or(f64::INFINITY, |price| price.evaluation.step.total().get());
    // No dependency path contains late sends, so the program may miss the best split: more splits are enumerated.
    let most = if program.chunks == program.ranks { MOST_SPLITS } else { enumeration::MOST_ENUMERATED };
    let effort = Effort { cutoff: f64::INFINITY, programs: PROGRAMS, most_enumerated: most };
    let answer = solve(&program, options, effort, step);
    let found = answer.best.as_ref().and_then(|Incumbent { split, .. }| Some((staged(split), price(split)?)));
    let Some((staged, price)) = found else {
        return Err(Infeasible::Unsupported("no layers and recomputation of its stages fit every rank"));
    };
    if let Some(rank) = over(stagers, of_rank, &price) {
        debug_assert!(false, "the evaluator refutes the program on rank {rank}");
        return Err(Infeasible::Unsupported("the evaluator refutes the program"));
    }
    if let Some(HostExcess { needed, available }) = over_hosts(stagers, of_rank, heterogeneous, &staged) {
        return Err(Infeasible::Host { needed, available });
    }
    Ok(finish(staged, price, None, &answer))
}

/// Excess of offloaded bytes over the memory of a host of any kind. Stages fill whole hosts of their own
/// kind, one after another.
pub(crate) fn over_hosts(
    stagers: &[Stager],
    of_rank: &[usize],
    heterogeneous: &HeterogeneousStager,
    staged: &StagedPlan,
) -> Option<HostExcess> {
    let bare = heterogeneous.evaluate(&staged.on_device()?)?.footprints;
    stagers.iter().enumerate().find_map(|(kind, stager)| {
        let here = (0..of_rank.len()).filter(|&rank| of_rank[rank] == kind);
        let (bare, offload): (Vec<Footprint>, Vec<Offload>) =
            here.map(|rank| (bare[rank], staged.offload[rank])).unzip();
        let layout = Layout { pp: bare.len() as u32, ..staged.plan.layout };
        stager.costs().over_host_of(&Plan { layout, ..staged.plan.clone() }, &bare, &offload)
    })
}

/// Reason why bidirectional pipelines are refused.
pub const ONE_WAY: &str = "a rank of a bidirectional pipeline has a stage of each half, so pools would share stages: \
not over heterogeneous devices";

/// Checks that a plan's schedule can run over heterogeneous devices.
///
/// # Errors
/// Returns the reason why it cannot.
pub fn runs(stager: &Stager) -> Result<(), &'static str> {
    if stager.plan().schedule.is_bidirectional() {
        return Err(ONE_WAY);
    }
    if stager.costs().problem.model().shares_any_keys() {
        return Err(SHARED_KEYS);
    }
    if stager.is_simulated() {
        Ok(())
    } else {
        Err("only schedules that can be simulated are refined over heterogeneous devices")
    }
}

/// Most splits of one stage a rank that are enumerated: the busiest stage alone prunes most of them.
const MOST_SPLITS: f64 = 20_000.0;
/// Divisor of the solver's work limit for several stages a rank: placements ask for many plans.
const PROGRAMS: usize = 4;

/// First rank that exceeds the memory of its device.
pub fn over(stagers: &[Stager], of_rank: &[usize], price: &StagedEvaluation) -> Option<usize> {
    let hbm_budget = |rank: usize| -> Bytes { stagers[of_rank[rank]].costs().problem.hbm_budget() };
    (0..of_rank.len()).find(|&rank| price.footprints[rank].peak() > hbm_budget(rank))
}
