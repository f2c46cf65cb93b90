//! Dependency paths through the operations of a step: lower bounds of its time for any stage times.

use super::PipelineShape;
use super::replay::StageTime;
use super::slot::{Op, Pass, Slot};
use crate::units::Seconds;

/// Path of dependent operations, as visit counts of each chunk. Its length is a lower bound of the simulated step time.
///
/// ```text
/// T ≥ Σ_S forward_S·F_S + backward_S·B_S + wgrad_S·W_S + traffic_S·E_S + sends·q
/// ```
///
/// F and B are those of passes alone, B with its weight gradients, wherever they run; E is expert traffic that pairs may hide.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Rank whose operations the path follows.
    pub rank: u32,
    /// Number of forwards of each chunk.
    pub forward: Vec<f64>,
    /// Number of backwards of each chunk.
    pub backward: Vec<f64>,
    /// Number of weight gradients of each chunk beyond those of its backwards; negative where the path waits for input
    /// gradients alone.
    pub wgrad: Vec<f64>,
    /// Change of each chunk's expert traffic by pairs; zero if passes do not run in pairs.
    pub traffic: Vec<f64>,
    /// Number of sends between chunks on different ranks.
    pub sends: f64,
}

impl Path {
    /// Path without operations, of a rank in a pipeline of this many chunks.
    pub fn empty(rank: u32, chunks: usize) -> Self {
        let none = vec![0.0; chunks];
        Self { rank, forward: none.clone(), backward: none.clone(), wgrad: none.clone(), traffic: none, sends: 0.0 }
    }

    /// Length of the path on these stages without sends: a lower bound of the step time, for schedules without pairs.
    pub fn length(&self, stages: &[StageTime]) -> Seconds {
        let Self { rank: _, forward, backward, wgrad, traffic: _, sends: _ } = self;
        let visits = forward.iter().zip(backward).zip(wgrad);
        visits
            .zip(stages)
            .map(|(((&forward, &backward), &wgrad), time)| {
                time.forward * forward + time.backward * backward + time.wgrad * wgrad
            })
            .sum()
    }

    /// Adds one pass of a stage.
    pub fn visit(&mut self, pass: Pass, stage: usize) {
        self.visit_often(pass, stage, 1.0);
    }

    /// Adds `times` passes of a stage.
    fn visit_often(&mut self, pass: Pass, stage: usize, times: f64) {
        match pass {
            Pass::Forward => self.forward[stage] += times,
            Pass::Backward => self.backward[stage] += times,
            Pass::Input => {
                self.backward[stage] += times;
                self.wgrad[stage] -= times;
            }
            Pass::Wgrad => self.wgrad[stage] += times,
        }
    }

    /// Adds a pair: a forward of one stage with a backward of another.
    pub(crate) fn visit_pair(&mut self, forward: usize, backward: usize, pairing: Pairing) {
        self.forward[forward] += pairing.slower;
        self.backward[backward] += pairing.slower;
        self.traffic[forward] += pairing.traffic;
        self.traffic[backward] += pairing.traffic;
    }
}

