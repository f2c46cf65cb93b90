//! Integer program of a purchase; the only file of the module that uses `good_lp`.

use good_lp::{
    Expression, ResolutionError, Solution, SolutionStatus, SolverModel, Variable, WithTimeLimit, constraint, variable,
    variables,
};
use itertools::Itertools;

use super::answer::{Fleet, FleetProof, NoFleet, OptionCounts};
use super::check;
use super::column::{self, Candidate, Candidates, Column, ColumnList};
use super::request::{FleetGoal, Period, PeriodBudget, PurchaseRequest};
use crate::sweep::file::Sweep;
use crate::sweep::record::Record;
use meshwright_engine::units::Seconds;

#[cfg(feature = "highs")]
use good_lp::highs as solver;
#[cfg(not(feature = "highs"))]
use good_lp::microlp as solver;

/// Default time limit of one solve, in seconds.
const TIME_LIMIT: f64 = 20.0;
/// Horizon in days of a request without a deadline: longer than any fleet is kept.
const NO_DEADLINE: f64 = 3653.0;
/// Relative gap below which a difference is rounding.
const ROUNDING: f64 = 1e-6;
/// Dollars per unit of the program, which keeps coefficients near 1.
const DOLLARS: f64 = 1e6;
/// Tokens per unit of the program.
const TOKENS: f64 = 1e12;

/// Solution of the integer program, or of its linear relaxation.
struct ProgramSolution {
    /// Number of copies of each column.
    copies: Vec<u32>,
    /// Working days of each column's copies, if the goal is tokens.
    days: Vec<f64>,
    /// Millions of dollars, or trillions of tokens with a minus sign.
    objective: f64,
    is_optimal: bool,
}

/// Reason why the solver found no solution.
enum Unsolved {
    /// No solution meets all constraints.
    Infeasible,
    /// The solver failed, with its message.
    Failed(String),
}

/// Candidates and columns of a sweep under given limits.
struct Program<'a> {
    wanted: &'a PurchaseRequest,
    candidates: &'a [Candidate<'a>],
    columns: &'a [Column],
    runs: &'a [u32],
    boundaries: Vec<f64>,
}

