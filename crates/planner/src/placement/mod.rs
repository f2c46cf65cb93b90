//! Placement: in which order hosts are listed, so that the ranks that talk most sit nearest.
//!
//! Ranks keep the numbers that the framework gives them; which host holds which numbers is the launcher's list of hosts. So what a
//! host holds stays as the rank order has it, and whole hosts move.

mod grid;
mod hosts;
mod program;

use std::ops::ControlFlow;

use meshwright_engine::collective::Seats;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Plan, RankOrder};
use meshwright_engine::units::Seconds;

pub use grid::{Grid, Spread, in_order};
pub use hosts::host_order;

/// Why hosts in another order are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplaceable {
    /// Nothing to move.
    #[error("all ranks sit on one host")]
    OneHost,
    /// The network makes no difference between hosts.
    #[error("no level above a host is slower than the one below it: hosts are as near in any order")]
    AllAlike,
    /// Groups that overlap in a part.
    #[error("process groups overlap in a part, so that ranks are no grid")]
    Groups,
    /// A host holds a part of a group that does not divide it.
    #[error("a host of {0} GPUs holds no whole part of the rank grid")]
    Host(u32),
    /// Nothing fits the units of the network.
    #[error("no whole parts of the rank grid fill the units of the network")]
    Units,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most placements that are enumerated, each priced wholly; where there are more, the program chooses.
    pub enumerated: usize,
    /// Answers of the program that are priced wholly, and placements that are played.
    pub answers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { enumerated: 1000, answers: 8 }
    }
}

/// How a placement was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Every one was priced: none that fills its units evenly is faster in the closed form.
    Enumerated(usize),
    /// By the program, whose objective adds up what each axis costs alone: not proved. So many were priced wholly.
    Program(usize),
}

/// The fastest placement found.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The plan, with the rank order that it is launched with: Megatron's default where hosts hold the same ranks in either.
    pub plan: Plan,
    /// Where ranks sit with hosts in another order; `None` where no other is faster.
    pub seats: Option<Seats>,
    /// The step, played.
    pub step: Seconds,
    /// The step with hosts listed as they stand, by the counts that flatter it most: the ranking's or a placement's.
    pub in_order: Seconds,
    /// How it was found.
    pub found: Found,
}

impl Placed {
    /// Share of the step that another order of hosts saves; 0 where the rank order is as good.
    pub fn gain(&self) -> f64 {
        (1.0 - self.step / self.in_order).max(0.0)
    }
}

/// A plan as placements see it: what its order adds to the seats is in the seats.
const fn counted(plan: &Plan) -> Plan {
    Plan { order: RankOrder::PipelineOutermost, ..*plan }
}

/// The step of a plan whose ranks sit where `seats` say, in the closed form.
pub fn closed_step(costs: &Costs, plan: &Plan, seats: &Seats) -> Seconds {
    costs.seated(seats).evaluate(&counted(plan)).step.total()
}

/// The same, played.
pub fn played_step(costs: &Costs, plan: &Plan, seats: &Seats) -> Seconds {
    costs.seated(seats).evaluate_played(&counted(plan)).step.total()
}

/// The fastest placement of a plan: enumerated, or chosen by the program. It is never slower than the plan's own rank order, nor than
/// the other one where hosts hold the same ranks in both and units are whole parts of the grid.
///
/// # Errors
/// Why there is none but the rank order.
pub fn place(costs: &Costs, plan: &Plan, options: &Options) -> Result<Placed, Unplaceable> {
    let cluster = costs.problem.cluster();
    let asked = plan;
    let plan = &grid::launched(cluster, plan);
    let grid = Grid::new(cluster, plan)?;
    let step_of = |chosen: &[usize]| closed_step(costs, plan, &grid.seats(cluster, chosen));
    let mut all = Vec::new();
    let whole = grid.each(|chosen| {
        all.push(chosen.to_vec());
        if all.len() > options.enumerated { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let first = all.first().cloned().ok_or(Unplaceable::Units)?;
    let mut priced: Vec<(Seconds, Vec<usize>)>;
    let found = if whole.is_continue() {
        priced = all.into_iter().map(|chosen| (step_of(&chosen), chosen)).collect();
        Found::Enumerated(priced.len())
    } else {
        priced = by_program(costs, plan, &grid, first, options.answers);
        Found::Program(priced.len())
    };
    priced.sort_by(|a, b| a.0.get().total_cmp(&b.0.get()));
    let seats = priced.iter().take(options.answers).map(|(_, chosen)| grid.seats(cluster, chosen));
    let played = seats.map(|seats| (played_step(costs, plan, &seats), seats));
    let (step, seats) = played.reduce(|a, b| if b.0 < a.0 { b } else { a }).ok_or(Unplaceable::Units)?;
    let in_order = in_own_order(costs, asked);
    let (seats, step) = if step < in_order { (Some(seats), step) } else { (None, in_order) };
    Ok(Placed { plan: *plan, seats, step, in_order, found })
}

/// The step with hosts listed as they stand: as the ranking has it, or as placements are priced where that is less.
fn in_own_order(costs: &Costs, plan: &Plan) -> Seconds {
    let ranked = costs.evaluate_played(plan).step.total();
    let seats = in_order(costs.problem.cluster(), plan, plan.order);
    seats.map_or(ranked, |seats| played_step(costs, plan, &seats).min(ranked))
}

/// What each spread of each axis adds to the step, the other axes as in `base`.
pub fn extra(costs: &Costs, plan: &Plan, grid: &Grid, base: &[usize]) -> Vec<Vec<f64>> {
    let cluster = costs.problem.cluster();
    let step_of = |chosen: &[usize]| closed_step(costs, plan, &grid.seats(cluster, chosen)).get();
    let from = step_of(base);
    let of_axis = |axis: usize| {
        let mut chosen = base.to_vec();
        let of_spread = |at: usize| {
            chosen[axis] = at;
            step_of(&chosen) - from
        };
        (0..grid.spreads[axis].len()).map(of_spread).collect()
    };
    (0..grid.axes.len()).map(of_axis).collect()
}

/// The best answers of the program, wholly priced; what axes cost alone is asked around the best so far until that stays.
fn by_program(
    costs: &Costs,
    plan: &Plan,
    grid: &Grid,
    first: Vec<usize>,
    answers: usize,
) -> Vec<(Seconds, Vec<usize>)> {
    let cluster = costs.problem.cluster();
    let step_of = |chosen: &[usize]| closed_step(costs, plan, &grid.seats(cluster, chosen));
    let mut best = (step_of(&first), first);
    let mut priced = vec![best.clone()];
    let mut known: Vec<Vec<usize>> = Vec::new();
    loop {
        let extra = extra(costs, plan, grid, &best.1);
        let before = best.0;
        for _ in 0..answers {
            let Some(chosen) = program::choose(grid, &extra, &known) else { break };
            let step = step_of(&chosen);
            if step < best.0 {
                best = (step, chosen.clone());
            }
            priced.push((step, chosen.clone()));
            known.push(chosen);
        }
        if best.0 >= before {
            return priced;
        }
    }
}

/// The spreads that the program chooses where each costs `extra`, for comparison with enumeration.
pub fn choose(grid: &Grid, extra: &[Vec<f64>]) -> Option<Vec<usize>> {
    program::choose(grid, extra, &[])
}
