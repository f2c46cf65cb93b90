//! Operations of each pipeline rank, in order.

use super::bidirectional::Rank;
use super::slot::{Pass, Slot, alone};
use super::{PipelineShape, Schedule};

/// Most passes of a step that are simulated: 200 bytes for each are 1.6 GiB.
pub const MOST_PASSES: u64 = 1 << 23;

/// Shares of a stage's forwards, or backwards, that run in a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedShares {
    /// Smallest of any stage.
    pub fewest: f64,
    /// Largest of any stage.
    pub most: f64,
}

impl PipelineShape {
    /// Whether the pipeline can run this number of micro-batches: interleaving needs whole groups of pp, the two bidirectional
    /// pipelines need at least two per rank, and `DualPipe` needs equal numbers from both ends of an even number of ranks. No
    /// schedule runs more than [`MOST_PASSES`].
    ///
    /// Source: [megatron-lm] `schedules.py`, [dualpipe].
    pub const fn runs(self, micro_batches: u32) -> bool {
        if self.passes(micro_batches) > MOST_PASSES {
            return false;
        }
        let pp = self.pp;
        let filled = micro_batches >= 2 * pp && pp > 1;
        match self.schedule {
            Schedule::Interleaved { .. } => micro_batches > 0 && micro_batches.is_multiple_of(pp),
            Schedule::DualPipe => filled && pp.is_multiple_of(2) && micro_batches.is_multiple_of(2),
            Schedule::DualPipeV => filled,
            Schedule::Naive
            | Schedule::GPipe
            | Schedule::OneFOneB
            | Schedule::ZbH1
            | Schedule::ZbH2
            | Schedule::ZbV
            | Schedule::LoopedBfs { .. } => micro_batches > 0,
        }
    }

    /// The number of micro-batches, where it is whole and the pipeline can run it on several ranks.
    pub(crate) fn runnable(self, micro_batches: f64) -> Option<u32> {
        let whole = micro_batches.fract() == 0.0 && micro_batches >= 1.0;
        (whole && self.pp > 1 && self.runs(micro_batches as u32)).then_some(micro_batches as u32)
    }

    /// Passes of a step in one direction: micro-batches through chunks.
    pub const fn passes(self, micro_batches: u32) -> u64 {
        let chunks = (self.pp as u64).saturating_mul(self.schedule.virtual_stages() as u64);
        chunks.saturating_mul(micro_batches as u64)
    }

    /// Smallest and largest share of a stage's forwards, or backwards, that run in a pair. `None` if the pipeline does not run
    /// (see [`runs`](Self::runs)), or has no pairs.
    ///
    /// ```text
    /// DualPipe  (m − 2p + 2)/m … (m − p)/m, from (m − 4)/m for p = 2          DualPipeV  (m − 2p + 1)/m … (m − p)/m
    /// ```
    pub fn paired(self, micro_batches: u32) -> Option<PairedShares> {
        let (p, m) = (f64::from(self.pp), f64::from(micro_batches));
        let alone = match self.schedule {
            Schedule::DualPipe if self.pp == 2 => 4.0,
            Schedule::DualPipe => 2.0 * p - 2.0,
            Schedule::DualPipeV => 2.0 * p - 1.0,
            Schedule::Naive
            | Schedule::GPipe
            | Schedule::OneFOneB
            | Schedule::Interleaved { .. }
            | Schedule::ZbH1
            | Schedule::ZbH2
            | Schedule::ZbV
            | Schedule::LoopedBfs { .. } => return None,
        };
        self.runs(micro_batches).then(|| PairedShares { fewest: 1.0 - alone / m, most: 1.0 - p / m })
    }

    /// Operations of each rank in order; `None` if the pipeline does not run ([`runs`](Self::runs)).
    ///
    /// Micro-batches of `DualPipe` are numbered from the front: the first half enters at stage 0's rank, the second half at the
    /// last rank, which has a copy of stage 0.
    pub fn ops(self, micro_batches: u32) -> Option<Vec<Vec<Slot>>> {
        self.runs(micro_batches).then(|| (0..self.pp).map(|rank| self.ops_of(rank, micro_batches)).collect())
    }

