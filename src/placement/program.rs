//! Placement as a small integer program; the only file of the module that uses `good_lp`.

use good_lp::{Expression, Solution, SolutionStatus, SolverModel, WithTimeLimit, constraint, variable, variables};

use super::grid::Grid;

#[cfg(feature = "highs")]
use good_lp::highs as solver;
#[cfg(not(feature = "highs"))]
use good_lp::microlp as solver;

/// Time limit of one solve, in seconds; an unfinished solve yields no solution.
const TIME_LIMIT: f64 = 1.0;

/// Spreads of all axes that minimise the sum of `extra[axis][spread]`, in seconds, other than the solutions in `known`.
///
/// ```text
/// x_ds   0 or 1: axis d has spread s        y_c   0 or 1: units are filled as shape c says
/// e_π(n) exponent of the prime π in n       s_u   what unit u holds of the axis          P_cu   of all ranks
///
/// minimise   Σ extra_ds·x_ds
/// s.t.       Σ_s x_ds = 1                        for every axis d                (axes)
///            Σ_c y_c = 1                                                         (shape)
///            Σ_ds e_π(s_u)·x_ds = Σ_c e_π(P_cu)·y_c     for every unit u and prime π    (units)
///            Σ_(d, s of a) x_ds ≤ axes − 1       for every known answer a        (cuts)
/// ```
///
/// Source: specification §9.2. `None` where there is no further answer, or none in time.
pub fn choose(grid: &Grid, extra: &[Vec<f64>], known: &[Vec<usize>]) -> Option<Vec<usize>> {
    let scale = extra.iter().flatten().fold(0.0_f64, |most, seconds| most.max(seconds.abs())).max(f64::MIN_POSITIVE);
    let mut vars = variables!();
    let taken: Vec<Vec<_>> =
        grid.spreads.iter().map(|spreads| vars.add_vector(variable().binary(), spreads.len())).collect();
    let shapes = vars.add_vector(variable().binary(), grid.shapes.len());
    let sum = |axis: usize, weight: &dyn Fn(usize) -> f64| -> Expression {
        taken[axis].iter().enumerate().map(|(at, taken)| weight(at) * *taken).sum()
    };
    let axes = 0..grid.axes.len();
    let cost: Expression = axes.clone().map(|axis| sum(axis, &|at| extra[axis][at] / scale)).sum();
    let mut rows = vec![constraint!(shapes.iter().sum::<Expression>() == 1.0)];
    rows.extend(axes.clone().map(|axis| constraint!(sum(axis, &|_| 1.0) == 1.0)));
    let world: u32 = grid.axes.iter().product();
    for (unit, prime) in itertools::iproduct!(0..grid.units.len(), primes(world)) {
        let held = axes.clone().map(|axis| sum(axis, &|at| exponent(grid.spreads[axis][at][unit], prime)));
        let filled = grid.shapes.iter().zip(&shapes).map(|(shape, chosen)| exponent(shape[unit], prime) * *chosen);
        rows.push(constraint!(held.sum::<Expression>() == filled.sum::<Expression>()));
    }
    for answer in known {
        let repeated = axes.clone().zip(answer).map(|(axis, &at)| Expression::from(taken[axis][at]));
        rows.push(constraint!(repeated.sum::<Expression>() <= grid.axes.len() as f64 - 1.0));
    }
    let mut model = vars.minimise(cost).using(solver).with_time_limit(TIME_LIMIT);
    for row in rows {
        model.add_constraint(row);
    }
    let solution = model.solve().ok().filter(|found| matches!(found.status(), SolutionStatus::Optimal))?;
    let of_axis = |taken: &Vec<_>| taken.iter().position(|taken| solution.value(*taken) > 0.5);
    let chosen: Vec<usize> = taken.iter().map(of_axis).collect::<Option<_>>()?;
    (grid.is_placement(&chosen) && !known.contains(&chosen)).then_some(chosen)
}

/// Distinct prime factors of a number.
fn primes(mut number: u32) -> Vec<u32> {
    let mut primes = Vec::new();
    let mut prime = 2;
    while number > 1 {
        if number.is_multiple_of(prime) {
            primes.push(prime);
            while number.is_multiple_of(prime) {
                number /= prime;
            }
        }
        prime += 1;
    }
    primes
}

/// Exponent of a prime in the factorisation of a number.
fn exponent(mut number: u32, prime: u32) -> f64 {
    let mut times = 0.0;
    while number.is_multiple_of(prime) {
        number /= prime;
        times += 1.0;
    }
    times
}
