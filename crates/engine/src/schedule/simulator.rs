//! Schedule simulator that is prepared once and run with many stage times.

use std::cell::RefCell;

use super::Schedule;
use super::ops::ops;
use super::paths::{Pairing, Path};
use super::replay::StageTime;
use super::slot::{Op, Pass, Slot};
use crate::units::Seconds;
use smallvec::SmallVec;

/// Duration of an operation, as the kind of its stage's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Forward,
    Backward,
    Input,
    Wgrad,
    Pair,
}

/// Kinds of durations of a stage, in the order of their declaration.
const TAKES: [Takes; 5] = [Takes::Forward, Takes::Backward, Takes::Input, Takes::Wgrad, Takes::Pair];

/// Number of kinds of durations of a stage.
const KINDS: usize = TAKES.len();

/// Place of an operation that has none yet.
const OPEN: u32 = u32::MAX;

/// Longest chain of dependent operations of one step, as counts of durations. Its length on any other stage times is a lower
/// bound of the step time there, for dependencies do not depend on stage times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// Stage × [`KINDS`] + kind of duration, with the number of such operations.
    visits: Box<[(u32, u32)]>,
}

impl CriticalPath {
    /// Length of the path on these stages, without sends.
    pub fn length(&self, stages: &[StageTime]) -> Seconds {
        let one = |&(place, times): &(u32, u32)| {
            let StageTime { forward, backward, wgrad, paired } = stages[place as usize / KINDS];
            let time = [forward, backward, backward - wgrad, wgrad, paired][place as usize % KINDS];
            time * f64::from(times)
        };
        self.visits.iter().map(one).sum()
    }
}

/// Operation, or pair of operations, with its dependencies.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Stage × [`KINDS`] + kind of duration.
    place: u32,
    rank: u32,
    /// Start of its dependencies in the common list.
    from: u32,
}

/// Operations of one step in topological order. The dependencies do not depend on stage times, so the step time is the
/// longest path. Sends take no time.
#[derive(Clone, Debug)]
pub struct Simulator {
    placed: Vec<Placed>,
    waits: Vec<u32>,
    chunks: usize,
}