    /// Operations of rank `i`, of a pipeline that runs.
    pub(super) fn ops_of(self, i: u32, micro_batches: u32) -> Vec<Slot> {
        let pp = self.pp;
        match self.schedule {
            Schedule::Naive => naive(i, micro_batches),
            Schedule::GPipe => breadth_first(i, pp, 1, micro_batches),
            Schedule::OneFOneB => one_f_one_b(i, pp, micro_batches),
            Schedule::Interleaved { virtual_stages } => interleaved(i, pp, virtual_stages, micro_batches),
            Schedule::ZbH1 => zero_bubble(i, micro_batches, pp - i - 1, i),
            Schedule::ZbH2 => zero_bubble(i, micro_batches, 2 * (pp - i - 1), 2 * i),
            Schedule::ZbV => zero_bubble_v(i, pp, micro_batches),
            Schedule::DualPipe => Rank::dual_pipe(i, pp, micro_batches).list(),
            Schedule::DualPipeV => Rank::dual_pipe_v(i, pp, micro_batches).list(),
            Schedule::LoopedBfs { virtual_stages } => breadth_first(i, pp, virtual_stages, micro_batches),
        }
    }
}

fn naive(i: u32, m: u32) -> Vec<Slot> {
    (0..m).flat_map(|mb| [alone(Pass::Forward, mb, i), alone(Pass::Backward, mb, i)]).collect()
}

fn breadth_first(i: u32, p: u32, v: u32, m: u32) -> Vec<Slot> {
    let forward = (0..v).flat_map(|c| (0..m).map(move |mb| alone(Pass::Forward, mb, c * p + i)));
    let backward = (0..v).rev().flat_map(|c| (0..m).map(move |mb| alone(Pass::Backward, mb, c * p + i)));
    forward.chain(backward).collect()
}

/// 1F1B: `min(p−i−1, m)` forwards, then pairs, then the remaining backwards.
fn one_f_one_b(i: u32, p: u32, m: u32) -> Vec<Slot> {
    let warm_up = (p - i - 1).min(m);
    let (forward, backward) = (|k| alone(Pass::Forward, k, i), |k| alone(Pass::Backward, k, i));
    let mut list = Vec::with_capacity(2 * m as usize);
    list.extend((0..warm_up).map(forward));
    list.extend((0..m - warm_up).flat_map(|k| [forward(k + warm_up), backward(k)]));
    list.extend((m - warm_up..m).map(backward));
    list
}

/// Megatron's order: virtual index κ is micro-batch `(κ div pv)·p + κ mod p` through chunk `(κ mod pv) div p`.
fn interleaved(i: u32, p: u32, v: u32, m: u32) -> Vec<Slot> {
    let total = m * v;
    let warm_up = ((p - i - 1) * 2 + (v - 1) * p).min(total);
    let place = |k: u32| {
        let (group, rest) = (k / (p * v), k % (p * v));
        (group * p + rest % p, rest / p)
    };
    let forward = |k: u32| {
        let (mb, chunk) = place(k);
        alone(Pass::Forward, mb, chunk * p + i)
    };
    let backward = |k: u32| {
        let (mb, chunk) = place(k);
        alone(Pass::Backward, mb, (v - 1 - chunk) * p + i)
    };
    let mut list = Vec::with_capacity(2 * total as usize);
    list.extend((0..warm_up).map(forward));
    list.extend((0..total - warm_up).flat_map(|k| [forward(k + warm_up), backward(k)]));
    list.extend((total - warm_up..total).map(backward));
    list
}

/// 1F1B with separate weight gradients, deferred by `delay` micro-batches and run in the cool-down.
fn zero_bubble(i: u32, m: u32, warm_up: u32, delay: u32) -> Vec<Slot> {
    let warm_up = warm_up.min(m);
    let mut list = Vec::with_capacity(3 * m as usize);
    list.extend((0..warm_up).map(|k| alone(Pass::Forward, k, i)));
    let mut done = 0;
    for k in 0..m - warm_up {
        list.extend([alone(Pass::Forward, k + warm_up, i), alone(Pass::Input, k, i)]);
        if k >= delay {
            list.push(alone(Pass::Wgrad, done, i));
            done += 1;
        }
    }
    for k in m - warm_up..m {
        list.push(alone(Pass::Input, k, i));
        if done <= k {
            list.push(alone(Pass::Wgrad, done, i));
            done += 1;
        }
    }
    list.extend((done..m).map(|k| alone(Pass::Wgrad, k, i)));
    list
}

