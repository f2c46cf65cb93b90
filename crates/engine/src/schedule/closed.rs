//! Closed forms of a schedule: bubble, exposed sends, and activations in flight (specification §4).

use super::{PipelineShape, Schedule};
use crate::units::Seconds;

/// Work of one pipeline rank on one micro-batch, over all its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTime {
    /// Time of forward.
    pub forward: Seconds,
    /// Time of backward: input and weight gradients, and recomputation.
    pub backward: Seconds,
    /// Time of the weight gradients, a part of backward.
    pub wgrad: Seconds,
}

impl RankTime {
    /// Time of forward and backward together.
    pub fn both(&self) -> Seconds {
        self.forward + self.backward
    }
}

/// Rank with the longest forward and backward.
pub fn busiest(ranks: &[RankTime]) -> RankTime {
    ranks.iter().copied().fold(RankTime::default(), |a, b| if b.both() > a.both() { b } else { a })
}

/// Time of the step in which the busiest rank waits.
///
/// ```text
/// M = max_i(F_i + B_i)     Σ = Σ_i(F_i + B_i)     F, B, W = largest of any rank
///
/// naive         m·(Σ − M)
/// GPipe         m·(M_F + M_B − M) + (Σ − M)
/// 1F1B          Σ − M
/// interleaved   (Σ − M)/v                                  looped BFS: the same
/// ZB-H1         (p−1)·max(F, B − W, F + B − 2W)
/// ZB-H2         (p−1)·max(F, B − W − F, F + B − 3W)
/// ZB-V          (p−1)·max(F, B − W)/2
/// ```
///
/// Exact for uniform stages of naive, `GPipe`, 1F1B, interleaved and ZB-H1, and of ZB-H2 from 2p − 1 micro-batches on;
/// an upper bound for unequal ones (§4.2). The zero-bubble forms are those of their lists in one step: the last rank
/// begins p − 1 forwards late. What the paper calls zero counts each rank from its own begin. ZB-V's is exact for
/// uniform stages where F = B−W = W, and no more than the list takes where they differ. The two bidirectional pipelines
/// have their own form, `dual_pipe`.
///
/// Source: specification §4, after [gpipe], [narayanan21] §2.2 and [zero-bubble].
pub fn bubble(schedule: Schedule, ranks: &[RankTime], micro_batches: f64) -> Seconds {
    RankSummary::of(ranks.iter().map(|rank| (*rank, 1.0))).bubble(schedule, micro_batches)
}

/// Summary of the ranks that the closed forms need.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankSummary {
    /// Number of ranks.
    count: f64,
    /// Sum over all ranks of forward and backward.
    sum: Seconds,
    /// Longest forward and backward of one rank.
    most: Seconds,
    /// Largest forward, backward and weight-gradient time of any rank.
    longest: RankTime,
}

impl RankSummary {
    /// Summary of ranks, each with its multiplicity.
    pub fn of(ranks: impl Iterator<Item = (RankTime, f64)>) -> Self {
        ranks.fold(Self::default(), |all, (rank, times)| Self {
            count: all.count + times,
            sum: all.sum + rank.both() * times,
            most: all.most.max(rank.both()),
            longest: RankTime {
                forward: all.longest.forward.max(rank.forward),
                backward: all.longest.backward.max(rank.backward),
                wgrad: all.longest.wgrad.max(rank.wgrad),
            },
        })
    }

    /// Idle time of the busiest rank: [`bubble`] of these ranks.
    pub fn bubble(&self, schedule: Schedule, micro_batches: f64) -> Seconds {
        let Self { count: p, sum, most, longest } = *self;
        let others = sum - most;
        let RankTime { forward: f, backward: b, wgrad: w } = longest;
        match schedule {
            Schedule::Naive => others * micro_batches,
            Schedule::GPipe => (f + b - most) * micro_batches + others,
            Schedule::OneFOneB => others,
            Schedule::Interleaved { virtual_stages } | Schedule::LoopedBfs { virtual_stages } => {
                others / f64::from(virtual_stages)
            }
            Schedule::ZbH1 => f.max(b - w).max(f + b - w * 2.0) * (p - 1.0),
            Schedule::ZbH2 => f.max(b - w - f).max(f + b - w * 3.0) * (p - 1.0),
            Schedule::ZbV => f.max(b - w) * ((p - 1.0) / 2.0),
            Schedule::DualPipe | Schedule::DualPipeV => others / 2.0,
        }
    }
}

