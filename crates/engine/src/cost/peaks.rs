//! Moments at which ranks have the most micro-batches in flight, computed once for all plans of a problem.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use smallvec::SmallVec;

use super::counts::peaks_by_chunk;
use crate::schedule::Schedule;
use crate::schedule::in_flight::peak_moments;
use crate::units::Bytes;

/// Moments of one rank, as micro-batches of each of its virtual stages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peak {
    /// The most micro-batches of all virtual stages together.
    pub most: f64,
    /// Moments that no other dominates.
    pub moments: Vec<Vec<f64>>,
    /// Micro-batches of all virtual stages at each moment.
    totals: Vec<f64>,
    /// Micro-batches of each virtual stage, by moment.
    of_chunks: Vec<Vec<f64>>,
}

impl Peak {
    fn new(moments: Vec<Vec<f64>>) -> Self {
        let totals: Vec<f64> = moments.iter().map(|moment| moment.iter().sum()).collect();
        let of_chunk = |chunk: usize| moments.iter().map(|moment| moment[chunk]).collect();
        Self {
            most: totals.iter().copied().fold(0.0, f64::max),
            of_chunks: (0..moments.first().map_or(0, Vec::len)).map(of_chunk).collect(),
            totals,
            moments,
        }
    }

    /// Largest number of bytes over all moments, given the bytes of each virtual stage for a micro-batch. Most stages have
    /// the same: the difference of the others is added.
    pub fn bytes(&self, chunks: &[Bytes]) -> Bytes {
        let usual = chunks[chunks.len() / 2];
        let others = chunks.iter().zip(&self.of_chunks).filter(|(bytes, _)| **bytes != usual);
        let others: SmallVec<[(Bytes, &[f64]); 4]> =
            others.map(|(bytes, column)| (*bytes - usual, &column[..])).collect();
        if others.is_empty() {
            return usual * self.most;
        }
        let sum = |(moment, &n): (usize, &f64)| {
            others.iter().fold(usual * n, |sum, (bytes, column)| sum + *bytes * column[moment])
        };
        self.totals.iter().enumerate().map(sum).fold(Bytes::ZERO, Bytes::max)
    }
}

/// Peaks of every rank, by schedule, ranks and micro-batches.
#[derive(Clone, Debug, Default)]
pub(super) struct Peaks(Arc<RwLock<Known>>);

type Known = BTreeMap<(Schedule, u32, u64), Arc<[Peak]>>;

impl Peaks {
    /// Peaks of the ranks of a pipeline.
    pub fn of(&self, schedule: Schedule, pp: u32, micro_batches: f64) -> Arc<[Peak]> {
        let micro_batches = saturated(schedule, pp, micro_batches);
        let key = (schedule, pp, micro_batches.to_bits());
        if let Some(known) = self.0.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let peaks: Arc<[Peak]> = peak_moments(schedule, pp, micro_batches).into_iter().map(Peak::new).collect();
        Arc::clone(self.0.write().expect("no writer panics").entry(key).or_insert(peaks))
    }
}

/// Micro-batches that fill a pipeline as well as more do: its warm-up and one round behind it take fewer than 4·p.
fn saturated(schedule: Schedule, pp: u32, micro_batches: f64) -> f64 {
    if peaks_by_chunk(schedule, pp) && micro_batches.fract() == 0.0 {
        micro_batches.min(f64::from(4 * pp))
    } else {
        micro_batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_micro_batches_than_fill_a_pipeline_change_no_peak() {
        let interleaved = |virtual_stages| Schedule::Interleaved { virtual_stages };
        let schedules =
            [interleaved(2), interleaved(3), interleaved(8), Schedule::ZbV, Schedule::DualPipe, Schedule::DualPipeV];
        for (schedule, pp) in itertools::iproduct!(schedules, [2, 4, 6, 8]) {
            for m in [4 * pp, 5 * pp, 6 * pp, 11 * pp] {
                let mut sorted = [f64::from(m), f64::from(4 * pp)].map(|m| peak_moments(schedule, pp, m));
                sorted
                    .iter_mut()
                    .flatten()
                    .for_each(|moments| moments.sort_by(|a, b| a.partial_cmp(b).expect("finite")));
                assert_eq!(sorted[0], sorted[1], "{schedule:?} {pp} {m}");
            }
        }
    }
}
