//! Schedule simulator that is prepared once and run with many stage times.

use std::cell::RefCell;

use super::PipelineShape;
use super::paths::{Pairing, Path};
use super::replay::StageTime;
use super::slot::{Op, Pass, Slot};
use crate::units::Seconds;

/// Kind of the duration of an operation: which time of its stage it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DurationKind {
    Forward,
    Backward,
    Input,
    Wgrad,
    Pair,
}

/// Kinds of durations of a stage, in the order of their declaration.
const DURATION_KINDS: [DurationKind; 5] =
    [DurationKind::Forward, DurationKind::Backward, DurationKind::Input, DurationKind::Wgrad, DurationKind::Pair];

/// Number of kinds of durations of a stage.
const KINDS: usize = DURATION_KINDS.len();

/// Number of an operation that has none yet.
const OPEN: u32 = u32::MAX;
/// Number of the start of the step, before the first operation.
const START: u32 = 0;

/// Longest path of dependent operations of one step, as counts of durations. Its length on any other stage times is a lower
/// bound of the step time there, for dependencies do not depend on stage times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// Stage × [`KINDS`] + kind of duration, with the number of such operations.
    visits: Box<[(u32, u32)]>,
}

impl CriticalPath {
    /// Length of the path on these stages, without sends.
    pub fn length(&self, stages: &[StageTime]) -> Seconds {
        let time_of = |&(place, times): &(u32, u32)| {
            let StageTime { forward, backward, wgrad, paired } = stages[place as usize / KINDS];
            let time = [forward, backward, backward - wgrad, wgrad, paired][place as usize % KINDS];
            time * f64::from(times)
        };
        self.visits.iter().map(time_of).sum()
    }
}

/// Operation, or pair of operations, with its dependencies.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Stage × [`KINDS`] + kind of duration.
    place: u32,
    rank: u32,
    /// Numbers of the operations that it waits for: the one before it on its rank, which no earlier one there outlasts, and at most
    /// two on other ranks; [`START`] where there are fewer.
    waits: [u32; 3],
}

/// Operations of one step in topological order, numbered from 1. The dependencies do not depend on stage times, so the step time is
/// the longest path. Sends take no time.
#[derive(Clone, Debug)]
pub struct Simulator {
    placed: Vec<Placed>,
    chunks: usize,
}

impl Simulator {
    /// Orders the operations of a pipeline. `None` if it does not run ([`PipelineShape::runs`]).
    pub fn new(pipeline: PipelineShape, micro_batches: u32) -> Option<Self> {
        let lists = pipeline.ops(micro_batches)?;
        let chunks = pipeline.chunks() as usize;
        let index = |op: Op| op.index(micro_batches, chunks);
        let mut done = vec![OPEN; 3 * micro_batches as usize * chunks];
        let mut next = vec![0; lists.len()];
        let mut before = vec![START; lists.len()];
        let all = lists.iter().map(Vec::len).sum();
        let mut simulator = Self { placed: Vec::with_capacity(all), chunks };
        loop {
            let mut progressed = false;
            for (rank, list) in lists.iter().enumerate() {
                while let Some(&slot) = list.get(next[rank]) {
                    let waits = simulator.waits(rank as u32, before[rank], slot, |op| done[index(op)]);
                    let Some(waits) = waits else { break };
                    let place = slot.op.stage * KINDS as u32 + duration_kind(slot) as u32;
                    simulator.placed.push(Placed { place, rank: rank as u32, waits });
                    let number = simulator.placed.len() as u32;
                    for op in slot.ops() {
                        done[index(op)] = number;
                    }
                    before[rank] = number;
                    next[rank] += 1;
                    progressed = true;
                }
            }
            if !progressed {
                break;
            }
        }
        (simulator.placed.len() == all).then_some(simulator)
    }

