//! Moments at which ranks have the most micro-batches in flight, computed once for all plans of one schedule.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock, RwLock};

use smallvec::SmallVec;

use super::closed::in_flight;
use super::in_flight::peak_moments_of;
use super::{PipelineShape, RankBytes, Schedule};
use crate::units::Bytes;

/// Peak of one rank: micro-batches in flight of each of its virtual stages.
#[derive(Debug)]
pub(crate) struct Peak {
    pipeline: PipelineShape,
    rank: u32,
    micro_batches: f64,
    /// The most micro-batches of all virtual stages together.
    pub most: f64,
    moments: OnceLock<Moments>,
}

/// Moments of one rank that no other dominates, listed on first use: only ranks whose virtual stages differ ask for them.
#[derive(Debug)]
struct Moments {
    /// Micro-batches of each virtual stage.
    each: Vec<Vec<f64>>,
    /// Micro-batches of all virtual stages at each moment.
    totals: Vec<f64>,
    /// Whether `totals` has the same value at every moment.
    are_level: bool,
    /// Fewest and most of each virtual stage.
    of_chunks: Vec<OfChunk>,
}

/// Micro-batches of one virtual stage at each moment, the fewest and the most.
#[derive(Debug)]
struct OfChunk {
    by_moment: Vec<f64>,
    fewest: f64,
    most: f64,
}

impl Moments {
    fn new(each: Vec<Vec<f64>>) -> Self {
        let of_chunk = |chunk: usize| {
            let by_moment: Vec<f64> = each.iter().map(|moment| moment[chunk]).collect();
            let fewest = by_moment.iter().copied().fold(f64::INFINITY, f64::min);
            OfChunk { fewest, most: by_moment.iter().copied().fold(0.0, f64::max), by_moment }
        };
        let totals: Vec<f64> = each.iter().map(|moment| moment.iter().sum()).collect();
        Self {
            are_level: totals.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()),
            totals,
            of_chunks: (0..each.first().map_or(0, Vec::len)).map(of_chunk).collect(),
            each,
        }
    }
}

impl Peak {
    /// Peak of a rank. Under interleaving the closed form gives the most of all virtual stages together: a whole number but for its
    /// rounding.
    fn new(pipeline: PipelineShape, rank: u32, micro_batches: f64) -> Self {
        let schedule = pipeline.schedule;
        let chunks = in_flight(pipeline, rank, micro_batches) * f64::from(schedule.virtual_stages());
        let mut peak = Self { pipeline, rank, micro_batches, most: chunks.round(), moments: OnceLock::new() };
        let is_listed = pipeline.runnable(micro_batches).is_some();
        if !(is_listed && matches!(schedule, Schedule::Interleaved { .. })) {
            peak.most = peak.known().totals.iter().copied().fold(0.0, f64::max);
        }
        peak
    }

    fn known(&self) -> &Moments {
        let Self { pipeline, rank, micro_batches, .. } = *self;
        self.moments.get_or_init(|| Moments::new(peak_moments_of(pipeline, micro_batches, rank)))
    }

    /// Moments that no other dominates, as micro-batches of each virtual stage.
    pub fn moments(&self) -> &[Vec<f64>] {
        &self.known().each
    }

    /// Bytes of the rank at its fullest moment; `runs` as for [`Self::bytes`].
    fn rank_bytes(&self, runs: &[(Range<u32>, Bytes)]) -> RankBytes {
        RankBytes { rank: self.rank, bytes: self.bytes(runs) }
    }

