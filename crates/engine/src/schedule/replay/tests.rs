//! Simulation against the closed forms of the schedules, and sends over slow links.

use super::*;
use crate::schedule::closed::{RankTime, bubble, busiest};
use crate::schedule::{Schedule, every_for_tests};

/// Whether the closed form of a schedule is exact on identical stages.
fn is_exact(schedule: Schedule) -> bool {
    use Schedule::{DualPipe, DualPipeV, LoopedBfs, ZbH2};
    !matches!(schedule, ZbH2 | DualPipe | DualPipeV | LoopedBfs { .. })
}

fn stage(forward: f64, backward: f64, wgrad: f64) -> StageTime {
    let s = Seconds::new;
    StageTime { forward: s(forward), backward: s(backward), wgrad: s(wgrad), paired: s(forward + backward) }
}

fn by_rank(pipeline: PipelineShape, stages: &[StageTime]) -> Vec<RankTime> {
    let mut ranks = vec![RankTime::default(); pipeline.pp as usize];
    for (s, time) in stages.iter().enumerate() {
        let rank = &mut ranks[pipeline.rank_of(s as u32) as usize];
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
    let slow = Wire { delay: Seconds::ZERO, occupied: Seconds::new(1.0) };
    let wires = [slow, Wire::default(), slow];
    let step = makespan_over(Schedule::LoopedBfs { virtual_stages: 2 }.on(2), 8, &stages, &wires).unwrap().get();
    assert!((30.0..31.0).contains(&step), "{step}");
}

/// A slow wire in the middle: late sends lengthen the fill and the drain, a wire that is held longer than a stage works
/// sets the pace.
#[test]
fn wires_are_late_and_one_at_a_time() {
    let stages = vec![stage(1.0, 2.0, 1.0); 4];
    let wire = |delay: f64, occupied: f64| Wire { delay: Seconds::new(delay), occupied: Seconds::new(occupied) };
    let of = |wire: Wire| {
        let wires = [Wire::default(), wire, Wire::default()];
        makespan_over(Schedule::GPipe.on(4), 8, &stages, &wires).unwrap().get()
    };
    let free = makespan(Schedule::GPipe.on(4), 8, &stages, Seconds::ZERO).unwrap().get();
    assert!((of(wire(0.0, 0.0)) - free).abs() < 1e-12);
    assert!((of(wire(0.5, 0.0)) - free - 1.0).abs() < 1e-12, "once up and once down");
    // Eight sends, 5 s apart, each way; the backwards of the stages behind take 2 s of each interval.
    assert!((of(wire(0.0, 5.0)) - (free + 7.0 * 4.0 + 7.0 * 3.0)).abs() < 1e-12, "{}", of(wire(0.0, 5.0)));
}

#[test]
fn closed_forms_agree_with_the_replay_of_uniform_stages() {
    let mut compared = 0;
    for schedule in every_for_tests().filter(|schedule| is_exact(*schedule)) {
        for pp in 2..=6 {
            for micro_batches in [pp, 2 * pp, 3 * pp] {
                if schedule == Schedule::ZbV && micro_batches < 2 * pp - 1 {
                    continue; // not filled
                }
                let stages = vec![stage(1.0, 2.0, 1.0); schedule.on(pp).chunks() as usize];
                let trace = replay(schedule.on(pp), micro_batches, &stages, Seconds::ZERO).expect("has a list");
                let ranks = by_rank(schedule.on(pp), &stages);
                let m = f64::from(micro_batches);
                let closed = busiest(&ranks).both() * m + bubble(schedule, &ranks, m);
                assert!(
                    (trace.makespan.get() - closed.get()).abs() < 1e-9,
                    "{schedule:?} p={pp} m={micro_batches}: {:?} {closed:?}",
                    trace.makespan
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 80, "{compared}");
}

/// §4.2: exact too where the last stage is heavier, as with a loss head.
#[test]
fn a_heavier_last_stage_is_exact() {
    for schedule in [Schedule::OneFOneB, Schedule::Interleaved { virtual_stages: 2 }] {
        for pp in [4, 8] {
            let chunks = schedule.on(pp).chunks() as usize;
            let mut stages = vec![stage(1.0, 2.0, 1.0); chunks];
            stages[chunks - 1] = stage(1.4, 2.8, 1.4);
            let m = 4 * pp;
            let trace = replay(schedule.on(pp), m, &stages, Seconds::ZERO).expect("has a list");
            let ranks = by_rank(schedule.on(pp), &stages);
            let closed = busiest(&ranks).both() * f64::from(m) + bubble(schedule, &ranks, f64::from(m));
            assert!((trace.makespan.get() - closed.get()).abs() < 1e-9, "{schedule:?} {pp}");
        }
    }
}

/// §4.5: the exposed asynchronous sends, exact for p | m, of schedules with separate weight gradients from m = 2p on; of the
/// bidirectional pipelines beside those that pairs hide, one a micro-batch and stage of each direction but the first.
#[test]
fn exposed_sends_agree_with_the_replay() {
    use crate::schedule::closed::{SendMode, exposed_sends};
    let send = Seconds::new(0.01);
    for schedule in every_for_tests() {
        let hidden = if schedule.is_bidirectional() { f64::from(schedule.virtual_stages()) } else { 0.0 };
        let fewest = if schedule.splits_backward() || schedule.is_bidirectional() { 2 } else { 1 };
        for (pp, m) in [(4, 4), (4, 8), (4, 32), (8, 64), (16, 32)].into_iter().filter(|(pp, m)| *m >= fewest * pp) {
            let time = StageTime { paired: Seconds::new(3.0), ..stage(1.0, 2.0, 1.0) };
            let stages = vec![time; schedule.on(pp).chunks() as usize];
            let makespan = |send| replay(schedule.on(pp), m, &stages, send).expect("has a list").makespan;
            let extra = makespan(send) - makespan(Seconds::ZERO);
            let in_pairs = send * (hidden * f64::from(m) * f64::from(pp - 1) / f64::from(pp));
            let closed = exposed_sends(schedule.on(pp), f64::from(m), send, SendMode::Asynchronous) + in_pairs;
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
                let simulated = replay(schedule.on(pp), m, &stages, Seconds::ZERO).expect("it runs").makespan;
                let ranks = by_rank(schedule.on(pp), &stages);
                let closed = busiest(&ranks).both() * f64::from(m) + bubble(schedule, &ranks, f64::from(m));
                let beyond = (simulated - closed).get();
                let case = format!("{schedule:?} {pp} {m} {forward} {input} {wgrad}: {simulated:?} {closed:?}");
                assert!(if m > least * (pp - 1) { beyond.abs() < 1e-9 } else { beyond > -1e-9 }, "{case}");
            }
        }
    }
}

/// Bidirectional pipelines with uniform passes: the closed form is the replay's time, whatever a pair takes.
#[test]
fn bidirectional_pipelines_agree_with_their_closed_form() {
    use crate::schedule::closed::{Bidirectional, dual_pipe};
    for schedule in [Schedule::DualPipe, Schedule::DualPipeV] {
        let v = f64::from(schedule.virtual_stages());
        for (pp, m) in [(2, 4), (2, 10), (4, 8), (4, 32), (8, 16), (8, 20), (16, 64)] {
            for pair in [2.2, 3.0, 3.4] {
                let s = |time: f64| Seconds::new(time / v);
                let time = StageTime { forward: s(1.0), backward: s(2.0), wgrad: s(1.0), paired: s(pair) };
                let stages = vec![time; schedule.on(pp).chunks() as usize];
                let simulated = replay(schedule.on(pp), m, &stages, Seconds::ZERO).expect("it runs").makespan;
                let alone = by_rank(schedule.on(pp), &stages)[0];
                let (m, pair) = (f64::from(m), Seconds::new(pair));
                let Bidirectional { unpaired, bubble } = dual_pipe(schedule.on(pp), m, pair, alone);
                let busy = pair * (m - unpaired) + alone.both() * unpaired;
                assert!(
                    (simulated - busy - bubble).get().abs() < 1e-9,
                    "{schedule:?} {pp} {m} {pair:?}: {simulated:?} {busy:?} {bubble:?}"
                );
            }
        }
    }
}

/// ZB-V's closed form is no more than its list takes, whatever its passes and however few micro-batches.
#[test]
fn zero_bubble_v_takes_no_less_than_its_closed_form() {
    let schedule = Schedule::ZbV;
    for (forward, input, wgrad) in [(1.0, 1.0, 1.0), (1.0, 1.4, 0.6), (1.0, 0.7, 1.2), (1.0, 2.0, 0.0), (0.3, 1.0, 1.0)]
    {
        for (pp, m) in [(2, 1), (3, 5), (4, 4), (4, 7), (8, 15), (8, 64)] {
            let stages = vec![stage(forward, input + wgrad, wgrad); 2 * pp as usize];
            let simulated = replay(schedule.on(pp), m, &stages, Seconds::ZERO).expect("it runs").makespan;
            let ranks = by_rank(schedule.on(pp), &stages);
            let closed = busiest(&ranks).both() * f64::from(m) + bubble(schedule, &ranks, f64::from(m));
            assert!(
                simulated.get() >= closed.get() - 1e-9,
                "{pp} {m} {forward} {input} {wgrad}: {simulated:?} {closed:?}"
            );
        }
    }
}

/// Every schedule runs to its end on any stages, and no rank runs two slots at once.
#[test]
fn every_schedule_runs_on_unequal_stages() {
    let mut random = crate::schedule::random(3, 0.1);
    let mut ran = 0;
    for schedule in every_for_tests() {
        for (pp, m) in [(2, 4), (3, 6), (3, 9), (4, 8), (5, 11), (6, 12), (8, 24)] {
            let stages: Vec<StageTime> = (0..schedule.on(pp).chunks())
                .map(|_| {
                    let (f, b, w) = (random(), random(), random());
                    StageTime { paired: Seconds::new(0.8 * (f + b + w)), ..stage(f, b + w, w) }
                })
                .collect();
            let Some(trace) = replay(schedule.on(pp), m, &stages, Seconds::new(0.05)) else {
                assert!(!schedule.on(pp).runs(m), "{schedule:?} {pp} {m} stands still");
                continue;
            };
            let busy = busy(schedule.on(pp), m, &stages).expect("it runs");
            for rank in 0..pp {
                let own: Vec<&Event> = trace.events.iter().filter(|event| event.rank == rank).collect();
                assert!(own.windows(2).all(|two| two[0].end <= two[1].start), "{schedule:?} {pp} {m}");
                let worked: Seconds = own.iter().map(|event| event.end - event.start).sum();
                assert!((worked - busy[rank as usize]).get().abs() < 1e-9 && worked <= trace.makespan);
            }
            ran += 1;
        }
    }
    assert!(ran > 50, "{ran}");
}
