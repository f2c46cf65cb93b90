//! Stage refinement: the layers and the recomputation of each stage of a plan.

mod answer;
mod cuts;
mod device;
mod edges;
mod enumeration;
mod frontier;
mod multi;
mod options;
mod paths;
pub mod pools;
mod program;
pub mod ranking;
mod single;
mod solve;
mod split;

use answer::{SHARED_KEYS, finish};
use meshwright_engine::cost::host::HostExcess;
use meshwright_engine::cost::{Costs, StagedEvaluation, Stager};
use meshwright_engine::plan::{Offload, Plan, ZeroStage};
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::Bytes;
use solve::{has_room_for_all, offloads, solve_under};
use split::{Incumbent, Solution};

use program::StageProgram;

pub use answer::{Infeasible, Proof, Refined};
pub use options::{Freedom, Options, Technique};
pub use single::exact;

/// Finds the fastest stages of a plan: the layers of every virtual stage, their recomputation and the offload that minimise
/// the simulated step time within the memory of every rank.
///
/// The answer is evaluated by `cost::Stager`, independently of the solver, and is never slower than the given plan.
///
/// # Errors
/// No stages fit; the error names the constraint with its numbers.
pub fn refine(costs: &Costs, plan: &Plan, options: &Options) -> Result<Refined, Infeasible> {
    refine_within(costs, plan, options, &|| false)
}

/// Stages of a plan as [`refine`] finds them; the offloads that are left when `is_over` says so are not tried, and the answer
/// is not proved then.
fn refine_within(
    costs: &Costs,
    plan: &Plan,
    options: &Options,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Refined, Infeasible> {
    if plan.zero == ZeroStage::Three {
        return Err(Infeasible::Unsupported("ZeRO 3 gathers weights layer by layer: its stages are not refined"));
    }
    if costs.problem.model().shares_any_keys() {
        return Err(Infeasible::Unsupported(SHARED_KEYS));
    }
    let stager = Stager::new(costs, plan);
    let (staged, price) = unrefined(costs, &stager, plan);
    let fits = price.over(costs.problem.hbm_budget()).is_none() && stager.over_host(&staged).is_none();
    let before = fits.then(|| price.evaluation.step.total());
    let mut answer = Solution { best: None, bound: f64::INFINITY, evaluated: 0, cut_short: false };
    let mut best = before.map(|step| (step, staged, price));
    let mut why: Option<Infeasible> = None;
    let (mut offloads, mut covered) = offloads(&stager, plan, options);
    let programs = offloads.len();
    let mut next = 0;
    while let Some(&offload) = offloads.get(next) {
        if next > 0 && is_over() {
            answer.bound = 0.0;
            answer.cut_short = true;
            break;
        }
        next += 1;
        let freedom = Freedom { offload, ..options.freedom };
        let program = StageProgram::new(&stager, plan.recompute, freedom);
        let chunks = program.chunks as u32;
        let needed = chunks.saturating_sub(2);
        if needed as usize > program.len() || (chunks == 1 && program.len() == 0) {
            return Err(Infeasible::TooFewLayers { stages: needed, layers: program.len() as u32 });
        }
        let incumbent = best.as_ref().map(|(step, ..)| step.get());
        let of_offload = solve_under(&program, options, incumbent, programs);
        if offload == Offload::NONE
            && has_room_for_all(&program, of_offload.step_time(incumbent.unwrap_or(f64::INFINITY)))
        {
            offloads.truncate(next);
        }
        answer.bound = answer.bound.min(of_offload.bound);
        answer.evaluated += of_offload.evaluated;
        answer.cut_short |= of_offload.cut_short;
        let Some(Incumbent { split, .. }) = of_offload.best else {
            if incumbent.is_none() {
                why = Some(nearest(&program));
            }
            continue;
        };
        let staged = program.staged(&split);
        let price = stager.evaluate(&staged);
        let step = price.evaluation.step.total();
        // The evaluator is independent of the solver: an answer that it finds too large or slower is dropped.
        let believed = price.over(costs.problem.hbm_budget()).is_none();
        debug_assert!(believed, "the evaluator refutes the program: {:?}", price.over(costs.problem.hbm_budget()));
        // Ranks share their host, which the program does not model: an offload that exceeds its memory is rejected here.
        if let Some(HostExcess { needed, available }) = stager.over_host(&staged) {
            why = Some(Infeasible::Host { needed, available });
            offloads.append(&mut covered); // smaller shares may do
            continue;
        }
        if believed && best.as_ref().is_none_or(|(least, ..)| step < *least) {
            best = Some((step, staged, price));
        }
    }
    match best {
        Some((_, staged, price)) => Ok(finish(staged, price, before, &answer)),
        None => Err(why.unwrap_or(Infeasible::Unsupported("nothing was allowed to change"))),
    }
}

/// Stages of the plan before refinement, by its split and recomputation, and their evaluation.
fn unrefined(costs: &Costs, stager: &Stager, plan: &Plan) -> (StagedPlan, StagedEvaluation) {
    let counts = costs.layers_of_chunks(plan, &costs.shape(plan));
    let staged = StagedPlan::uniform(costs.problem.model(), plan, &counts);
    let price = stager.evaluate(&staged);
    (staged, price)
}

/// The rank with the largest excess of memory in the split with the smallest one.
fn nearest(program: &StageProgram) -> Infeasible {
    let cuts::NearestSplit { fullest: rank, cuts } = cuts::nearest_split(program);
    let stager = program.stager;
    let chunks: Vec<usize> = (0..program.chunks).filter(|&chunk| program.rank_of(chunk) == rank).collect();
    let room = stager.costs().tensor_room(stager.plan());
    let fixed = room - Bytes::new(program.room[rank]);
    let states: f64 = chunks.iter().map(|&chunk| program.states(cuts[chunk], cuts[chunk + 1])).sum();
    let working = stager.fixed_bytes(rank as u32);
    let most = |chunk: usize| program.most_in_flight[chunk];
    let in_flight = chunks.iter().map(|&chunk| most(chunk)).sum::<f64>() / chunks.len() as f64;
    let mut each = 0.0;
    let mut working_set = 0.0_f64;
    for &chunk in &chunks {
        let frontier = program.frontier(chunk, cuts[chunk], cuts[chunk + 1]);
        let least = frontier
            .points
            .iter()
            .min_by(|a, b| (a.kept * most(chunk) + a.working_set).total_cmp(&(b.kept * most(chunk) + b.working_set)));
        if let Some(point) = least {
            each += point.kept * most(chunk) / in_flight.max(1.0);
            working_set = working_set.max(point.working_set);
        }
    }
    Infeasible::Memory {
        rank: rank as u32,
        room,
        states: Bytes::new(states) + fixed - working,
        working: working + Bytes::new(working_set),
        in_flight,
        each: Bytes::new(each),
    }
}
