//! What multipliers leave open, as an integer program over stages. Only this file of the layer knows good_lp.

use good_lp::{
    Expression, Solution, SolutionStatus, SolverModel, Variable, WithTimeLimit, constraint, variable, variables,
};

use super::blend::length;
use super::program::{Load, Program};
use meshwright_engine::schedule::paths::Path;

#[cfg(feature = "highs")]
use good_lp::highs as solver;
#[cfg(not(feature = "highs"))]
use good_lp::microlp as solver;

/// Most columns that the solver is given: what it can prove within its time.
#[cfg(feature = "highs")]
pub const MOST_COLUMNS: usize = 20_000;
/// Most columns that the solver is given: what it can prove within its time.
#[cfg(not(feature = "highs"))]
pub const MOST_COLUMNS: usize = 240;

/// Seconds for one solution. What is solved in them is the same on every machine; what is not is no answer.
const TIME_LIMIT: f64 = 5.0;

/// One stage that holds items `a..b` under one mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// The stage.
    pub stage: usize,
    /// First item.
    pub a: usize,
    /// Behind the last item.
    pub b: usize,
    /// Its times and bytes.
    pub load: Load,
}

/// What the solver says; nothing of it is believed before the evaluator has seen it.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The columns chosen, one a stage, and the longest chain there: none of these columns make a shorter one.
    Optimal(Vec<Column>, f64),
    /// No columns make a split that fits with its longest chain under the ceiling.
    Nothing,
    /// No answer in time.
    Unknown,
}

/// Chooses one column a stage:
///
/// ```text
/// x_c   0 or 1: column c is taken        z: the longest chain        g_r: the largest working set of rank r
///
/// minimise   z
/// s.t.       Σ_(c of S) x_c = 1                                             every stage is cut once          (stages)
///            Σ_(c of S, to b) x_c = Σ_(c of S+1, from b) x_c                what one leaves the next takes   (order)
///            Σ_c length_k(c)·x_c ≤ z                                        for every chain k                (time)
///            Σ_(c of r) (states_c + alive_cm·kept_c)·x_c + g_r ≤ room_r     at every moment m of every rank  (memory)
///            again_c·x_c ≤ g_r
/// ```
pub fn choose(program: &Program, columns: &[Column], chains: &[Path], ceiling: f64) -> Found {
    let mut vars = variables!();
    let taken: Vec<Variable> = columns.iter().map(|_| vars.add(variable().binary())).collect();
    let longest = vars.add(variable().min(0.0).max(1.0));
    let again: Vec<Variable> = (0..program.ranks).map(|_| vars.add(variable().min(0.0))).collect();
    let mut rows = Vec::new();
    let sum = |wanted: &dyn Fn(&Column) -> bool| -> Expression {
        columns.iter().zip(&taken).filter(|(column, _)| wanted(column)).map(|(_, taken)| Expression::from(*taken)).sum()
    };
    for stage in 0..program.chunks {
        rows.push(constraint!(sum(&|c| c.stage == stage) == 1.0));
        for cut in (0..=program.len()).filter(|_| stage > 0) {
            let before = |c: &Column| c.stage + 1 == stage && c.b == cut;
            let behind = |c: &Column| c.stage == stage && c.a == cut;
            if columns.iter().any(|c| before(c) || behind(c)) {
                rows.push(constraint!(sum(&before) == sum(&behind)));
            }
        }
    }
    let in_chain = |path: &Path, column: &Column| {
        path.forward[column.stage] * column.load.forward
            + path.backward[column.stage] * (column.load.backward - column.load.slack)
            + path.wgrad[column.stage] * column.load.wgrad
            + path.traffic[column.stage] * column.load.traffic
    };
    for path in chains {
        let chain: Expression =
            columns.iter().zip(&taken).map(|(column, taken)| in_chain(path, column) / ceiling * *taken).sum();
        rows.push(constraint!(chain <= longest));
    }
    for (rank, again) in again.iter().enumerate() {
        let room = program.room[rank].max(1.0);
        let own: Vec<(&Column, &Variable)> =
            columns.iter().zip(&taken).filter(|(column, _)| program.rank_of(column.stage) == rank).collect();
        for moment in &program.stager.alive()[rank] {
            let held: Expression = own
                .iter()
                .map(|(column, taken)| {
                    let kept = column.load.kept * moment[column.stage / program.ranks];
                    (program.states(column.a, column.b) + kept) / room * **taken
                })
                .sum();
            rows.push(constraint!(held + *again <= program.room[rank] / room));
        }
        for (column, taken) in own.iter().filter(|(column, _)| column.load.again > 0.0) {
            rows.push(constraint!(column.load.again / room * **taken <= *again));
        }
    }
    let mut model = vars.minimise(longest).using(solver).with_time_limit(TIME_LIMIT);
    for row in rows {
        model.add_constraint(row);
    }
    let solution = match model.solve() {
        Ok(solution) => solution,
        Err(good_lp::ResolutionError::Infeasible) => return Found::Nothing,
        Err(_) => return Found::Unknown,
    };
    let chosen: Vec<Column> = columns
        .iter()
        .zip(&taken)
        .filter(|(_, taken)| solution.value(**taken) > 0.5)
        .map(|(column, _)| *column)
        .collect();
    let is_optimal = matches!(solution.status(), SolutionStatus::Optimal);
    if !is_optimal || !covers(program, &chosen) {
        return Found::Unknown;
    }
    let loads: Vec<Load> = chosen.iter().map(|column| column.load).collect();
    let at_least = |load: &Load| Load { backward: load.backward - load.slack, ..*load };
    let at_least: Vec<Load> = loads.iter().map(at_least).collect();
    let value = chains.iter().map(|path| length(path, &at_least)).fold(0.0, f64::max);
    Found::Optimal(chosen, value)
}

/// Whether columns are one a stage and leave no layer out.
fn covers(program: &Program, columns: &[Column]) -> bool {
    let starts = columns.first().is_some_and(|column| column.a == 0);
    let ends = columns.last().is_some_and(|column| column.b == program.len());
    columns.len() == program.chunks
        && starts
        && ends
        && columns.iter().enumerate().all(|(stage, column)| column.stage == stage)
        && columns.windows(2).all(|pair| pair[0].b == pair[1].a)
}
