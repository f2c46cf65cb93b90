//! Predicted and measured values of a run.

use super::metrics::PredictedPair;
use super::sample::PredictedRun;

/// Predicted and measured step time.
pub fn time_pair(sample: &PredictedRun) -> Option<PredictedPair> {
    Some(PredictedPair {
        predicted: sample.prediction.step_time_s?,
        measured: sample.measured()?,
        weight: sample.weight,
    })
}

/// Predicted and measured peak memory.
pub fn memory_pair(sample: &PredictedRun) -> Option<PredictedPair> {
    let measured = sample.row.peak_mem_gib.filter(|peak| peak.is_finite() && *peak > 0.0)?;
    Some(PredictedPair { predicted: sample.prediction.peak_mem_gib?, measured, weight: sample.weight })
}

/// Share of the timed and predicted runs inside the 90 % interval of their prediction.
pub(super) fn inside(members: &[PredictedRun]) -> Option<f64> {
    let (mut inside, mut all) = (0.0, 0.0);
    for sample in members {
        let (Some(pair), Some(low), Some(high)) =
            (time_pair(sample), sample.prediction.step_time_p05_s, sample.prediction.step_time_p95_s)
        else {
            continue;
        };
        inside += sample.weight * f64::from(u8::from((low..=high).contains(&pair.measured)));
        all += sample.weight;
    }
    (all > 0.0).then(|| inside / all)
}
