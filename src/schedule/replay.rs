//! Plays the operations of unequal stages: the oracle of the closed forms.

use std::collections::BTreeMap;

use super::Schedule;
use super::ops::{Op, Pass, ops};
use super::paths::Path;
use crate::units::Seconds;

/// Work of one chunk of the model on one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Forward.
    pub forward: Seconds,
    /// Backward, with weight gradients.
    pub backward: Seconds,
    /// The weight-gradient part of it.
    pub wgrad: Seconds,
}

/// One operation as it was played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// The rank.
    pub rank: u32,
    /// The operation.
    pub op: Op,
    /// When it began.
    pub start: Seconds,
    /// When it ended.
    pub end: Seconds,
}

/// A played step.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// From the first forward to the last gradient.
    pub makespan: Seconds,
    /// Every operation, in the order it was placed.
    pub events: Vec<Event>,
}

/// Plays one step of `micro_batches` through `stages` (one per chunk, in model order) on `pp` ranks; `send` = one way
/// between neighbouring chunks on different ranks, asynchronous.
///
/// `None` for a schedule without a fixed list of operations.
pub fn replay(schedule: Schedule, pp: u32, micro_batches: u32, stages: &[StageTime], send: Seconds) -> Option<Trace> {
    let mut events = Vec::new();
    let makespan = play(schedule, pp, micro_batches, stages, send, |event| events.push(event))?;
    Some(Trace { makespan, events })
}

/// Only how long that takes.
pub fn makespan(
    schedule: Schedule,
    pp: u32,
    micro_batches: u32,
    stages: &[StageTime],
    send: Seconds,
) -> Option<Seconds> {
    play(schedule, pp, micro_batches, stages, send, |_| ())
}

/// The chain of operations that a played step waits for, without its sends: steps with other stage times are no shorter than
/// it either. `None` for a schedule without a fixed list of operations.
pub fn critical_path(schedule: Schedule, pp: u32, micro_batches: u32, stages: &[StageTime]) -> Option<Path> {
    let events = replay(schedule, pp, micro_batches, stages, Seconds::ZERO)?.events;
    let mut at = (0..events.len()).max_by(|&a, &b| events[a].end.get().total_cmp(&events[b].end.get()))?;
    let none = vec![0.0; stages.len()];
    let rank = events[at].rank;
    let mut path = Path {
        rank,
        forward: none.clone(),
        backward: none.clone(),
        wgrad: none,
        separate: schedule.splits_backward(),
        sends: 0.0,
    };
    // What ended when another began, before it on its rank or as its input, is what it waited for.
    let mut ending: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        ending.entry(event.end.get().to_bits()).or_default().push(index);
    }
    loop {
        let Event { rank, op, start, end: _ } = events[at];
        let visits = match op.pass {
            Pass::Forward => &mut path.forward,
            Pass::Backward => &mut path.backward,
            Pass::Wgrad => &mut path.wgrad,
        };
        visits[op.stage as usize] += 1.0;
        if start <= Seconds::ZERO {
            return Some(path);
        }
        let feeds = |before: &&usize| {
            let Event { rank: other, op: input, .. } = events[**before];
            let needs = input.micro_batch == op.micro_batch
                && match (op.pass, input.pass) {
                    (Pass::Forward, Pass::Forward) => input.stage + 1 == op.stage,
                    (Pass::Backward, Pass::Backward) => input.stage == op.stage + 1,
                    (Pass::Backward, Pass::Forward) | (Pass::Wgrad, Pass::Backward) => input.stage == op.stage,
                    _ => false,
                };
            **before < at && (other == rank || needs)
        };
        at = *ending.get(&start.get().to_bits())?.iter().find(feeds)?;
    }
}

