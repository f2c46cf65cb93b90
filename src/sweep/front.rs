//! Pareto front of records: those that no other improves in one figure without being worse in another.

use super::record::{OptionStatus, Record, Totals};

/// Places of the points on the Pareto front of two figures of which less is better, in the order of the first figure.
///
/// A point is on the front if no other is at most as large in both figures and smaller in one; of equal points, the first is
/// kept. Points with a figure that is not finite are left out.
pub fn pareto(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..points.len()).filter(|at| points[*at].0.is_finite() && points[*at].1.is_finite()).collect();
    order.sort_by(|a, b| {
        let ((ax, ay), (bx, by)) = (points[*a], points[*b]);
        ax.total_cmp(&bx).then(ay.total_cmp(&by)).then(a.cmp(b))
    });
    let mut least = f64::INFINITY;
    order.retain(|at| {
        let better = points[*at].1 < least;
        if better {
            least = points[*at].1;
        }
        better
    });
    order
}

/// Places of the feasible records on the Pareto front of two figures of their totals.
pub fn of_records(records: &[Record], figures: impl Fn(&Totals) -> (f64, f64)) -> Vec<usize> {
    let points: Vec<(f64, f64)> = records
        .iter()
        .map(|record| match (&record.status, &record.totals) {
            (OptionStatus::Ok, Some(totals)) => figures(totals),
            _ => (f64::INFINITY, f64::INFINITY),
        })
        .collect();
    pareto(&points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn the_front_is_what_a_plain_comparison_leaves(points in proptest::collection::vec((0u8..20, 0u8..20), 0..40)) {
            let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect();
            let beaten = |at: usize| points.iter().enumerate().any(|(other, (x, y))| {
                let (px, py) = points[at];
                (*x <= px && *y <= py && (*x < px || *y < py)) || (points[other] == points[at] && other < at)
            });
            let mut plain: Vec<usize> = (0..points.len()).filter(|at| !beaten(*at)).collect();
            plain.sort_by(|a, b| points[*a].0.total_cmp(&points[*b].0));
            prop_assert_eq!(pareto(&points), plain);
        }
    }
}
