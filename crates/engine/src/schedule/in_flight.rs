//! Micro-batches in flight by chunk, at the moments of peak memory.

use super::PipelineShape;
use super::closed::in_flight;
use super::slot::{Pass, Slot};

/// Micro-batches of each chunk in flight on each rank, between their forward and backward, at the moments of largest
/// counts.
///
/// For each rank, one list per such moment with a count for each of its v chunks (two under `DualPipe`, whose ranks have
/// two stages). A moment that another exceeds in every chunk is left out, and so is the middle one of three in a row whose
/// counts change by the same steps: no weights make its sum exceed both others'. With activations `A` of the chunks, the
/// peak memory is the largest `Σ count·A`. If the micro-batches are not whole, or the schedule does not run, there is one
/// moment: [`in_flight`] of every chunk.
pub fn peak_moments(pipeline: PipelineShape, micro_batches: f64) -> Vec<Vec<Vec<f64>>> {
    (0..pipeline.pp).map(|rank| peak_moments_of(pipeline, micro_batches, rank)).collect()
}

/// Moments of largest counts on one rank: [`peak_moments`].
pub(crate) fn peak_moments_of(pipeline: PipelineShape, micro_batches: f64, rank: u32) -> Vec<Vec<f64>> {
    let distinct = pipeline.distinct_ranks();
    let chunks = (pipeline.chunks() / distinct) as usize;
    if let Some(whole) = pipeline.runnable(micro_batches) {
        return moments(&pipeline.ops_of(rank, whole), distinct, chunks);
    }
    let share = f64::from(pipeline.schedule.virtual_stages()) / chunks as f64;
    vec![vec![in_flight(pipeline, rank, micro_batches) * share; chunks]]
}

/// Moments of largest counts in a rank's list of operations, which visits chunks of `distinct` ranks; a count for each
/// of its `chunks`.
fn moments(list: &[Slot], distinct: u32, chunks: usize) -> Vec<Vec<f64>> {
    let mut now = vec![0.0_f64; chunks];
    let (mut most, mut latest) = (Vec::new(), LatestTwo::default());
    let mut grew = false;
    for op in list.iter().flat_map(|slot| slot.ops()) {
        let chunk = (op.stage / distinct) as usize;
        match op.pass {
            Pass::Forward => {
                now[chunk] += 1.0;
                grew = true;
            }
            Pass::Backward | Pass::Input => {
                if grew {
                    latest.advance(&now, &mut most);
                    grew = false;
                }
                now[chunk] -= 1.0;
            }
            Pass::Wgrad => {}
        }
    }
    keep(&mut most, &latest.last);
    most
}

/// The two latest moments of a list; the last one is not kept yet.
#[derive(Default)]
struct LatestTwo {
    before: Vec<f64>,
    last: Vec<f64>,
}

impl LatestTwo {
    /// Takes the next moment, and keeps the last one in `most` unless it is half-way between the one before and the next.
    fn advance(&mut self, next: &[f64], most: &mut Vec<Vec<f64>>) {
        let Self { before, last } = self;
        let is_half_way = |before: f64, last: f64, next: f64| (last - before).to_bits() == (next - last).to_bits();
        let is_between = before.len() == next.len()
            && before.iter().zip(&*last).zip(next).all(|((before, last), next)| is_half_way(*before, *last, *next));
        if !is_between && !last.is_empty() {
            keep(most, last);
        }
        std::mem::swap(before, last);
        last.clear();
        last.extend_from_slice(next);
    }
}

/// Adds a moment unless another one dominates it; removes those that it dominates.
fn keep(most: &mut Vec<Vec<f64>>, now: &[f64]) {
    let covers = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a >= b);
    if most.iter().any(|known| covers(known, now)) {
        return;
    }
    most.retain(|known| !covers(now, known));
    most.push(now.to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::every_for_tests;

    /// The moments agree with the closed form for identical chunks.
    #[test]
    fn moments_agree_with_the_closed_form() {
        for schedule in every_for_tests() {
            for (pp, m) in [(2, 4), (4, 8), (4, 16), (8, 32)] {
                let (pipeline, v) = (schedule.on(pp), f64::from(schedule.virtual_stages()));
                for (rank, moments) in peak_moments(pipeline, f64::from(m)).iter().enumerate() {
                    let most = moments.iter().map(|now| now.iter().sum::<f64>() / v).fold(0.0, f64::max);
                    let closed = in_flight(pipeline, rank as u32, f64::from(m));
                    assert!((most - closed).abs() < 1e-9, "{schedule:?} {pp} {m} {rank}: {most} {closed}");
                }
            }
        }
    }

    /// No weights of the chunks make another moment of the list exceed those that are kept.
    #[test]
    fn the_kept_moments_have_the_largest_sum_of_all() {
        let mut next = crate::schedule::random(3, 0.0);
        for schedule in every_for_tests() {
            for (pp, m) in [(2, 4), (4, 12), (6, 12), (8, 32)] {
                let (pipeline, distinct) = (schedule.on(pp), schedule.on(pp).distinct_ranks());
                for (rank, kept) in (0..).zip(peak_moments(pipeline, f64::from(m))) {
                    let weights: Vec<f64> = kept[0].iter().map(|_| next()).collect();
                    let (mut now, mut most) = (0.0, 0.0_f64);
                    for op in pipeline.ops_of(rank, m).iter().flat_map(|slot| slot.ops()) {
                        let weight = weights[(op.stage / distinct) as usize];
                        match op.pass {
                            Pass::Forward => now += weight,
                            Pass::Backward | Pass::Input => now -= weight,
                            Pass::Wgrad => {}
                        }
                        most = most.max(now);
                    }
                    let sum = |moment: &Vec<f64>| moment.iter().zip(&weights).map(|(n, weight)| n * weight).sum();
                    let largest = kept.iter().map(sum).fold(0.0, f64::max);
                    assert!((largest - most).abs() < 1e-9 * most, "{schedule:?} {pp} {m} {rank}: {largest} {most}");
                }
            }
        }
    }
}