impl Program<'_> {
    /// ```text
    /// n_k   whole: clusters of column k            x_k ≥ 0: days that they work (goal: tokens)
    ///
    /// minimise   Σ cost_k·n_k                      or   maximise  Σ tokens a day_k·x_k
    /// s.t.       Σ runs_kw·n_k ≥ runs_w            every run is made                        (goal: cost)
    ///            x_k ≤ n_k·(to_k − from_k)         a cluster works while it is there        (goal: tokens)
    ///            Σ cost ≤ budget                   dollars
    ///            Σ cost·share in p ≤ budget_p      of every period that has a budget
    ///            Σ_(k in p) MW_k·n_k ≤ power_p     in every period
    ///            Σ_(k in p) racks_k·n_k ≤ racks_p
    ///            Σ_(k of o in p) N_k·n_k ≤ most_o  of every offer, in every period
    /// ```
    fn solve(&self, is_whole: bool) -> Result<ProgramSolution, Unsolved> {
        let mut vars = variables!();
        let copies: Vec<Variable> = self
            .columns
            .iter()
            .map(|column| {
                let most = f64::from(self.most_copies(column));
                let copies = variable().min(0.0).max(most);
                vars.add(if is_whole { copies.integer() } else { copies })
            })
            .collect();
        let is_tokens = self.wanted.goal == FleetGoal::Tokens;
        let days: Vec<Variable> =
            if is_tokens { self.columns.iter().map(|_| vars.add(variable().min(0.0))).collect() } else { Vec::new() };
        let cost_of = |k: usize| -> Expression {
            let column = &self.columns[k];
            let candidate = &self.candidates[column.candidate];
            if !is_tokens {
                return candidate.cost(&column.runs) / DOLLARS * copies[k];
            }
            // Committed days are paid for in full, so work in them costs no more.
            if candidate.committed_days > 0.0 {
                let paid = (column.to - column.from).max(candidate.committed_days);
                candidate.idle(paid) / DOLLARS * copies[k]
            } else {
                candidate.daily() / DOLLARS * days[k]
            }
        };
        let cost: Expression = (0..self.columns.len()).map(cost_of).sum();
        let tokens: Expression = days
            .iter()
            .zip(self.columns)
            .map(|(days, column)| check::tokens_a_day(&self.candidates[column.candidate]) / TOKENS * *days)
            .sum();
        let goal = if is_tokens { -tokens } else { cost.clone() };
        let mut program = vars.minimise(goal.clone()).using(solver);
        for (task, &runs) in self.runs.iter().enumerate().filter(|_| !is_tokens) {
            let made: Expression =
                self.columns.iter().zip(&copies).map(|(column, copies)| f64::from(column.runs[task]) * *copies).sum();
            program.add_constraint(constraint!(made >= f64::from(runs)));
        }
        for (k, days) in days.iter().enumerate() {
            let column = &self.columns[k];
            program.add_constraint(constraint!(*days <= (column.to - column.from) * copies[k]));
        }
        if let Some(budget) = self.wanted.budget {
            program.add_constraint(constraint!(cost <= budget.get() / DOLLARS));
        }
        for PeriodBudget { start, end, usd } in self.wanted.period_budgets() {
            let within = |(k, column): (usize, &Column)| -> Expression {
                let candidate = &self.candidates[column.candidate];
                let share = candidate.paid_within(&(start..end), &(column.from..column.to));
                cost_of(k) * share
            };
            let spent: Expression = self.columns.iter().enumerate().map(within).sum();
            program.add_constraint(constraint!(spent <= usd / DOLLARS));
        }
        for pair in self.boundaries.windows(2) {
            let inside = |column: &Column| column.from < pair[1] - 1e-9 && column.to > pair[0] + 1e-9;
            let sum = |of: &dyn Fn(&Column) -> f64| -> Expression {
                let present = self.columns.iter().zip(&copies).filter(|(column, _)| inside(column));
                present.map(|(column, copies)| of(column) * *copies).sum()
            };
            let limits = check::DayLimits::of(self.wanted, pair[0]);
            if let Some(power) = limits.megawatts {
                program.add_constraint(constraint!(sum(&|c| self.candidates[c.candidate].totals.peak_mw) <= power));
            }
            if let Some(racks) = limits.racks {
                program.add_constraint(constraint!(sum(&|c| self.candidates[c.candidate].racks) <= racks));
            }
            for (place, offer) in self.wanted.offer.iter().enumerate() {
                if let Some(most) = offer.most {
                    let gpus = |c: &Column| {
                        if c.offer == Some(place) { f64::from(self.candidates[c.candidate].record.gpus) } else { 0.0 }
                    };
                    program.add_constraint(constraint!(
                        sum(&gpus) / f64::from(most.max(1)) <= f64::from(u8::from(most > 0))
                    ));
                }
            }
        }
        let limit = self.wanted.time_limit.map_or(TIME_LIMIT, Seconds::get);
        let solution = program.with_time_limit(limit).solve().map_err(|error| match error {
            ResolutionError::Infeasible => Unsolved::Infeasible,
            other => Unsolved::Failed(format!("the solver failed: {other}")),
        })?;
        Ok(ProgramSolution {
            copies: copies.iter().map(|copies| solution.value(*copies).round().max(0.0) as u32).collect(),
            days: days.iter().map(|days| solution.value(*days).max(0.0)).collect(),
            objective: solution.eval(goal),
            is_optimal: matches!(solution.status(), SolutionStatus::Optimal),
        })
    }

    /// Upper bound on copies of a column: all runs are made, or a limit is reached.
    fn most_copies(&self, column: &Column) -> u32 {
        let candidate = &self.candidates[column.candidate];
        let mut most = match self.wanted.goal {
            FleetGoal::Cost => column
                .runs
                .iter()
                .zip(self.runs)
                .filter(|(own, _)| **own > 0)
                .map(|(own, all)| all.div_ceil(*own))
                .max()
                .unwrap_or(1),
            FleetGoal::Tokens => 100_000,
        };
        let mut limit = |room: f64, one: f64| {
            if one > 0.0 {
                most = most.min((room / one * (1.0 + 1e-12)).floor().clamp(0.0, 1e6) as u32);
            }
        };
        if let Some(power) = self.wanted.power {
            limit(power.as_megawatts(), candidate.totals.peak_mw);
        }
        if let Some(racks) = self.wanted.racks {
            limit(racks, candidate.racks);
        }
        if let Some(offer) = column.offer.and_then(|place| self.wanted.offer[place].most) {
            limit(f64::from(offer), f64::from(candidate.record.gpus));
        }
        most
    }
}

/// Optimal fleet for the purchase that a sweep file describes, from its records.
///
/// # Errors
///
/// No choice meets all constraints (the conflicting ones are listed), or the solver finds no solution in time.
pub fn buy(sweep: &Sweep, wanted: &PurchaseRequest, records: &[Record]) -> Result<Fleet, NoFleet> {
    let Candidates { undominated: candidates, usable } = column::candidates(sweep, wanted, records);
    if candidates.is_empty() {
        return Err(NoFleet::Infeasible(vec!["no option of the sweep is feasible".into()]));
    }
    let runs: Vec<u32> = sweep.tasks.iter().map(|task| task.runs.round() as u32).collect();
    let horizon = wanted.finish_by.map_or(NO_DEADLINE, Seconds::as_days);
    let ColumnList { columns, is_complete } = column::columns(wanted, &candidates, &runs, horizon);
    let boundaries = column::boundaries(wanted, horizon);
    let program = Program { wanted, candidates: &candidates, columns: &columns, runs: &runs, boundaries };
    if columns.is_empty() {
        return Err(NoFleet::Infeasible(why_not(sweep, wanted, records)));
    }
    let answer = match program.solve(true) {
        Ok(answer) => answer,
        Err(Unsolved::Infeasible) => return Err(NoFleet::Infeasible(why_not(sweep, wanted, records))),
        Err(Unsolved::Failed(why)) => return Err(NoFleet::Solver(why)),
    };
    let relaxed = match program.solve(false) {
        Ok(relaxed) => relaxed.objective,
        Err(_) => f64::NEG_INFINITY,
    };
    let gap = ((answer.objective - relaxed) / answer.objective.abs().max(1e-12)).max(0.0);
    let proof =
        if answer.is_optimal && is_complete || gap <= ROUNDING { FleetProof::Optimal } else { FleetProof::Within(gap) };
    let bound = match wanted.goal {
        FleetGoal::Cost => relaxed * DOLLARS,
        FleetGoal::Tokens => -relaxed * TOKENS,
    };
    let mut fleet = check::fleet(sweep, wanted, &candidates, &columns, &answer.copies, &answer.days);
    fleet.proof = proof;
    fleet.bound = bound;
    fleet.options = OptionCounts { usable, undominated: candidates.len() };
    fleet.columns = columns.len();
    check::holds(sweep, wanted, records, &fleet)
        .map_err(|why| NoFleet::Solver(format!("the solver's solution fails the check: {why}")))?;
    Ok(fleet)
}