/// Zero-bubble V, with two chunks per rank, i on the way down and 2p−1−i on the way up: a warm-up of `2(p−i)−1` forwards of
/// the first, i pairs of forwards, and p−i forwards of the second each with its backward; then both chunks in turn; weight
/// gradients are deferred in the cool-down. With fewer than 2p−1 micro-batches, the phases are truncated.
///
/// Source: [zero-bubble] §6, [pytorch-zbv].
fn zero_bubble_v(i: u32, p: u32, m: u32) -> Vec<Slot> {
    let (down, up, all) = (i, 2 * p - 1 - i, m.max(2 * p - 1));
    let mut list = Vec::with_capacity(6 * all as usize);
    let (mut forwards, mut backwards) = ([0; 2], [0; 2]);
    let forward = |list: &mut Vec<Slot>, chunk: usize, done: &mut [u32; 2]| {
        list.push(alone(Pass::Forward, done[chunk], [down, up][chunk]));
        done[chunk] += 1;
    };
    let input = |list: &mut Vec<Slot>, chunk: usize, done: &mut [u32; 2]| {
        list.push(alone(Pass::Input, done[chunk], [down, up][chunk]));
        done[chunk] += 1;
    };
    let whole = |list: &mut Vec<Slot>, chunk: usize, done: &mut [u32; 2]| {
        list.push(alone(Pass::Input, done[chunk], [down, up][chunk]));
        list.push(alone(Pass::Wgrad, done[chunk], [down, up][chunk]));
        done[chunk] += 1;
    };
    for _ in 0..2 * (p - i) - 1 {
        forward(&mut list, 0, &mut forwards);
    }
    for _ in 0..i {
        forward(&mut list, 1, &mut forwards);
        forward(&mut list, 0, &mut forwards);
    }
    for _ in 0..p - i {
        forward(&mut list, 1, &mut forwards);
        whole(&mut list, 1, &mut backwards);
    }
    while forwards[1] < all {
        if forwards[0] < all {
            forward(&mut list, 0, &mut forwards);
        }
        whole(&mut list, 0, &mut backwards);
        forward(&mut list, 1, &mut forwards);
        whole(&mut list, 1, &mut backwards);
    }
    let mut late = backwards;
    for _ in 0..i {
        input(&mut list, 0, &mut backwards);
        input(&mut list, 1, &mut backwards);
    }
    for _ in 0..p - i {
        input(&mut list, 0, &mut backwards);
        list.push(alone(Pass::Wgrad, late[0], down));
        late[0] += 1;
    }
    for (chunk, stage) in [(1, up), (0, down)] {
        list.extend((late[chunk]..all).map(|k| alone(Pass::Wgrad, k, stage)));
    }
    list.retain(|slot| slot.op.micro_batch < m);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::every_for_tests;
    use std::collections::BTreeMap;

    fn cases() -> impl Iterator<Item = (PipelineShape, u32)> {
        let sizes = (2..=9).flat_map(|pp| (1..=3 * pp).chain([8 * pp]).map(move |m| (pp, m)));
        let all = sizes.flat_map(|(pp, m)| every_for_tests().map(move |schedule| (schedule.on(pp), m)));
        all.filter(|&(pipeline, m)| pipeline.runs(m))
    }

    #[test]
    fn ranks_and_chunks_agree_on_who_holds_what() {
        let pipelines = every_for_tests().flat_map(|schedule| [1, 2, 4, 6].map(|pp| schedule.on(pp)));
        for pipeline in pipelines {
            for rank in 0..pipeline.pp {
                let chunks = 0..pipeline.chunks();
                let held: Vec<u32> =
                    chunks.filter(|&chunk| pipeline.holders(chunk).any(|holder| holder == rank)).collect();
                let before = pipeline.held_before(rank);
                for chunk in 0..=pipeline.chunks() {
                    let earlier = held.iter().filter(|own| **own < chunk).count();
                    assert_eq!(before(chunk) as usize, earlier, "{pipeline:?} {rank} {chunk}");
                }
                assert!(pipeline.chunks_of(rank).eq(held), "{pipeline:?} {rank}");
            }
        }
    }

    /// Every micro-batch goes forward and backward through every chunk once, on a rank that holds it: input gradients with
    /// their weight gradients, or a whole backward.
    #[test]
    fn every_pass_once_on_the_right_rank() {
        let mut seen = 0;
        for (pipeline, m) in cases() {
            let lists = pipeline.ops(m).expect("it runs");
            assert_eq!(lists.len() as u32, pipeline.pp);
            let mut times: BTreeMap<(u32, u32), [u32; 4]> = BTreeMap::new();
            for (rank, list) in lists.iter().enumerate() {
                for op in list.iter().flat_map(|slot| slot.ops()) {
                    // Of DualPipe, the second half of the micro-batches goes the other way.
                    let own = pipeline.rank_of(op.stage);
                    let mirrored = pipeline.schedule == Schedule::DualPipe && op.micro_batch >= m / 2;
                    let expected = if mirrored { pipeline.pp - 1 - own } else { own };
                    assert_eq!(rank as u32, expected, "{pipeline:?} {m} {op:?}");
                    times.entry((op.micro_batch, op.stage)).or_default()[op.pass as usize] += 1;
                }
                for slot in list.iter().filter(|slot| slot.beside.is_some()) {
                    let other = slot.beside.expect("a pair");
                    assert_eq!((slot.op.pass, other.pass), (Pass::Forward, Pass::Backward));
                    assert_eq!(slot.op.stage + other.stage, pipeline.chunks() - 1, "{pipeline:?}");
                }
            }
            assert_eq!(times.len() as u32, m * pipeline.chunks(), "{pipeline:?} {m}");
            for (place, times) in times {
                assert!([[1, 1, 0, 0], [1, 0, 1, 1]].contains(&times), "{pipeline:?} {m} {place:?}: {times:?}");
            }
            seen += 1;
        }
        assert!(seen > 900, "{seen}");
    }

    #[test]
    fn ranks_are_those_of_the_chunks() {
        for (pipeline, _) in cases() {
            let each = (0..pipeline.chunks()).map(|chunk| pipeline.rank_of(chunk));
            assert!(pipeline.ranks().eq(each), "{pipeline:?}");
        }
    }

    #[test]
    fn shares_of_pairs_are_those_of_the_lists() {
        let cases: Vec<_> = cases().filter(|(pipeline, _)| pipeline.schedule.is_bidirectional()).collect();
        assert!(cases.len() > 50, "{}", cases.len());
        for (pipeline, m) in cases {
            let PairedShares { fewest, most } = pipeline.paired(m).expect("it runs");
            let stages = pipeline.chunks() as usize;
            for which in [0, 1] {
                let mut counts = vec![0_u32; stages];
                for slot in pipeline.ops(m).expect("it runs").iter().flatten() {
                    if let Some(beside) = slot.beside {
                        counts[[slot.op, beside][which].stage as usize] += 1;
                    }
                }
                let share = |count: Option<&u32>| f64::from(*count.expect("stages")) / f64::from(m);
                assert!((share(counts.iter().min()) - fewest).abs() < 1e-12, "{pipeline:?} {m}: {counts:?}");
                assert!((share(counts.iter().max()) - most).abs() < 1e-12, "{pipeline:?} {m}: {counts:?}");
            }
        }
    }

    #[test]
    fn a_pipeline_that_cannot_run_has_no_list() {
        for (schedule, pp, m) in [
            (Schedule::DualPipe, 4, 7),
            (Schedule::DualPipe, 4, 9),
            (Schedule::DualPipe, 3, 12),
            (Schedule::DualPipeV, 4, 7),
            (Schedule::DualPipeV, 1, 8),
            (Schedule::Interleaved { virtual_stages: 2 }, 4, 6),
            (Schedule::OneFOneB, 4, 0),
        ] {
            assert_eq!(schedule.on(pp).ops(m), None, "{schedule:?} {pp} {m}");
        }
    }
}