    /// Numbers that a slot of a rank waits for: `before` on the rank, and of those that it needs what runs on other
    /// ranks; none if one of these is open.
    fn waits(&self, rank: u32, before: u32, slot: Slot, number: impl Fn(Op) -> u32) -> Option<[u32; 3]> {
        let (mut waits, mut known) = ([before, START, START], 1);
        for op in slot.ops() {
            for needed in needs(op, self.chunks as u32).into_iter().flatten() {
                let number = number(needed);
                if number == OPEN {
                    return None;
                }
                if self.placed[number as usize - 1].rank != rank {
                    waits[known] = number;
                    known += 1;
                }
            }
        }
        Some(waits)
    }

    /// Number of operations in a step.
    pub fn operations(&self) -> usize {
        self.placed.len()
    }

    /// Step time from the first forward to the last gradient.
    pub fn makespan(&self, stages: &[StageTime]) -> Seconds {
        self.simulated(stages, |_, makespan| Seconds::new(makespan))
    }

    /// Step time and the critical path of a step.
    pub fn makespan_and_path(&self, stages: &[StageTime]) -> (Seconds, CriticalPath) {
        self.simulated(stages, |ends, makespan| {
            let last = ends.iter().rposition(|end| *end >= makespan).unwrap_or_default();
            let mut counts = vec![0; self.chunks * KINDS];
            self.walk_back(ends, last as u32, |placed| counts[placed.place as usize] += 1);
            let visits = (0..).zip(counts).filter(|(_, times)| *times > 0).collect();
            (Seconds::new(makespan), CriticalPath { visits })
        })
    }

    /// Calls `visit` with each operation of the longest path to the one of number `last`, from that.
    fn walk_back(&self, ends: &[f64], last: u32, mut visit: impl FnMut(&Placed)) {
        let later = |&a: &u32, &b: &u32| ends[a as usize].total_cmp(&ends[b as usize]);
        let mut next = Some(last).filter(|last| *last != START);
        while let Some(number) = next {
            let placed = &self.placed[number as usize - 1];
            visit(placed);
            next = placed.waits.into_iter().filter(|before| *before != START).max_by(later);
        }
    }

    /// Reads the end time of each operation by number, and the last of them. The times of long schedules are many pages, which each
    /// thread asks for once.
    fn simulated<T>(&self, stages: &[StageTime], read: impl FnOnce(&[f64], f64) -> T) -> T {
        thread_local!(static ENDS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) });
        let (mut ends, numbers) = (ENDS.take(), self.placed.len() + 1);
        if ends.len() < numbers {
            ends.resize(numbers, 0.0);
        }
        let makespan = self.end(stages, &mut ends[..numbers]);
        let read = read(&ends[..numbers], makespan);
        ENDS.set(ends);
        read
    }

    /// Writes the end time of each operation by number, and returns the last of them.
    fn end(&self, stages: &[StageTime], ends: &mut [f64]) -> f64 {
        let of_stage = |time: &StageTime| {
            let StageTime { forward, backward, wgrad, paired } = *time;
            [forward, backward, backward - wgrad, wgrad, paired].map(Seconds::get)
        };
        let times: Vec<f64> = stages.iter().flat_map(of_stage).collect();
        let mut last = 0.0;
        ends[START as usize] = 0.0;
        for (at, &Placed { place, waits: [before, first, second], .. }) in self.placed.iter().enumerate() {
            let others = greater(ends[first as usize], ends[second as usize]);
            let end = greater(ends[before as usize], others) + times[place as usize];
            ends[at + 1] = end;
            last = greater(last, end);
        }
        last
    }

    /// Critical path of a step: a lower bound of the step time for any other stage times. A pair consists of a stage and
    /// its mirror image, and counts with its lower bound.
    pub fn critical_path(&self, stages: &[StageTime], pairing: Pairing) -> Option<Path> {
        self.simulated(stages, |ends, _| {
            let last = (1..ends.len()).max_by(|&a, &b| ends[a].total_cmp(&ends[b]))?;
            let mut path = Path::empty(self.placed[last - 1].rank, self.chunks);
            self.walk_back(ends, last as u32, |placed| {
                let stage = placed.place as usize / KINDS;
                match DURATION_KINDS[placed.place as usize % KINDS] {
                    DurationKind::Forward => path.visit(Pass::Forward, stage),
                    DurationKind::Backward => path.visit(Pass::Backward, stage),
                    DurationKind::Input => path.visit(Pass::Input, stage),
                    DurationKind::Wgrad => path.visit(Pass::Wgrad, stage),
                    DurationKind::Pair => path.visit_pair(stage, self.chunks - 1 - stage, pairing),
                }
            });
            Some(path)
        })
    }
}

