//! Verdict of a check of plans on a device.

use serde::Serialize;

use super::checked::Checked;
use meshwright_engine::units::Seconds;

/// Least share of the predicted kernel time that must be measured, or bounded by the probe's own attention; a choice,
/// without a source.
pub const LEAST_COVERED: f64 = 0.9;
/// Least share that must be measured itself, since a bound alone confirms no step time; a majority, by choice.
pub const LEAST_MEASURED: f64 = 0.5;
/// Largest error of the calibrated kernel time for confirmation.
pub const MOST_ERROR: f64 = 0.05;
/// Largest error of a layer's memory for confirmation.
pub const MOST_MEMORY_ERROR: f64 = 0.02;
/// Relative difference below which two plans tie; repeats of one measurement differ by as much.
pub const TIE: f64 = 0.03;

/// Verdict on the predicted ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The predicted winner wins or ties, and calibrated kernel times are within 5 % of measured.
    Confirmed,
    /// Another plan is faster when measured.
    Overturned,
    /// The winner is confirmed, but calibrated times of the kernels, or of a layer as one run, are off by more than 5 %, or a
    /// layer's memory by more than 2 %.
    Inaccurate,
    /// Too little was measured, or only the model was asked.
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Overturned => "overturned",
            Self::Inaccurate => "inaccurate",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// Verdict on checked plans.
pub(super) fn verdict(plans: &[Checked]) -> Verdict {
    let known = |plan: &Checked| {
        let known = plan.total().map(|total| (total.covered, total.covered + total.bounded));
        known.is_some_and(|(measured, all)| measured >= LEAST_MEASURED && all >= LEAST_COVERED)
    };
    if plans.is_empty() || !plans.iter().all(known) {
        return Verdict::Inconclusive;
    }
    // The winner must win by measured times, and also with attention at its upper bound.
    let wins = |time: fn(&Checked) -> Seconds| {
        let best = plans.iter().map(|plan| time(plan).get()).fold(f64::INFINITY, f64::min);
        plans.iter().find(|plan| plan.place_before == 1).is_none_or(|winner| time(winner).get() <= best * (1.0 + TIE))
    };
    match (wins(|plan| plan.measured_s), wins(|plan| plan.slowest_s)) {
        (false, false) => return Verdict::Overturned,
        (true, true) => {}
        _ => return Verdict::Inconclusive,
    }
    let kernels_off = plans.iter().filter_map(Checked::total).any(|total| total.error_after().abs() > MOST_ERROR);
    let runs_off = plans.iter().flat_map(|plan| &plan.runs).any(|run| run.error_after().abs() > MOST_ERROR);
    let memory_off = plans.iter().flat_map(|plan| &plan.layers).any(|layer| layer.error().abs() > MOST_MEMORY_ERROR);
    if kernels_off || runs_off || memory_off { Verdict::Inaccurate } else { Verdict::Confirmed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::checked::{LayerMemory, LayerRun, Term};

    /// Plan with this predicted place: measured and slowest step, shares measured and bounded, and error of its calibrated
    /// kernels.
    fn plan(place: usize, step: [f64; 2], share: [f64; 2], error: f64) -> Checked {
        let total = Term {
            name: "all kernels".into(),
            predicted_s: Seconds::new(1.0),
            calibrated_s: Seconds::new(1.0 + error),
            measured_s: Seconds::new(1.0),
            covered: share[0],
            bounded: share[1],
            bounded_s: Seconds::ZERO,
            at_most_s: Seconds::ZERO,
        };
        Checked {
            plan: format!("plan {place}"),
            place_before: place,
            place_after: place,
            predicted_s: Seconds::new(1.0),
            measured_s: Seconds::new(step[0]),
            slowest_s: Seconds::new(step[1]),
            terms: vec![total],
            parts: Vec::new(),
            peak_bytes: 0.0,
            layers: Vec::new(),
            runs: Vec::new(),
        }
    }

    fn second() -> Checked {
        plan(2, [1.2, 1.2], [1.0, 0.0], 0.0)
    }

    #[test]
    fn a_winner_that_wins_is_confirmed_and_so_is_a_tie() {
        assert_eq!(verdict(&[plan(1, [1.0, 1.1], [0.95, 0.0], 0.049), second()]), Verdict::Confirmed);
        assert_eq!(verdict(&[plan(1, [1.2 * 1.029; 2], [1.0, 0.0], 0.0), second()]), Verdict::Confirmed);
    }

    #[test]
    fn another_plan_that_wins_either_way_overturns() {
        assert_eq!(verdict(&[plan(1, [1.2 * 1.031; 2], [1.0, 0.0], 0.0), second()]), Verdict::Overturned);
    }

    #[test]
    fn a_winner_that_hangs_on_attention_is_not_concluded() {
        let hangs = plan(1, [1.0, 1.5], [0.6, 0.4], 0.0);
        assert_eq!(verdict(&[hangs, second()]), Verdict::Inconclusive);
    }

    #[test]
    fn too_little_measured_is_not_concluded() {
        let shares = [[0.49, 0.51], [0.6, 0.29], [0.0, 1.0]];
        for share in shares {
            assert_eq!(verdict(&[plan(1, [1.0; 2], share, 0.0), second()]), Verdict::Inconclusive, "{share:?}");
        }
        assert_eq!(verdict(&[]), Verdict::Inconclusive);
        assert_eq!(verdict(&[plan(1, [1.0; 2], [0.5, 0.4], 0.0), second()]), Verdict::Confirmed);
    }

    #[test]
    fn a_layer_that_takes_longer_than_its_kernels_is_inaccurate() {
        let with_run = |error: f64| {
            let [predicted_s, calibrated_s] = [Seconds::new(1.0 + error); 2];
            let run = LayerRun {
                kind: 0,
                kernels: 9,
                predicted_s,
                calibrated_s,
                alone_s: None,
                together_s: Seconds::new(1.0),
            };
            Checked { runs: vec![run], ..plan(1, [1.0; 2], [1.0, 0.0], 0.0) }
        };
        assert_eq!(verdict(&[with_run(-0.051), second()]), Verdict::Inaccurate);
        assert_eq!(verdict(&[with_run(-0.049), second()]), Verdict::Confirmed);
    }

    #[test]
    fn curves_or_memory_that_do_not_fit_are_inaccurate() {
        assert_eq!(verdict(&[plan(1, [1.0; 2], [1.0, 0.0], -0.051), second()]), Verdict::Inaccurate);
        let with_memory = |error: f64| {
            let layer = LayerMemory { kind: 0, predicted_bytes: 1.0 + error, allocated_bytes: 1.0 };
            Checked { layers: vec![layer], ..plan(1, [1.0; 2], [1.0, 0.0], 0.0) }
        };
        assert_eq!(verdict(&[with_memory(0.021), second()]), Verdict::Inaccurate);
        assert_eq!(verdict(&[with_memory(0.019), second()]), Verdict::Confirmed);
    }
}