/// Removal of one constraint.
type Change = fn(&mut PurchaseRequest);

/// Constraint of a purchase request.
struct Constraint {
    /// Key in the file.
    name: &'static str,
    /// Whether the request has it.
    is_set: bool,
    remove: Change,
}

/// Conflicting constraints: one or two without which a fleet exists, each with the fleet that it would allow.
fn why_not(sweep: &Sweep, wanted: &PurchaseRequest, records: &[Record]) -> Vec<String> {
    let of_periods = |is_set: fn(&Period) -> bool| wanted.period.iter().any(is_set);
    let constraint = |name, is_set, remove| Constraint { name, is_set, remove };
    let has_deadline = wanted.finish_by.is_some() && wanted.goal == FleetGoal::Cost;
    let all = [
        constraint("finish_by", has_deadline, |request| request.finish_by = None),
        constraint("budget", wanted.budget.is_some(), |request| request.budget = None),
        constraint("period.budget", of_periods(|period| period.budget.is_some()), |request| {
            request.period.iter_mut().for_each(|period| period.budget = None);
        }),
        constraint("power", wanted.power.is_some() || of_periods(|period| period.power.is_some()), |request| {
            request.power = None;
            request.period.iter_mut().for_each(|period| period.power = None);
        }),
        constraint("racks", wanted.racks.is_some() || of_periods(|period| period.racks.is_some()), |request| {
            request.racks = None;
            request.period.iter_mut().for_each(|period| period.racks = None);
        }),
        constraint("offer", !wanted.offer.is_empty(), |request| request.offer.clear()),
    ];
    let present: Vec<Constraint> = all.into_iter().filter(|constraint| constraint.is_set).collect();
    let allowed = |names: &str, fleet: &Fleet| {
        format!(
            "without {names} it takes {} in {:.1} days, {:.2} MW and {:.0} racks",
            meshwright_engine::units::Usd::new(fleet.cost_usd),
            fleet.days,
            fleet.peak_mw,
            fleet.racks
        )
    };
    let mut reasons = Vec::new();
    for Constraint { name, remove, .. } in &present {
        if let Some(fleet) = unchecked_fleet(sweep, &without(wanted, &[remove]), records) {
            reasons.push(allowed(&format!("`{name}`"), &fleet));
        }
    }
    if !reasons.is_empty() {
        return reasons;
    }
    for [first, second] in present.iter().array_combinations() {
        if let Some(fleet) = unchecked_fleet(sweep, &without(wanted, &[&first.remove, &second.remove]), records) {
            reasons.push(allowed(&format!("`{}` and `{}`", first.name, second.name), &fleet));
        }
    }
    if reasons.is_empty() {
        let names: Vec<&str> = present.iter().map(|constraint| constraint.name).collect();
        reasons.push(if names.is_empty() {
            "no option can do all runs".into()
        } else {
            format!("more than two of `{}` conflict together", names.join("`, `"))
        });
    }
    reasons
}

/// Purchase request without some of its constraints.
fn without(wanted: &PurchaseRequest, changes: &[&Change]) -> PurchaseRequest {
    let mut fewer = wanted.clone();
    for change in changes {
        change(&mut fewer);
    }
    fewer
}

/// Optimal fleet, neither proved nor checked; `None` where there is none.
fn unchecked_fleet(sweep: &Sweep, wanted: &PurchaseRequest, records: &[Record]) -> Option<Fleet> {
    let candidates = column::candidates(sweep, wanted, records).undominated;
    let runs: Vec<u32> = sweep.tasks.iter().map(|task| task.runs.round() as u32).collect();
    let horizon = wanted.finish_by.map_or(NO_DEADLINE, Seconds::as_days);
    let ColumnList { columns, .. } = column::columns(wanted, &candidates, &runs, horizon);
    let boundaries = column::boundaries(wanted, horizon);
    let program = Program { wanted, candidates: &candidates, columns: &columns, runs: &runs, boundaries };
    let answer = if columns.is_empty() { None } else { program.solve(true).ok() }?;
    Some(check::fleet(sweep, wanted, &candidates, &columns, &answer.copies, &answer.days))
}