/// Dependencies of an operation, in a model of `chunks` chunks, besides the order on its rank.
fn needs(op: Op, chunks: u32) -> [Option<Op>; 2] {
    let Op { pass, micro_batch, stage } = op;
    let op_at = |pass, stage| Op { pass, micro_batch, stage };
    match pass {
        Pass::Forward => [stage.checked_sub(1).map(|below| op_at(Pass::Forward, below)), None],
        Pass::Backward | Pass::Input => {
            [Some(op_at(Pass::Forward, stage)), (stage + 1 < chunks).then(|| op_at(pass, stage + 1))]
        }
        Pass::Wgrad => [Some(op_at(Pass::Input, stage)), None],
    }
}

/// The greater of two times, neither of which is NaN: one instruction, where `f64::max` takes several.
const fn greater(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// Kind of the duration of a slot.
fn duration_kind(slot: Slot) -> DurationKind {
    match (slot.beside, slot.op.pass) {
        (Some(_), _) => DurationKind::Pair,
        (None, Pass::Forward) => DurationKind::Forward,
        (None, Pass::Backward) => DurationKind::Backward,
        (None, Pass::Input) => DurationKind::Input,
        (None, Pass::Wgrad) => DurationKind::Wgrad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::every_for_tests;
    use crate::schedule::replay::makespan;

    /// The simulator agrees with the oracle, and its critical path is as long as the step.
    #[test]
    fn it_takes_as_long_as_the_replay() {
        let mut random = crate::schedule::random(11, 0.2);
        let mut simulated = 0;
        for schedule in every_for_tests() {
            for (pp, m) in [(2, 4), (2, 8), (4, 8), (4, 12), (6, 24)] {
                let Some(simulator) = Simulator::new(schedule.on(pp), m) else { continue };
                let chunks = schedule.on(pp).chunks();
                let mut time = || Seconds::new(random());
                let alone: Vec<StageTime> = (0..chunks)
                    .map(|_| {
                        let (forward, input, wgrad) = (time(), time(), time());
                        StageTime { forward, backward: input + wgrad, wgrad, paired: Seconds::ZERO }
                    })
                    .collect();
                let stages: Vec<StageTime> = alone
                    .iter()
                    .zip(alone.iter().rev())
                    .map(|(own, other)| StageTime { paired: own.forward + other.backward, ..*own })
                    .collect();
                let step = makespan(schedule.on(pp), m, &stages, Seconds::ZERO).expect("it runs");
                assert_eq!(simulator.makespan(&stages), step, "{schedule:?} {pp} {m}");
                let (same, critical) = simulator.makespan_and_path(&stages);
                assert_eq!(same, step);
                assert!((critical.length(&stages) - step).get().abs() < 1e-9, "{schedule:?} {pp} {m}");
                let other: Vec<StageTime> =
                    stages.iter().map(|stage| StageTime { forward: stage.forward * random(), ..*stage }).collect();
                assert!(critical.length(&other).get() <= simulator.makespan(&other).get() * (1.0 + 1e-12));
                let alone = Pairing { slower: 1.0, traffic: 0.0 };
                let length = simulator.critical_path(&stages, alone).expect("it runs").length(&stages);
                assert!((length - step).get().abs() < 1e-9, "{schedule:?} {pp} {m}: {length} of {step}");
                simulated += 1;
            }
        }
        assert!(simulated > 40, "{simulated}");
    }
}
