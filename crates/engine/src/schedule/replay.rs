//! Simulation of the operations of heterogeneous stages: the oracle of the closed forms.

use super::Schedule;
use super::ops::ops;
use super::slot::{Op, Pass, Slot};
use crate::units::Seconds;

/// Times of one chunk of the model for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Time of forward.
    pub forward: Seconds,
    /// Time of backward, with weight gradients.
    pub backward: Seconds,
    /// Time of the weight gradients, a part of backward.
    pub wgrad: Seconds,
    /// Time of its forward paired with the backward of its rank's other chunk, for bidirectional schedules.
    pub paired: Seconds,
}

/// Link between two neighbouring chunks of a heterogeneous pipeline: time of a send beyond what is counted elsewhere.
/// Chunks of the same two ranks share it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wire {
    /// Additional latency of a send.
    pub late: Seconds,
    /// Time that a send occupies the link before the next in its direction.
    pub held: Seconds,
}

/// Simulated slot of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Number of the rank.
    pub rank: u32,
    /// Operation, or pair of operations.
    pub slot: Slot,
    /// Start time of the slot.
    pub start: Seconds,
    /// End time of the slot.
    pub end: Seconds,
}

/// Simulated step with all its slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Time from the first forward to the last gradient.
    pub makespan: Seconds,
    /// Simulated slots of all ranks, in the order in which they were scheduled.
    pub events: Vec<Event>,
}

/// Simulates one step of `micro_batches` through `stages` (one per chunk, in model order) on `pp` ranks; `send` = latency
/// between neighbouring chunks on different ranks, asynchronous.
///
/// `None` if the schedule does not run ([`super::ops::runs`]).
pub fn replay(schedule: Schedule, pp: u32, micro_batches: u32, stages: &[StageTime], send: Seconds) -> Option<Trace> {
    let mut events = Vec::new();
    let makespan = play(schedule, pp, micro_batches, stages, (send, &[]), |event| events.push(event))?;
    Some(Trace { makespan, events })
}

/// Simulated step time, without the trace.
pub fn makespan(
    schedule: Schedule,
    pp: u32,
    micro_batches: u32,
    stages: &[StageTime],
    send: Seconds,
) -> Option<Seconds> {
    play(schedule, pp, micro_batches, stages, (send, &[]), |_| ())
}

/// Simulated step time if `wires[i]` joins chunks i and i + 1; other sends take no time.
pub fn makespan_over(
    schedule: Schedule,
    pp: u32,
    micro_batches: u32,
    stages: &[StageTime],
    wires: &[Wire],
) -> Option<Seconds> {
    play(schedule, pp, micro_batches, stages, (Seconds::ZERO, wires), |_| ())
}

/// Busy time of each rank in a step, over all its operations.
///
/// `None` if the schedule does not run.
pub fn busy(schedule: Schedule, pp: u32, micro_batches: u32, stages: &[StageTime]) -> Option<Vec<Seconds>> {
    let of_rank = |list: &Vec<Slot>| list.iter().map(|slot| length(*slot, stages)).sum();
    Some(ops(schedule, pp, micro_batches)?.iter().map(of_rank).collect())
}

/// Duration of a slot.
fn length(slot: Slot, stages: &[StageTime]) -> Seconds {
    let time = stages[slot.op.stage as usize];
    if slot.beside.is_some() {
        return time.paired;
    }
    match slot.op.pass {
        Pass::Forward => time.forward,
        Pass::Backward => time.backward,
        Pass::Input => time.backward - time.wgrad,
        Pass::Wgrad => time.wgrad,
    }
}

