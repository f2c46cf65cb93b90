//! Marginal likelihood of the discrepancy model, and the coefficients of a stack.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::timed::TimedPlan;
use meshwright_planner::discrepancy::{DiscrepancyTable, TRAITS, covariance};

/// Plans of one problem, with ln(measured/predicted) of each.
pub(super) type Group<'a> = Vec<(&'a TimedPlan, f64)>;

/// Coefficients of a stack given its groups, and −2 times the logarithm of the marginal likelihood, up to a constant.
pub(super) struct StackPosterior {
    pub mean: DVector<f64>,
    pub covariance: DMatrix<f64>,
    pub deviance: f64,
}

/// Posterior of a stack's coefficients b, its problems deviating by `scale`. With C_g the covariance of group g and S =
/// diag(across):
///
/// ```text
/// A = Σ_g Φ_gᵀ C_g⁻¹ Φ_g      c = Σ_g Φ_gᵀ C_g⁻¹ y_g      M = I + S·A·S = L·Lᵀ
/// cov b = S·M⁻¹·S             mean b = S·M⁻¹·S·c
/// −2 ln p(y) = Σ_g (ln |C_g| + y_gᵀ C_g⁻¹ y_g) + ln |M| − |L⁻¹·S·c|²
/// ```
///
/// `None` if a covariance is not positive definite.
pub(super) fn stack_posterior(table: &DiscrepancyTable, scale: f64, groups: &[Group]) -> Option<StackPosterior> {
    let traits = TRAITS.len();
    let (mut precision, mut moment) = (DMatrix::zeros(traits, traits), DVector::zeros(traits));
    let mut deviance = 0.0;
    for group in groups {
        let n = group.len();
        let with = DMatrix::from_fn(n, n, |a, b| {
            scale.powi(2) * covariance(table, (&group[a].0.traits, a), (&group[b].0.traits, b))
        });
        let root = Cholesky::new(with)?;
        let values = DVector::from_iterator(n, group.iter().map(|(_, value)| *value));
        let design = DMatrix::from_fn(n, traits, |row, column| group[row].0.traits.linear[column]);
        let (solved_values, solved_design) = (root.solve(&values), root.solve(&design));
        deviance += log_determinant(&root) + values.dot(&solved_values);
        precision += design.transpose() * solved_design;
        moment += design.transpose() * solved_values;
    }
    let spread = DVector::from_iterator(traits, table.traits.iter().map(|spread| spread.across));
    let scale = DMatrix::from_diagonal(&spread);
    let root = Cholesky::new(DMatrix::identity(traits, traits) + &scale * precision * &scale)?;
    let scaled = &scale * moment;
    let solved = root.solve(&scaled);
    deviance += log_determinant(&root) - scaled.dot(&solved);
    Some(StackPosterior { mean: &scale * solved, covariance: &scale * root.inverse() * &scale, deviance })
}

fn log_determinant(root: &Cholesky<f64, Dyn>) -> f64 {
    2.0 * root.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum::<f64>()
}
