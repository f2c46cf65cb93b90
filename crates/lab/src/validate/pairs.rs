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