fn play(
    schedule: Schedule,
    pp: u32,
    micro_batches: u32,
    stages: &[StageTime],
    (send, wires): (Seconds, &[Wire]),
    mut played: impl FnMut(Event),
) -> Option<Seconds> {
    let lists = ops(schedule, pp, micro_batches)?;
    let chunks = stages.len();
    let index = |op: Op| op.index(micro_batches, chunks);
    let mut done: Vec<Option<Seconds>> = vec![None; 3 * micro_batches as usize * chunks];
    let mut posts = Posts::new(wires, done.len(), pp as usize);
    let mut clock = vec![Seconds::ZERO; pp as usize];
    let mut next = vec![0; pp as usize];
    let last = chunks as u32 - 1;
    let hop = |a: u32, b: u32| if schedule.rank_of(a, pp) == schedule.rank_of(b, pp) { Seconds::ZERO } else { send };
    // earliest start that the operation's inputs allow, or `None` while they are not available
    let ready = |op: Op, done: &[Option<Seconds>], posts: &Posts| -> Option<Seconds> {
        let of = |pass, stage| done[index(Op { pass, micro_batch: op.micro_batch, stage })];
        let from = |pass, stage| posts.arrived(done, index(Op { pass, micro_batch: op.micro_batch, stage }));
        match op.pass {
            Pass::Forward if op.stage == 0 => Some(Seconds::ZERO),
            Pass::Forward => from(Pass::Forward, op.stage - 1).map(|t| t + hop(op.stage - 1, op.stage)),
            Pass::Backward | Pass::Input if op.stage == last => of(Pass::Forward, op.stage),
            Pass::Backward | Pass::Input => {
                let gradient = from(Pass::Backward, op.stage + 1)? + hop(op.stage + 1, op.stage);
                of(Pass::Forward, op.stage).map(|own| own.max(gradient))
            }
            Pass::Wgrad => of(Pass::Backward, op.stage),
        }
    };
    loop {
        let mut progressed = false;
        for rank in 0..pp as usize {
            while let Some(&slot) = lists[rank].get(next[rank]) {
                let Some(at) = slot.ops().map(|op| ready(op, &done, &posts)).reduce(|a, b| Some(a?.max(b?))).flatten()
                else {
                    break;
                };
                let start = clock[rank].max(at);
                let end = start + length(slot, stages);
                clock[rank] = end;
                for op in slot.ops() {
                    done[index(op)] = Some(end);
                    posts.post(op, index(op), end, |chunk| schedule.rank_of(chunk, pp) as usize);
                }
                played(Event { rank: rank as u32, slot, start, end });
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

/// Sends over individual links: arrival times, and the time when each link is free.
struct Posts<'w> {
    wires: &'w [Wire],
    arrived: Vec<Option<Seconds>>,
    ranks: usize,
    /// Time when the link from each rank to each rank is free.
    free: Vec<Seconds>,
}

impl<'w> Posts<'w> {
    fn new(wires: &'w [Wire], operations: usize, ranks: usize) -> Self {
        let arrived = if wires.is_empty() { Vec::new() } else { vec![None; operations] };
        let free = if wires.is_empty() { Vec::new() } else { vec![Seconds::ZERO; ranks * ranks] };
        Self { wires, arrived, ranks, free }
    }

    /// Arrival time of an operation's result at the neighbour.
    fn arrived(&self, done: &[Option<Seconds>], operation: usize) -> Option<Seconds> {
        if self.wires.is_empty() { done[operation] } else { self.arrived[operation] }
    }

    /// Sends the result of a finished operation to the neighbour, forward up and gradients down, one after another.
    fn post(&mut self, op: Op, operation: usize, end: Seconds, rank_of: impl Fn(u32) -> usize) {
        if self.wires.is_empty() {
            return;
        }
        // the link, and the stage at its other end
        let way = match op.pass {
            Pass::Forward => Some((op.stage as usize, op.stage + 1)),
            Pass::Backward | Pass::Input => op.stage.checked_sub(1).map(|below| (below as usize, below)),
            Pass::Wgrad => None,
        };
        self.arrived[operation] = Some(match way.and_then(|(at, to)| Some((self.wires.get(at)?, to))) {
            Some((wire, to)) => {
                let free = &mut self.free[rank_of(op.stage) * self.ranks + rank_of(to)];
                let start = end.max(*free);
                *free = start + wire.held;
                start + wire.late
            }
            None => end,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::closed::{RankTime, bubble, busiest};

    const SCHEDULES: [Schedule; 7] = [
        Schedule::Naive,
        Schedule::GPipe,
        Schedule::OneFOneB,
        Schedule::Interleaved { virtual_stages: 2 },
        Schedule::Interleaved { virtual_stages: 3 },
        Schedule::ZbH1,
        Schedule::ZbV,
    ];

    fn stage(forward: f64, backward: f64, wgrad: f64) -> StageTime {
        let s = Seconds::new;
        StageTime { forward: s(forward), backward: s(backward), wgrad: s(wgrad), paired: s(forward + backward) }
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

    /// Sends between two ranks share one link for all their chunks: here 2·8 forwards occupy it, and as many gradients.
    #[test]
    fn chunks_of_the_same_ranks_share_a_wire() {
        let stages = vec![stage(1e-3, 2e-3, 1e-3); 4];
        let slow = Wire { late: Seconds::ZERO, held: Seconds::new(1.0) };
        let wires = [slow, Wire::default(), slow];
        let step = makespan_over(Schedule::LoopedBfs { virtual_stages: 2 }, 2, 8, &stages, &wires).unwrap().get();
        assert!((30.0..31.0).contains(&step), "{step}");
    }

    /// A slow wire in the middle: late sends lengthen the fill and the drain, a wire that is held longer than a stage works
    /// sets the pace.
    #[test]
    fn wires_are_late_and_one_at_a_time() {
        let stages = vec![stage(1.0, 2.0, 1.0); 4];
        let wire = |late: f64, held: f64| Wire { late: Seconds::new(late), held: Seconds::new(held) };
        let of = |wire: Wire| {
            let wires = [Wire::default(), wire, Wire::default()];
            makespan_over(Schedule::GPipe, 4, 8, &stages, &wires).unwrap().get()
        };
        let free = makespan(Schedule::GPipe, 4, 8, &stages, Seconds::ZERO).unwrap().get();
        assert!((of(wire(0.0, 0.0)) - free).abs() < 1e-12);
        assert!((of(wire(0.5, 0.0)) - free - 1.0).abs() < 1e-12, "once up and once down");
        // Eight sends, 5 s apart, each way; the backwards of the stages behind take 2 s of each interval.
        assert!((of(wire(0.0, 5.0)) - (free + 7.0 * 4.0 + 7.0 * 3.0)).abs() < 1e-12, "{}", of(wire(0.0, 5.0)));
    }

    #[test]
    fn closed_forms_agree_with_the_replay_of_uniform_stages() {
        for schedule in SCHEDULES {
            for pp in 2..=6 {
                for micro_batches in [pp, 2 * pp, 3 * pp] {
                    if schedule == Schedule::ZbV && micro_batches < 2 * pp - 1 {
                        continue; // not filled
                    }
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

    /// §4.5: the exposed asynchronous sends, exact for p | m; of the bidirectional pipelines beside those that pairs hide, one a
    /// micro-batch and stage of each direction but the first.
    #[test]
    fn exposed_sends_agree_with_the_replay() {
        use crate::schedule::closed::exposed_sends;
        let send = Seconds::new(0.01);
        let schedules = [
            (Schedule::OneFOneB, 0.0),
            (Schedule::Interleaved { virtual_stages: 2 }, 0.0),
            (Schedule::ZbH1, 0.0),
            (Schedule::ZbH2, 0.0),
            (Schedule::ZbV, 0.0),
            (Schedule::DualPipe, 1.0),
            (Schedule::DualPipeV, 2.0),
        ];
        for (schedule, hidden) in schedules {
            for (pp, m) in [(4, 8), (4, 32), (8, 64), (16, 32)] {
                let time = StageTime { paired: Seconds::new(3.0), ..stage(1.0, 2.0, 1.0) };
                let stages = vec![time; (pp * schedule.virtual_stages()) as usize];
                let makespan = |send| replay(schedule, pp, m, &stages, send).expect("has a list").makespan;
                let extra = makespan(send) - makespan(Seconds::ZERO);
                let in_pairs = send * (hidden * f64::from(m) * f64::from(pp - 1) / f64::from(pp));
                let closed = exposed_sends(schedule, pp, f64::from(m), send, true) + in_pairs;
                assert!((extra.get() - closed.get()).abs() < 1e-9, "{schedule:?} {pp} {m}: {extra:?} {closed:?}");
            }
        }
    }

    /// The other zero-bubble forms: exact whatever their passes, ZB-H2's once it has the micro-batches it holds.
    #[test]
    fn zero_bubble_forms_are_what_their_lists_take() {
        for (forward, input, wgrad) in [
            (1.0, 1.0, 1.0),
            (1.0, 1.4, 0.6),
            (1.0, 0.7, 1.2),
            (1.3, 1.0, 1.0),
            (0.3, 1.0, 1.0),
            (0.1, 1.0, 0.2),
            (0.2, 1.0, 0.5),
            (0.2, 1.0, 3.0),
        ] {
            for (schedule, least) in [(Schedule::ZbH1, 1), (Schedule::ZbH2, 2)] {
                for (pp, m) in [(2, 4), (3, 5), (4, 4), (4, 7), (8, 15), (8, 64)] {
                    let stages = vec![stage(forward, input + wgrad, wgrad); pp as usize];
                    let played = replay(schedule, pp, m, &stages, Seconds::ZERO).expect("it runs").makespan;
                    let ranks = by_rank(schedule, pp, &stages);
                    let closed = busiest(&ranks).both() * f64::from(m) + bubble(schedule, &ranks, f64::from(m));
                    let beyond = (played - closed).get();
                    let told = format!("{schedule:?} {pp} {m} {forward} {input} {wgrad}: {played:?} {closed:?}");
                    assert!(if m > least * (pp - 1) { beyond.abs() < 1e-9 } else { beyond > -1e-9 }, "{told}");
                }
            }
        }
    }

    /// Bidirectional pipelines with uniform passes: the closed form is the replay's time, whatever a pair takes.
    #[test]
    fn bidirectional_pipelines_agree_with_their_closed_form() {
        use crate::schedule::closed::dual_pipe;
        for schedule in [Schedule::DualPipe, Schedule::DualPipeV] {
            let v = f64::from(schedule.virtual_stages());
            for (pp, m) in [(2, 4), (2, 10), (4, 8), (4, 32), (8, 16), (8, 20), (16, 64)] {
                for pair in [2.2, 3.0, 3.4] {
                    let s = |time: f64| Seconds::new(time / v);
                    let time = StageTime { forward: s(1.0), backward: s(2.0), wgrad: s(1.0), paired: s(pair) };
                    let stages = vec![time; (pp * schedule.virtual_stages()) as usize];
                    let played = replay(schedule, pp, m, &stages, Seconds::ZERO).expect("it runs").makespan;
                    let alone = by_rank(schedule, pp, &stages)[0];
                    let (m, pair) = (f64::from(m), Seconds::new(pair));
                    let (unpaired, waiting) = dual_pipe(schedule, pp, m, pair, alone);
                    let busy = pair * (m - unpaired) + alone.both() * unpaired;
                    assert!(
                        (played - busy - waiting).get().abs() < 1e-9,
                        "{schedule:?} {pp} {m} {pair:?}: {played:?} {busy:?} {waiting:?}"
                    );
                }
            }
        }
    }

    /// ZB-V's closed form is no more than its list takes, whatever its passes and however few micro-batches.
    #[test]
    fn zero_bubble_v_takes_no_less_than_its_closed_form() {
        let schedule = Schedule::ZbV;
        for (forward, input, wgrad) in
            [(1.0, 1.0, 1.0), (1.0, 1.4, 0.6), (1.0, 0.7, 1.2), (1.0, 2.0, 0.0), (0.3, 1.0, 1.0)]
        {
            for (pp, m) in [(2, 1), (3, 5), (4, 4), (4, 7), (8, 15), (8, 64)] {
                let stages = vec![stage(forward, input + wgrad, wgrad); 2 * pp as usize];
                let played = replay(schedule, pp, m, &stages, Seconds::ZERO).expect("it runs").makespan;
                let ranks = by_rank(schedule, pp, &stages);
                let closed = busiest(&ranks).both() * f64::from(m) + bubble(schedule, &ranks, f64::from(m));
                assert!(
                    played.get() >= closed.get() - 1e-9,
                    "{pp} {m} {forward} {input} {wgrad}: {played:?} {closed:?}"
                );
            }
        }
    }

    /// Every schedule runs to its end on any stages, and no rank runs two slots at once.
    #[test]
    fn every_schedule_plays_unequal_stages() {
        let mut random = crate::schedule::random(3, 0.1);
        let more = [Schedule::ZbH2, Schedule::DualPipe, Schedule::DualPipeV, Schedule::LoopedBfs { virtual_stages: 2 }];
        for schedule in SCHEDULES.into_iter().chain(more) {
            for (pp, m) in [(2, 4), (3, 6), (3, 9), (4, 8), (5, 11), (6, 12), (8, 24)] {
                let stages: Vec<StageTime> = (0..pp * schedule.virtual_stages())
                    .map(|_| {
                        let (f, b, w) = (random(), random(), random());
                        StageTime { paired: Seconds::new(0.8 * (f + b + w)), ..stage(f, b + w, w) }
                    })
                    .collect();
                let Some(trace) = replay(schedule, pp, m, &stages, Seconds::new(0.05)) else {
                    assert!(!crate::schedule::ops::runs(schedule, pp, m), "{schedule:?} {pp} {m} stands still");
                    continue;
                };
                let busy = busy(schedule, pp, m, &stages).expect("it runs");
                for rank in 0..pp {
                    let own: Vec<&Event> = trace.events.iter().filter(|event| event.rank == rank).collect();
                    assert!(own.windows(2).all(|two| two[0].end <= two[1].start), "{schedule:?} {pp} {m}");
                    let worked: Seconds = own.iter().map(|event| event.end - event.start).sum();
                    assert!((worked - busy[rank as usize]).get().abs() < 1e-9 && worked <= trace.makespan);
                }
            }
        }
    }
}