/// Part of a bidirectional pipeline's time that pairs do not account for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bidirectional {
    /// Micro-batches that find no partner (n).
    pub unpaired: f64,
    /// Idle time of a rank.
    pub bubble: Seconds,
}

/// Pipeline time of the bidirectional schedules: pairs of one forward and one backward hide each other's expert and stage
/// traffic.
///
/// ```text
/// T = (m − n)·FB + n·(F + B) + (S/2 − 1)·(FB + B − 3W)/v          n = (S + 1)/v,  S = v·p stages
/// ```
///
/// `FB` = an overlapped pair; `F`, `B`, `W` = un-overlapped forward, backward and weight-gradient part, all of a whole rank;
/// m counts the micro-batches of both directions; v = 1 for `DualPipe`, 2 for `DualPipeV`. On a rank at
/// the turn n micro-batches find no partner, on other ranks more. T is the replay's time for uniform stages with
/// F = B−W = W, and within some per cent of it where they differ.
///
/// Source: [dualpipe] README, table of bubbles; the pairs counted in its list.
pub(crate) fn dual_pipe(pipeline: PipelineShape, micro_batches: f64, pair: Seconds, alone: RankTime) -> Bidirectional {
    let chunks = f64::from(pipeline.schedule.virtual_stages());
    let stages = f64::from(pipeline.pp) * chunks;
    let unpaired = ((stages + 1.0) / chunks).min(micro_batches);
    let bubble = (pair + alone.backward - alone.wgrad * 3.0).or_zero() * ((stages / 2.0 - 1.0).max(0.0) / chunks);
    Bidirectional { unpaired, bubble }
}

/// How a rank sends to the next stage and receives from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Beside compute.
    Asynchronous,
    /// Between passes: the rank waits.
    Blocking,
}

/// Stage-to-stage sends that no compute hides; `send` = one way.
///
/// ```text
/// naive         2q·(p − 1)·m
/// GPipe         async  2q·(p − 1)                     blocking  q·(2m + 2(p−1))
/// 1F1B          async  q·(2(p−1)·m/p + 2(p−2))        blocking  q·(2m + 2(p−1))
/// interleaved   async  2q·(v·p − 1)                   blocking  2q·(v·p − 1) + 2·m·v·q
/// looped BFS    async  2q·(p − 1), of m ≤ p 2q·(v·p − 1)          blocking  the same + 2·m·v·q
/// ZB-H1         async  4q·(p − 1)                     blocking  q·(2m + 2(p−1))
/// ZB-H2         async  q·(p − 1)                      the same
/// ZB-V          async  q·(5p − 7)                     blocking  q·(5p − 7) + 2·m·v·q
/// DualPipe      async  q·(3/2·p − 3)                  blocking  q·(3/2·p − 3) + 2·m·q
/// DualPipeV     async  q·(2p − 4)                     blocking  q·(2p − 4) + 2·m·v·q
/// ```
///
/// Weight gradients fill what a zero-bubble schedule would wait for a send, but for those of its first and last micro-batches. A
/// pair of a bidirectional one hides its sends ([deepseek-v3] §3.2.1); those that find no partner do not.
///
/// Source: specification §4.5, exact for p | m by the replay; for the last five with F = B−W = W.
pub fn exposed_sends(pipeline: PipelineShape, micro_batches: f64, send: Seconds, mode: SendMode) -> Seconds {
    let PipelineShape { schedule, pp } = pipeline;
    if pp == 1 {
        return Seconds::ZERO;
    }
    let (p, m, v) = (f64::from(pp), micro_batches, f64::from(schedule.virtual_stages()));
    let overlapped = mode == SendMode::Asynchronous;
    let blocked = if overlapped { 0.0 } else { 2.0 * m * v };
    let sends = match schedule {
        Schedule::Naive => 2.0 * (p - 1.0) * m,
        Schedule::GPipe if overlapped => 2.0 * (p - 1.0),
        Schedule::OneFOneB if overlapped => 2.0 * (p - 1.0) * m / p + 2.0 * (p - 2.0),
        Schedule::ZbH1 if overlapped => 4.0 * (p - 1.0),
        Schedule::ZbH2 if overlapped => p - 1.0,
        Schedule::GPipe | Schedule::OneFOneB | Schedule::ZbH1 | Schedule::ZbH2 => 2.0 * m + 2.0 * (p - 1.0),
        // A chunk's first micro-batch comes back while the rank still works on the last of the chunk before.
        Schedule::LoopedBfs { .. } if m > p => 2.0 * (p - 1.0) + blocked,
        Schedule::Interleaved { .. } | Schedule::LoopedBfs { .. } => 2.0 * (v * p - 1.0) + blocked,
        Schedule::ZbV => 5.0 * p - 7.0 + blocked,
        Schedule::DualPipe => 1.5 * p - 3.0 + blocked,
        Schedule::DualPipeV => 2.0 * p - 4.0 + blocked,
    };
    send * sends
}