    /// Largest number of bytes over all moments. `runs` = ranges of virtual stages with the same bytes for a micro-batch.
    ///
    /// Most stages have the same bytes; what the others have more or less is added to that. A moment at which each of the
    /// others is at its extreme has the most bytes.
    pub fn bytes(&self, runs: &[(Range<u32>, Bytes)]) -> Bytes {
        let Self { pipeline, rank, .. } = *self;
        let (middle, held_before) = (pipeline.middle_held(rank), pipeline.held_before(rank));
        let usual = runs.iter().find(|(chunks, _)| middle < chunks.end).map_or(Bytes::ZERO, |(_, bytes)| *bytes);
        // Places of the rank's own virtual stages with other bytes.
        let mut others: SmallVec<[(Range<u32>, Bytes); 4]> = SmallVec::new();
        for (chunks, bytes) in runs.iter().filter(|(_, bytes)| *bytes != usual) {
            let places = held_before(chunks.start)..held_before(chunks.end);
            if !places.is_empty() {
                others.push((places, *bytes - usual));
            }
        }
        if others.is_empty() {
            return usual * self.most;
        }
        let Moments { totals, are_level, of_chunks, .. } = self.known();
        let sum = |total: f64, micro_batches: &dyn Fn(Bytes, &OfChunk) -> f64| {
            let chunks = |places: &Range<u32>| of_chunks[places.start as usize..places.end as usize].iter();
            let each = others.iter().flat_map(|(places, bytes)| chunks(places).map(|chunk| (*bytes, chunk)));
            each.fold(usual * total, |sum, (bytes, chunk)| sum + bytes * micro_batches(bytes, chunk))
        };
        let bound = sum(self.most, &|bytes, chunk| if bytes > Bytes::ZERO { chunk.most } else { chunk.fewest });
        let is_one = others.len() == 1 && others[0].0.len() == 1;
        if *are_level && is_one {
            return bound; // where that one stage is at its extreme
        }
        let mut most = Bytes::ZERO;
        for (moment, &total) in totals.iter().enumerate() {
            most = most.max(sum(total, &|_, chunk| chunk.by_moment[moment]));
            if most >= bound {
                break;
            }
        }
        most
    }
}

/// Rank with the most bytes among neighbours, the first of several; `runs` as for [`Peak::bytes`]. The moments of a rank are not
/// visited where it would not exceed those before it with the largest stage at all its places.
pub(crate) fn fullest_of(ranks: &[Peak], runs: &[(Range<u32>, Bytes)]) -> RankBytes {
    let largest = runs.iter().fold(Bytes::ZERO, |most, (_, bytes)| most.max(*bytes));
    let (first, others) = ranks.split_first().expect("a class has a rank");
    others.iter().fold(first.rank_bytes(runs), |fullest, peak| {
        if largest * peak.most > fullest.bytes { fullest.fuller(peak.rank_bytes(runs)) } else { fullest }
    })
}

/// Peaks of every rank, by pipeline and number of micro-batches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peaks(Arc<RwLock<BTreeMap<PeaksKey, Arc<[Peak]>>>>);

/// Key of the peaks of the ranks of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PeaksKey {
    pipeline: PipelineShape,
    /// Bits of the number of micro-batches, which may be a fraction.
    micro_batch_bits: u64,
}

impl Peaks {
    /// Peaks of the ranks of a pipeline.
    pub fn of_pipeline(&self, pipeline: PipelineShape, micro_batches: f64) -> Arc<[Peak]> {
        let micro_batches = saturated(pipeline, micro_batches);
        let key = PeaksKey { pipeline, micro_batch_bits: micro_batches.to_bits() };
        if let Some(known) = self.0.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let peaks: Arc<[Peak]> = (0..pipeline.pp).map(|rank| Peak::new(pipeline, rank, micro_batches)).collect();
        Arc::clone(self.0.write().expect("no writer panics").entry(key).or_insert(peaks))
    }
}