impl Simulator {
    /// Orders the operations of a schedule. `None` if it does not run ([`super::ops::runs`]).
    pub fn new(schedule: Schedule, pp: u32, micro_batches: u32) -> Option<Self> {
        let lists = ops(schedule, pp, micro_batches)?;
        let chunks = (pp * schedule.virtual_stages()) as usize;
        let index = |op: Op| op.index(micro_batches, chunks);
        let mut done = vec![OPEN; 3 * micro_batches as usize * chunks];
        let mut next = vec![0; lists.len()];
        let mut before: Vec<Option<u32>> = vec![None; lists.len()];
        let all = lists.iter().map(Vec::len).sum();
        let mut simulator = Self { placed: Vec::with_capacity(all), waits: Vec::with_capacity(3 * all), chunks };
        let mut inputs: SmallVec<[u32; 5]> = SmallVec::new();
        loop {
            let mut progressed = false;
            for (rank, list) in lists.iter().enumerate() {
                while let Some(&slot) = list.get(next[rank]) {
                    inputs.clear();
                    inputs.extend(before[rank]);
                    for op in slot.ops() {
                        let (first, second) = needs(op, chunks as u32);
                        inputs.extend(first.map(|op| done[index(op)]));
                        inputs.extend(second.map(|op| done[index(op)]));
                    }
                    if inputs.contains(&OPEN) {
                        break;
                    }
                    let at = simulator.placed.len() as u32;
                    simulator.placed.push(Placed {
                        place: slot.op.stage * KINDS as u32 + takes(slot) as u32,
                        rank: rank as u32,
                        from: simulator.waits.len() as u32,
                    });
                    simulator.waits.extend_from_slice(&inputs);
                    for op in slot.ops() {
                        done[index(op)] = at;
                    }
                    before[rank] = Some(at);
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

    /// Number of operations in a step.
    pub fn operations(&self) -> usize {
        self.placed.len()
    }

    /// Step time from the first forward to the last gradient.
    pub fn makespan(&self, stages: &[StageTime]) -> Seconds {
        self.simulated(stages, |_, makespan| Seconds::new(makespan))
    }

    /// Step time and the critical path of a step.
    pub fn play(&self, stages: &[StageTime]) -> (Seconds, CriticalPath) {
        self.simulated(stages, |ends, makespan| {
            let last = ends.iter().rposition(|end| *end >= makespan).unwrap_or_default();
            let mut counts = vec![0; self.chunks * KINDS];
            self.walk_back(ends, last, |placed| counts[placed.place as usize] += 1);
            let visits = (0..).zip(counts).filter(|(_, times)| *times > 0).collect();
            (Seconds::new(makespan), CriticalPath { visits })
        })
    }

    /// Calls `visit` with each operation of the longest path to the operation `last`, from the last.
    fn walk_back(&self, ends: &[f64], last: usize, mut visit: impl FnMut(&Placed)) {
        let later = |&a: &usize, &b: &usize| ends[a].total_cmp(&ends[b]);
        let mut next = Some(last);
        while let Some(at) = next {
            visit(&self.placed[at]);
            next = self.waits_of(at).iter().map(|&before| before as usize).max_by(later);
        }
    }

    fn waits_of(&self, at: usize) -> &[u32] {
        let to = self.placed.get(at + 1).map_or(self.waits.len(), |next| next.from as usize);
        &self.waits[self.placed[at].from as usize..to]
    }

    /// Reads the end time of each operation, and the last of them. The times of long schedules are many pages, which each thread
    /// asks for once.
    fn simulated<T>(&self, stages: &[StageTime], read: impl FnOnce(&[f64], f64) -> T) -> T {
        thread_local!(static ENDS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) });
        let mut ends = ENDS.take();
        if ends.len() < self.placed.len() {
            ends.resize(self.placed.len(), 0.0);
        }
        let makespan = self.end(stages, &mut ends[..self.placed.len()]);
        let read = read(&ends[..self.placed.len()], makespan);
        ENDS.set(ends);
        read
    }

    /// Writes the end time of each operation, and returns the last of them.
    fn end(&self, stages: &[StageTime], ends: &mut [f64]) -> f64 {
        let of_stage = |time: &StageTime| {
            let StageTime { forward, backward, wgrad, paired } = *time;
            [forward, backward, backward - wgrad, wgrad, paired].map(Seconds::get)
        };
        let times: Vec<f64> = stages.iter().flat_map(of_stage).collect();
        let (mut from, mut last) = (0, 0.0);
        for (at, placed) in self.placed.iter().enumerate() {
            let to = self.placed.get(at + 1).map_or(self.waits.len(), |next| next.from as usize);
            let mut start = 0.0_f64;
            for &before in &self.waits[from..to] {
                start = greater(start, ends[before as usize]);
            }
            let end = start + times[placed.place as usize];
            ends[at] = end;
            last = greater(last, end);
            from = to;
        }
        last
    }

    /// Critical path of a step: a lower bound of the step time for any other stage times. A pair consists of a stage and
    /// its mirror image, and counts with its lower bound.
    pub fn critical_path(&self, stages: &[StageTime], pairing: Pairing) -> Option<Path> {
        self.simulated(stages, |ends, _| {
            let last = (0..ends.len()).max_by(|&a, &b| ends[a].total_cmp(&ends[b]))?;
            let mut path = Path::empty(self.placed[last].rank, self.chunks);
            self.walk_back(ends, last, |placed| {
                let stage = placed.place as usize / KINDS;
                match TAKES[placed.place as usize % KINDS] {
                    Takes::Forward => path.visit(Pass::Forward, stage),
                    Takes::Backward => path.visit(Pass::Backward, stage),
                    Takes::Input => path.visit(Pass::Input, stage),
                    Takes::Wgrad => path.visit(Pass::Wgrad, stage),
                    Takes::Pair => path.visit_pair(stage, self.chunks - 1 - stage, pairing),
                }
            });
            Some(path)
        })
    }
}

/// Dependencies of an operation, in a model of `chunks` chunks, besides the order on its rank.
fn needs(op: Op, chunks: u32) -> (Option<Op>, Option<Op>) {
    let Op { pass, micro_batch, stage } = op;
    let at = |pass, stage| Op { pass, micro_batch, stage };
    match pass {
        Pass::Forward => (stage.checked_sub(1).map(|below| at(Pass::Forward, below)), None),
        Pass::Backward | Pass::Input => {
            (Some(at(Pass::Forward, stage)), (stage + 1 < chunks).then(|| at(pass, stage + 1)))
        }
        Pass::Wgrad => (Some(at(Pass::Input, stage)), None),
    }
}

/// The greater of two times, neither of which is NaN: one instruction, where `f64::max` takes several.
const fn greater(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

fn takes(slot: Slot) -> Takes {
    match (slot.beside, slot.op.pass) {
        (Some(_), _) => Takes::Pair,
        (None, Pass::Forward) => Takes::Forward,
        (None, Pass::Backward) => Takes::Backward,
        (None, Pass::Input) => Takes::Input,
        (None, Pass::Wgrad) => Takes::Wgrad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::EVERY;
    use crate::schedule::replay::makespan;

    /// The simulator agrees with the oracle, and its critical path is as long as the step.
    #[test]
    fn it_takes_as_long_as_the_replay() {
        let mut random = crate::schedule::random(11, 0.2);
        let mut played = 0;
        for schedule in EVERY {
            for (pp, m) in [(2, 4), (2, 8), (4, 8), (4, 12), (6, 24)] {
                let Some(simulator) = Simulator::new(schedule, pp, m) else { continue };
                let chunks = pp * schedule.virtual_stages();
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
                let step = makespan(schedule, pp, m, &stages, Seconds::ZERO).expect("it runs");
                assert_eq!(simulator.makespan(&stages), step, "{schedule:?} {pp} {m}");
                let (same, critical) = simulator.play(&stages);
                assert_eq!(same, step);
                assert!((critical.length(&stages) - step).get().abs() < 1e-9, "{schedule:?} {pp} {m}");
                let other: Vec<StageTime> =
                    stages.iter().map(|stage| StageTime { forward: stage.forward * random(), ..*stage }).collect();
                assert!(critical.length(&other).get() <= simulator.makespan(&other).get() * (1.0 + 1e-12));
                let alone = Pairing { slower: 1.0, traffic: 0.0 };
                let length = simulator.critical_path(&stages, alone).expect("it runs").length(&stages);
                assert!((length - step).get().abs() < 1e-9, "{schedule:?} {pp} {m}: {length} of {step}");
                played += 1;
            }
        }
        assert!(played > 40, "{played}");
    }
}