/// Micro-batches whose activations a rank holds at its peak, in units of all its chunks together.
///
/// ```text
/// naive 1   GPipe m   1F1B, ZB-H1 min(m, p−i)   ZB-H2 min(m, 2(p−i)−1)   ZB-V min(m, p)
/// interleaved  min(m, (2(p−i−1) + 1 + (v−1)·p)/v)     DualPipe min(m, p+1)     DualPipeV min(m, p+½)     looped BFS m
/// ```
///
/// Source: specification §4; the interleaved form is [korthikanti22] §4.2.3, the half of `DualPipeV` its list's: 2p+1 chunks.
pub fn in_flight(pipeline: PipelineShape, rank: u32, micro_batches: f64) -> f64 {
    let PipelineShape { schedule, pp } = pipeline;
    let (p, i, v) = (f64::from(pp), f64::from(rank), f64::from(schedule.virtual_stages()));
    if pp == 1 {
        return 1.0;
    }
    let most = match schedule {
        Schedule::Naive => 1.0,
        Schedule::GPipe | Schedule::LoopedBfs { .. } => micro_batches,
        Schedule::OneFOneB | Schedule::ZbH1 => p - i,
        Schedule::ZbH2 => 2.0 * (p - i) - 1.0,
        Schedule::ZbV => p,
        Schedule::Interleaved { .. } => (2.0 * (p - i - 1.0) + 1.0 + (v - 1.0) * p) / v,
        Schedule::DualPipe => p + 1.0,
        Schedule::DualPipeV => p + 0.5,
    };
    most.min(micro_batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(p: usize, forward: f64, backward: f64, wgrad: f64) -> Vec<RankTime> {
        let s = Seconds::new;
        vec![RankTime { forward: s(forward), backward: s(backward), wgrad: s(wgrad) }; p]
    }

    /// Specification §4: p = 4, m = 8, F = 1, B = 2.
    #[test]
    fn four_stages_eight_micro_batches() {
        let ranks = uniform(4, 1.0, 2.0, 1.0);
        let total = |schedule| (busiest(&ranks).both() * 8.0 + bubble(schedule, &ranks, 8.0)).get();
        assert!((total(Schedule::OneFOneB) - 33.0).abs() < 1e-12);
        assert!((total(Schedule::ZbH1) - 27.0).abs() < 1e-12);
        assert!((total(Schedule::Interleaved { virtual_stages: 2 }) - 28.5).abs() < 1e-12);
        assert!((total(Schedule::ZbV) - 25.5).abs() < 1e-12);
    }

    /// Specification §4.5: p = 8, m = 64, q = 0.1 is 12.4.
    #[test]
    fn asynchronous_sends_of_1f1b_are_not_free() {
        let exposed = exposed_sends(Schedule::OneFOneB.on(8), 64.0, Seconds::new(0.1), SendMode::Asynchronous);
        assert!((exposed.get() - 12.4).abs() < 1e-9, "{exposed:?}");
    }

    /// [korthikanti22] §4.2.3: stage 0 of an interleaved pipeline holds p·(1 + (p−1)/(p·v)) micro-batches.
    #[test]
    fn interleaving_holds_more_activations() {
        let held = in_flight(Schedule::Interleaved { virtual_stages: 3 }.on(8), 0, 64.0);
        assert!((held - 8.0 * (1.0 + 7.0 / 24.0)).abs() < 1e-12);
    }
}