fn play(
    schedule: Schedule,
    pp: u32,
    micro_batches: u32,
    stages: &[StageTime],
    send: Seconds,
    mut played: impl FnMut(Event),
) -> Option<Seconds> {
    let lists = ops(schedule, pp, micro_batches)?;
    let chunks = stages.len();
    let split = schedule.splits_backward();
    let index = |op: Op| {
        let pass = match op.pass {
            Pass::Forward => 0,
            Pass::Backward => 1,
            Pass::Wgrad => 2,
        };
        (pass * micro_batches as usize + op.micro_batch as usize) * chunks + op.stage as usize
    };
    let mut done: Vec<Option<Seconds>> = vec![None; 3 * micro_batches as usize * chunks];
    let mut clock = vec![Seconds::ZERO; pp as usize];
    let mut next = vec![0; pp as usize];
    let last = chunks as u32 - 1;
    // The earliest start that the operation's inputs allow, or `None` while they are not there.
    let ready = |op: Op, done: &[Option<Seconds>]| -> Option<Seconds> {
        let of = |pass, stage| done[index(Op { pass, micro_batch: op.micro_batch, stage })];
        match op.pass {
            Pass::Forward if op.stage == 0 => Some(Seconds::ZERO),
            Pass::Forward => of(Pass::Forward, op.stage - 1).map(|t| t + send),
            Pass::Backward if op.stage == last => of(Pass::Forward, op.stage),
            Pass::Backward => {
                let gradient = of(Pass::Backward, op.stage + 1)? + send;
                of(Pass::Forward, op.stage).map(|own| own.max(gradient))
            }
            Pass::Wgrad => of(Pass::Backward, op.stage),
        }
    };
    loop {
        let mut progressed = false;
        for rank in 0..pp as usize {
            while let Some(&op) = lists[rank].get(next[rank]) {
                let Some(at) = ready(op, &done) else { break };
                let time = stages[op.stage as usize];
                let length = match op.pass {
                    Pass::Forward => time.forward,
                    Pass::Backward if split => time.backward - time.wgrad,
                    Pass::Backward => time.backward,
                    Pass::Wgrad => time.wgrad,
                };
                let start = clock[rank].max(at);
                let end = start + length;
                clock[rank] = end;
                done[index(op)] = Some(end);
                played(Event { rank: rank as u32, op, start, end });
                next[rank] += 1;
                progressed = true;
            }
        }
        if !progressed {
            break;
        }
    }
    let complete = (0..pp as usize).all(|rank| next[rank] == lists[rank].len());
    complete.then(|| clock.into_iter().fold(Seconds::ZERO, Seconds::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::closed::{RankTime, bubble, busiest};

    const SCHEDULES: [Schedule; 6] = [
        Schedule::Naive,
        Schedule::GPipe,
        Schedule::OneFOneB,
        Schedule::Interleaved { virtual_stages: 2 },
        Schedule::Interleaved { virtual_stages: 3 },
        Schedule::ZbH1,
    ];

    fn stage(forward: f64, backward: f64, wgrad: f64) -> StageTime {
        StageTime { forward: Seconds::new(forward), backward: Seconds::new(backward), wgrad: Seconds::new(wgrad) }
    }

    fn by_rank(schedule: Schedule, pp: u32, stages: &[StageTime]) -> Vec<RankTime> {
        let mut ranks = vec![RankTime::default(); pp as usize];
        for (s, time) in stages.iter().enumerate() {
            let rank = &mut ranks[schedule.rank_of(s as u32, pp) as usize];
            rank.forward += time.forward;
            rank.backward += time.backward;
            rank.wgrad += time.wgrad;
        }
        ranks
    }

    #[test]
    fn closed_forms_agree_with_the_replay_of_uniform_stages() {
        for schedule in SCHEDULES {
            for pp in 2..=6 {
                for micro_batches in [pp, 2 * pp, 3 * pp] {
                    let stages = vec![stage(1.0, 2.0, 1.0); (pp * schedule.virtual_stages()) as usize];
                    let trace = replay(schedule, pp, micro_batches, &stages, Seconds::ZERO).expect("has a list");
                    let ranks = by_rank(schedule, pp, &stages);
                    let m = f64::from(micro_batches);
                    let closed = busiest(&ranks).both() * m + bubble(schedule, &ranks, m);
                    assert!(
                        (trace.makespan.get() - closed.get()).abs() < 1e-9,
                        "{schedule:?} p={pp} m={micro_batches}: {:?} {closed:?}",
                        trace.makespan
                    );
                }
            }
        }
    }

    /// §4.2: exact too where the last stage is heavier, as with a loss head.
    #[test]
    fn a_heavier_last_stage_is_exact() {
        for schedule in [Schedule::OneFOneB, Schedule::Interleaved { virtual_stages: 2 }] {
            for pp in [4, 8] {
                let chunks = (pp * schedule.virtual_stages()) as usize;
                let mut stages = vec![stage(1.0, 2.0, 1.0); chunks];
                stages[chunks - 1] = stage(1.4, 2.8, 1.4);
                let m = 4 * pp;
                let trace = replay(schedule, pp, m, &stages, Seconds::ZERO).expect("has a list");
                let ranks = by_rank(schedule, pp, &stages);
                let closed = busiest(&ranks).both() * f64::from(m) + bubble(schedule, &ranks, f64::from(m));
                assert!((trace.makespan.get() - closed.get()).abs() < 1e-9, "{schedule:?} {pp}");
            }
        }
    }

    /// §4.5: the exposed sends of asynchronous 1F1B and interleaving, exact for p | m.
    #[test]
    fn exposed_sends_agree_with_the_replay() {
        use crate::schedule::closed::exposed_sends;
        let send = Seconds::new(0.1);
        for schedule in [Schedule::OneFOneB, Schedule::Interleaved { virtual_stages: 2 }] {
            let (pp, m) = (8, 64);
            let stages = vec![stage(1.0, 2.0, 1.0); (pp * schedule.virtual_stages()) as usize];
            let makespan = |send| replay(schedule, pp, m, &stages, send).expect("has a list").makespan;
            let extra = makespan(send) - makespan(Seconds::ZERO);
            let closed = exposed_sends(schedule, pp, f64::from(m), send, true);
            assert!((extra.get() - closed.get()).abs() < 1e-9, "{schedule:?}: {extra:?} {closed:?}");
        }
    }
}
