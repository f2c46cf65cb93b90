//! Probability that each of several plans is the fastest, given the distribution of prediction errors.

use crate::confidence::table;
use crate::discrepancy::{normal_density, normal_share_below};
use meshwright_engine::cost::Evaluation;

/// Standard normal quantile of 0.9: nine of ten measured pairs are in the predicted order at the table's gap.
const NINE_OF_TEN: f64 = 1.281_551_565_544_600_4;

/// Probability that each plan is the fastest of all of them.
///
/// ```text
/// ln t_i = ln T_i + ε_i      ε_i independent, normal, of standard deviation s      √2·s = ln(1 + gap) / z(0.9)
/// P(i) = ∫ φ((x − ln T_i)/s)/s · Π_{j≠i} (1 − Φ((x − ln T_j)/s)) dx
/// ```
///
/// T_i is the predicted step time; `gap` is the predicted difference at which nine of ten measured pairs of one problem were in
/// the predicted order, so that errors that plans of one problem share are out of it.
pub fn chances_of_being_best(ranked: &[Evaluation]) -> Vec<f64> {
    let means: Vec<f64> = ranked.iter().map(|evaluation| libm::log(evaluation.step.total().get())).collect();
    let spread = libm::log1p(table().apart.gap) / NINE_OF_TEN / std::f64::consts::SQRT_2;
    least_of_normals(&means, spread)
}

/// Steps of the trapezoidal rule over the twelve standard deviations around the least mean.
const STEPS: u32 = 240;

/// Probability that each of several normal variables of one standard deviation is the least.
fn least_of_normals(means: &[f64], spread: f64) -> Vec<f64> {
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let width = 12.0 * spread / f64::from(STEPS);
    let mut chances = vec![0.0; means.len()];
    for step in 0..=STEPS {
        let x = least - 6.0 * spread + f64::from(step) * width;
        let above: Vec<f64> = means.iter().map(|mean| normal_share_below((mean - x) / spread)).collect();
        for (at, chance) in chances.iter_mut().enumerate() {
            let others: f64 =
                above.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, share)| share).product();
            *chance += normal_density(x, means[at], spread) * others * width;
        }
    }
    let sum: f64 = chances.iter().sum();
    chances.into_iter().map(|chance| chance / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_certain_two_follow_the_normal_law_and_equals_share() {
        assert_eq!(least_of_normals(&[3.0], 0.1), [1.0]);
        // P(a < b) = Φ(0.2 / (√2·0.1)) = Φ(1.41421) = 0.92135
        let two = least_of_normals(&[1.0, 1.2], 0.1);
        assert!((two[0] - 0.921_35).abs() < 1e-4 && (two[1] - 0.078_65).abs() < 1e-4, "{two:?}");
        let four = least_of_normals(&[0.0; 4], 0.05);
        assert!(four.iter().all(|chance| (chance - 0.25).abs() < 1e-9), "{four:?}");
    }
}