/// Micro-batches that fill a pipeline as well as more do: its warm-up and one round behind it take no more than 3·p.
fn saturated(pipeline: PipelineShape, micro_batches: f64) -> f64 {
    if pipeline.peaks_by_chunk() && micro_batches.fract() == 0.0 {
        micro_batches.min(f64::from(3 * pipeline.pp))
    } else {
        micro_batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::every_for_tests;
    use crate::schedule::in_flight::peak_moments;

    #[test]
    fn the_closed_form_is_the_largest_total_of_all_moments() {
        let interleaved = (2..=9).map(|virtual_stages| Schedule::Interleaved { virtual_stages });
        for (schedule, pp) in itertools::iproduct!(interleaved.chain(every_for_tests()), [1, 2, 3, 4, 5, 6, 8, 12, 16])
        {
            for m in (1..=4).map(|rounds| rounds * pp).chain([1, 2, 3, 7, 2 * pp + 1]).map(f64::from) {
                for (rank, moments) in (0..).zip(peak_moments(schedule.on(pp), m)) {
                    let most = moments.iter().map(|moment| moment.iter().sum::<f64>()).fold(0.0, f64::max);
                    let peak = Peak::new(schedule.on(pp), rank, m);
                    assert_eq!(peak.most.to_bits(), most.to_bits(), "{schedule:?} {pp} {m} {rank}");
                    assert_eq!(peak.moments(), moments);
                }
            }
        }
    }

    #[test]
    fn the_fullest_rank_is_the_fullest_of_all_moments() {
        let mut next = crate::schedule::random(1, 0.5);
        let interleaved = [2, 5, 16].map(|virtual_stages| Schedule::Interleaved { virtual_stages });
        for (schedule, pp) in itertools::iproduct!(interleaved.into_iter().chain(every_for_tests()), [2, 4, 6, 8]) {
            let pipeline = schedule.on(pp);
            let peaks: Vec<Peak> = (0..pp).map(|rank| Peak::new(pipeline, rank, f64::from(4 * pp))).collect();
            let chunks = pipeline.chunks();
            for (first, last) in itertools::iproduct!([0, 1, chunks / 2], [1, 2, chunks / 4]) {
                let bytes = [0, first, first.max(chunks - last), chunks].map(|chunk| (chunk, Bytes::gib(next())));
                let runs = bytes.windows(2).map(|ends| (ends[0].0..ends[1].0, ends[0].1));
                let runs: Vec<_> = runs.filter(|(chunks, _)| !chunks.is_empty()).collect();
                let of_chunk = |chunk: u32| runs.iter().find(|(chunks, _)| chunks.contains(&chunk)).expect("a run").1;
                for peak in &peaks {
                    let held: Vec<Bytes> = pipeline.chunks_of(peak.rank).map(of_chunk).collect();
                    let sum = |moment: &Vec<f64>| moment.iter().zip(&held).map(|(times, bytes)| *bytes * *times).sum();
                    let most = peak.moments().iter().map(sum).fold(Bytes::ZERO, Bytes::max);
                    assert!((peak.bytes(&runs) / most - 1.0).abs() < 1e-12, "{schedule:?} {pp} {}", peak.rank);
                }
                for from in 0..peaks.len() {
                    let ranks = peaks[from..].iter().map(|peak| peak.rank_bytes(&runs));
                    let fullest = ranks.reduce(RankBytes::fuller);
                    assert_eq!(Some(fullest_of(&peaks[from..], &runs)), fullest, "{schedule:?} {pp} {from}");
                }
            }
        }
    }

    #[test]
    fn more_micro_batches_than_fill_a_pipeline_change_no_peak() {
        let interleaved = |virtual_stages| Schedule::Interleaved { virtual_stages };
        let schedules =
            [interleaved(2), interleaved(3), interleaved(8), Schedule::ZbV, Schedule::DualPipe, Schedule::DualPipeV];
        for (schedule, pp) in itertools::iproduct!(schedules, [2, 4, 6, 8, 16]) {
            for m in [3 * pp, 4 * pp, 5 * pp, 6 * pp, 11 * pp] {
                let mut sorted = [f64::from(m), f64::from(3 * pp)].map(|m| peak_moments(schedule.on(pp), m));
                sorted
                    .iter_mut()
                    .flatten()
                    .for_each(|moments| moments.sort_by(|a, b| a.partial_cmp(b).expect("finite")));
                assert_eq!(sorted[0], sorted[1], "{schedule:?} {pp} {m}");
            }
        }
    }
}
