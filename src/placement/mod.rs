//! Placement: the order of hosts that puts ranks with the most traffic nearest to each other.
//!
//! Ranks keep the numbers that the framework gives them; the launcher's list of hosts decides which host gets which
//! numbers. So the ranks of one host stay as the rank order has them, and whole hosts move.

#![warn(clippy::disallowed_methods)]

mod grid;
mod hosts;
mod pricing;
#[cfg(feature = "programs")]
mod program;
mod unplaceable;

use std::ops::ControlFlow;

use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::collective::RankMapping;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::units::Seconds;

pub use grid::{Grid, Spread, in_order};
pub use hosts::host_order;
pub use pricing::{closed_step, simulated_step};
pub use unplaceable::Unplaceable;

/// Limits on the effort of a placement search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementOptions {
    /// Largest number of placements to enumerate and evaluate fully; beyond it the integer program chooses.
    pub enumerated: usize,
    /// Number of integer-program solutions to evaluate fully, and of placements to simulate.
    pub answers: usize,
}

impl Default for PlacementOptions {
    fn default() -> Self {
        Self { enumerated: 1000, answers: 8 }
    }
}

/// Method that found a placement, with its number of full evaluations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementMethod {
    /// Full enumeration: no placement that fills its units evenly is faster in the closed form.
    Enumerated(usize),
    /// Integer program, whose objective adds the cost of each axis separately; the result is not proved optimal.
    Program(usize),
}

/// Fastest placement found for a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The plan in the rank order of its launch: Megatron's default if hosts have the same ranks in either order.
    pub plan: Plan,
    /// Mapping of the ranks after hosts are reordered; `None` if no other order is faster.
    pub mapping: Option<RankMapping>,
    /// Simulated step time.
    pub step: Seconds,
    /// Step time with hosts in their own order, by the more favourable estimate: the ranking's or a placement's.
    pub in_order: Seconds,
    /// Method that found the placement.
    pub found: PlacementMethod,
}

impl Placement {
    /// Share of the step time that reordering the hosts saves; 0 if the rank order is as good.
    pub fn gain(&self) -> f64 {
        (1.0 - self.step / self.in_order).max(0.0)
    }
}

/// Finds the fastest placement of a plan, by enumeration or by integer program. It is never slower than the plan's own rank
/// order, nor than the other rank order if hosts have the same ranks in both and units are whole parts of the grid.
///
/// # Errors
///
/// The reason why only the rank order is possible.
pub fn place(costs: &Costs, plan: &Plan, options: &PlacementOptions) -> Result<Placement, Unplaceable> {
    let cluster = costs.problem.cluster();
    let asked = plan;
    let plan = &grid::launched(cluster, plan);
    let grid = Grid::new(cluster, plan)?;
    let step_of = |chosen: &[usize]| closed_step(costs, plan, &grid.mapping(cluster, chosen));
    let mut all = Vec::new();
    let whole = grid.each(|chosen| {
        all.push(chosen.to_vec());
        if all.len() > options.enumerated { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let first = all.first().cloned().ok_or(Unplaceable::IndivisibleUnits)?;
    let mut priced: Vec<(Seconds, Vec<usize>)>;
    let found = if whole.is_continue() {
        priced = all.into_iter().map(|chosen| (step_of(&chosen), chosen)).collect();
        PlacementMethod::Enumerated(priced.len())
    } else {
        priced = by_program(costs, plan, &grid, first, options.answers)?;
        PlacementMethod::Program(priced.len())
    };
    sort_by_numbers(&mut priced, |(time, ..)| [time.get()]);
    let mappings = priced.iter().take(options.answers).map(|(_, chosen)| grid.mapping(cluster, chosen));
    let simulated = mappings.map(|mapping| (simulated_step(costs, plan, &mapping), mapping));
    let (step, mapping) =
        simulated.reduce(|a, b| if b.0 < a.0 { b } else { a }).ok_or(Unplaceable::IndivisibleUnits)?;
    let in_order = in_own_order(costs, asked);
    let (mapping, step) = if step < in_order { (Some(mapping), step) } else { (None, in_order) };
    Ok(Placement { plan: plan.clone(), mapping, step, in_order, found })
}

/// Step time with hosts in their own order: the minimum of the ranking's estimate and the placement's.
fn in_own_order(costs: &Costs, plan: &Plan) -> Seconds {
    let ranked = costs.evaluate_simulated(plan).step.total();
    let mapping = in_order(costs.problem.cluster(), plan, plan.order);
    mapping.map_or(ranked, |mapping| simulated_step(costs, plan, &mapping).min(ranked))
}

/// Seconds that each spread of each axis adds to the step, with the other axes as in `base`.
pub fn extra(costs: &Costs, plan: &Plan, grid: &Grid, base: &[usize]) -> Vec<Vec<f64>> {
    let cluster = costs.problem.cluster();
    let step_of = |chosen: &[usize]| closed_step(costs, plan, &grid.mapping(cluster, chosen)).get();
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

/// Best of several integer-program solutions after full evaluation; axis costs are recomputed around the best placement
/// until it no longer changes.
#[cfg(feature = "programs")]
fn by_program(
    costs: &Costs,
    plan: &Plan,
    grid: &Grid,
    first: Vec<usize>,
    answers: usize,
) -> Result<Vec<(Seconds, Vec<usize>)>, Unplaceable> {
    let cluster = costs.problem.cluster();
    let step_of = |chosen: &[usize]| closed_step(costs, plan, &grid.mapping(cluster, chosen));
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
            return Ok(priced);
        }
    }
}

/// Refusal of a build that has no solver of integer programs.
#[cfg(not(feature = "programs"))]
fn by_program(
    _: &Costs,
    _: &Plan,
    _: &Grid,
    _: Vec<usize>,
    _: usize,
) -> Result<Vec<(Seconds, Vec<usize>)>, Unplaceable> {
    Err(Unplaceable::NoSolver)
}

/// Spreads with the least sum of `extra`, by the integer program; used to compare it with enumeration.
#[cfg(feature = "programs")]
pub fn choose(grid: &Grid, extra: &[Vec<f64>]) -> Option<Vec<usize>> {
    program::choose(grid, extra, &[])
}