/// Paths through each rank: into it, along its operations, and out of it. They come with and without the two waits for a
/// micro-batch to return: that of the first backward at ramp-up, and that of the last forward at ramp-down.
///
/// Empty if the schedule does not run, and for bidirectional schedules, where the time of a pair is not a sum over stages.
pub fn paths(pipeline: PipelineShape, micro_batches: u32) -> Vec<Path> {
    let mut found = Vec::new();
    for path in (0..pipeline.pp).flat_map(|rank| paths_through(pipeline, micro_batches, rank)) {
        if !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Paths through one rank.
pub(super) fn paths_through(pipeline: PipelineShape, micro_batches: u32, rank: u32) -> Vec<Path> {
    if pipeline.schedule.is_bidirectional() || !pipeline.runs(micro_batches) {
        return Vec::new();
    }
    let list: Vec<Slot> = pipeline.ops_of(rank, micro_batches);
    let tally = Tally::of(&list, pipeline.chunks() as usize);
    let mut found = Vec::new();
    for waits in Waits::ALL {
        let mut builder = PathBuilder::new(pipeline, rank);
        if builder.follow(&list, &tally, waits) && !found.contains(&builder.path) {
            found.push(builder.path);
        }
    }
    found
}

/// Waits of a rank for its neighbours on a path.
#[derive(Clone, Copy)]
struct Waits {
    /// For its first gradient: the path leaves the rank through the later chunks and returns.
    up: bool,
    /// For the gradient of its last forward.
    down: bool,
}

impl Waits {
    /// Every combination.
    const ALL: [Self; 4] = [
        Self { up: false, down: false },
        Self { up: true, down: false },
        Self { up: false, down: true },
        Self { up: true, down: true },
    ];
}

const fn is_backward(op: Op) -> bool {
    matches!(op.pass, Pass::Backward | Pass::Input)
}

/// Lower bound of the time of a pair of passes.
///
/// ```text
/// pair ≥ slower·(F + B) + traffic·(E_F + E_B)          F, B: alone; E: expert traffic of the two stages
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairing {
    /// Factor on the time of the two passes alone.
    pub slower: f64,
    /// Factor on the expert traffic of both stages; negative, as pairs hide a part.
    pub traffic: f64,
}

/// Number of operations of a list by chunk and pass.
struct Tally(Vec<[f64; PASSES]>);

/// Number of passes.
const PASSES: usize = 4;

impl Tally {
    /// Passes of schedules of one direction, whose slots have one operation each.
    fn of(list: &[Slot], chunks: usize) -> Self {
        let mut counts = vec![[0.0; PASSES]; chunks];
        for Slot { op, .. } in list {
            counts[op.stage as usize][op.pass as usize] += 1.0;
        }
        Self(counts)
    }
}

/// Path through one rank while its operations are followed.
struct PathBuilder {
    pipeline: PipelineShape,
    chunks: u32,
    /// Returning pass through a stage: a whole backward, or its input gradients.
    back: Pass,
    path: Path,
}

impl PathBuilder {
    fn new(pipeline: PipelineShape, rank: u32) -> Self {
        let chunks = pipeline.chunks();
        let back = if pipeline.schedule.splits_backward() { Pass::Input } else { Pass::Backward };
        Self { pipeline, chunks, back, path: Path::empty(rank, chunks as usize) }
    }

    fn hop(&mut self, stage: u32) {
        if self.pipeline.rank_of(stage) != self.pipeline.rank_of(stage + 1) {
            self.path.sends += 1.0;
        }
    }

    /// Forwards of chunks `from..to`, with the sends that leave them.
    fn forwards(&mut self, from: u32, to: u32) {
        for stage in from..to {
            self.path.visit(Pass::Forward, stage as usize);
            if stage + 1 < self.chunks {
                self.hop(stage);
            }
        }
    }

    /// Backwards of chunks `above+1..`, from the last down, with the sends that leave them.
    fn backwards_down_to(&mut self, above: u32) {
        for stage in above + 1..self.chunks {
            self.path.visit(self.back, stage as usize);
            self.hop(stage - 1);
        }
    }

    /// All operations of a list but for those of these parts of it, of which few are long.
    fn run_without(&mut self, tally: &Tally, parts: [&[Slot]; 2]) {
        let left_out = parts.map(|part| Tally::of(part, tally.0.len()));
        for (stage, all) in tally.0.iter().enumerate() {
            for pass in [Pass::Forward, Pass::Backward, Pass::Input, Pass::Wgrad] {
                let times = left_out.iter().fold(all[pass as usize], |left, out| left - out.0[stage][pass as usize]);
                self.path.visit_often(pass, stage, times);
            }
        }
    }

    /// Follows the rank's operations; returns whether the path exists, since the wait up must come before the wait down.
    fn follow(&mut self, list: &[Slot], tally: &Tally, Waits { up, down }: Waits) -> bool {
        let Some(first_backward) = list.iter().position(|slot| is_backward(slot.op)) else { return false };
        let Some(last_forward) = list.iter().rposition(|slot| slot.op.pass == Pass::Forward) else { return false };
        let (mut at, mut waits) = (0, last_forward..last_forward);
        if up {
            let op = list[first_backward].op;
            self.forwards(0, self.chunks);
            self.backwards_down_to(op.stage);
            at = first_backward;
        } else {
            self.forwards(0, list[0].op.stage);
        }
        if down {
            let op = list[last_forward].op;
            let returns = |b: Op| is_backward(b) && b.micro_batch == op.micro_batch && b.stage == op.stage;
            let back = list.iter().rposition(|slot| returns(slot.op));
            let Some(back) = back else { return false };
            if last_forward < at {
                return false;
            }
            if op.stage + 1 < self.chunks {
                self.hop(op.stage);
            }
            self.forwards(op.stage + 1, self.chunks);
            self.backwards_down_to(op.stage);
            waits = last_forward + 1..back;
        }
        self.run_without(tally, [&list[..at], &list[waits]]);
        if let Some(Slot { op, .. }) = list.last()
            && is_backward(*op)
        {
            for stage in 0..op.stage {
                self.path.visit(self.back, stage as usize);
                self.hop(stage);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::replay::{makespan, replay};
    use crate::schedule::simulator::Simulator;
    use crate::schedule::{Schedule, every_for_tests};

    /// Length of a path with its sends.
    fn length(path: &Path, stages: &[StageTime], send: f64) -> f64 {
        path.length(stages).get() + path.sends * send
    }

    #[test]
    fn no_path_is_longer_than_the_replay() {
        let mut random = crate::schedule::random(7, 0.2);
        for schedule in every_for_tests().filter(|schedule| !schedule.is_bidirectional()) {
            for (pp, m) in [(2, 2), (2, 6), (3, 3), (4, 4), (4, 12), (6, 24)] {
                let all = paths(schedule.on(pp), m);
                assert!(!all.is_empty());
                let mut before = Vec::new();
                for send in [0.0, 0.05] {
                    let stages: Vec<StageTime> = (0..schedule.on(pp).chunks())
                        .map(|_| {
                            let (f, b, w) = (random(), random(), random());
                            let s = Seconds::new;
                            // The ends of a model may stand alone: a little time, and no weight gradients.
                            if random() > 1.0 {
                                return StageTime {
                                    forward: s(f * 1e-3),
                                    backward: s(b * 1e-3),
                                    ..StageTime::default()
                                };
                            }
                            StageTime { forward: s(f), backward: s(b + w), wgrad: s(w), ..StageTime::default() }
                        })
                        .collect();
                    let simulated = replay(schedule.on(pp), m, &stages, Seconds::new(send)).expect("has a list");
                    let simulator = Simulator::new(schedule.on(pp), m).expect("has a list");
                    let critical =
                        simulator.critical_path(&stages, Pairing { slower: 1.0, traffic: 0.0 }).expect("it runs");
                    let alone = makespan(schedule.on(pp), m, &stages, Seconds::ZERO).expect("has a list").get();
                    let met = length(&critical, &stages, 0.0);
                    assert!((met - alone).abs() <= 1e-9 * alone, "{schedule:?} {pp} {m}: {met} {alone}");
                    for path in all.iter().chain(&before) {
                        let bound = length(path, &stages, send);
                        assert!(
                            bound <= simulated.makespan.get() * (1.0 + 1e-12),
                            "{schedule:?} {pp} {m}: {bound} {:?} {path:?}",
                            simulated.makespan
                        );
                    }
                    // What one set of stages waits for, no other set is faster than.
                    before.push(critical);
                }
            }
        }
    }

    /// Operations on the way of a path, visited one by one.
    fn followed(pipeline: PipelineShape, m: u32, rank: u32, Waits { up, down }: Waits) -> Option<Path> {
        let list: Vec<Op> = pipeline.ops_of(rank, m).into_iter().flat_map(Slot::ops).collect();
        let (first_back, last_forward) =
            (list.iter().position(|op| is_backward(*op))?, list.iter().rposition(|op| op.pass == Pass::Forward)?);
        let mut builder = PathBuilder::new(pipeline, rank);
        let visit_all = |builder: &mut PathBuilder, ops: &[Op]| {
            for op in ops {
                builder.path.visit(op.pass, op.stage as usize);
            }
        };
        let from = if up {
            builder.forwards(0, builder.chunks);
            builder.backwards_down_to(list[first_back].stage);
            first_back
        } else {
            builder.forwards(0, list[0].stage);
            0
        };
        let from = if down {
            let Op { stage, micro_batch, .. } = list[last_forward];
            let back =
                list.iter().position(|op| is_backward(*op) && (op.stage, op.micro_batch) == (stage, micro_batch))?;
            visit_all(&mut builder, list.get(from..=last_forward).filter(|_| last_forward >= from)?);
            if stage + 1 < builder.chunks {
                builder.hop(stage);
            }
            builder.forwards(stage + 1, builder.chunks);
            builder.backwards_down_to(stage);
            back
        } else {
            from
        };
        visit_all(&mut builder, &list[from..]);
        if let Some(op) = list.last().filter(|op| is_backward(**op)) {
            for stage in 0..op.stage {
                builder.path.visit(builder.back, stage as usize);
                builder.hop(stage);
            }
        }
        Some(builder.path)
    }

    /// Counts of whole lists give the paths that their operations give one by one.
    #[test]
    fn paths_are_those_of_single_visits() {
        let mut compared = 0;
        for schedule in every_for_tests().filter(|schedule| !schedule.is_bidirectional()) {
            for (pp, m) in [(1, 3), (2, 2), (2, 6), (3, 3), (4, 4), (4, 12), (6, 24)] {
                let pipeline = schedule.on(pp);
                for rank in 0..if pipeline.runs(m) { pp } else { 0 } {
                    let mut visited = Vec::new();
                    for waits in Waits::ALL {
                        visited.extend(followed(pipeline, m, rank, waits).filter(|p| !visited.contains(p)));
                    }
                    assert_eq!(paths_through(pipeline, m, rank), visited, "{pipeline:?} {m} {rank}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }

    /// Within 3 %, for sends that the path does not count.
    #[test]
    fn the_path_of_identical_stages_is_as_long_as_the_step() {
        for schedule in [Schedule::OneFOneB, Schedule::Interleaved { virtual_stages: 2 }] {
            let s = Seconds::new;
            let time = StageTime { forward: s(1.0), backward: s(2.0), wgrad: s(1.0), ..StageTime::default() };
            let (pp, m) = (4, 16);
            let stages = vec![time; schedule.on(pp).chunks() as usize];
            let step = replay(schedule.on(pp), m, &stages, Seconds::new(0.1)).expect("has a list").makespan.get();
            let longest = paths(schedule.on(pp), m).iter().map(|path| length(path, &stages, 0.1)).fold(0.0, f64::max);
            assert!(longest > step * 0.97, "{schedule:?}: {longest} {step}");
        }
    }
}
