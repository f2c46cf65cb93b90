//! Simulation of the operations of heterogeneous stages: the oracle of the closed forms.

use super::PipelineShape;
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

/// Link between two neighbouring chunks of a heterogeneous pipeline: time of a send beyond the latency that the closed form counts.
/// Chunks of the same two ranks share it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wire {
    /// Additional latency of a send.
    pub delay: Seconds,
    /// Time that a send occupies the link before the next in its direction.
    pub occupied: Seconds,
}

/// Links that the sends between chunks take.
#[derive(Clone, Copy)]
enum Links<'w> {
    /// One latency between any two ranks; sends never queue.
    Uniform(Seconds),
    /// `wires[i]` joins chunks i and i + 1; other sends take no time.
    Wires(&'w [Wire]),
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

/// Simulates one step of a pipeline with these stages, one per chunk, in model order; `send` = latency between
/// neighbouring chunks on different ranks, asynchronous.
///
/// `None` if the pipeline does not run ([`PipelineShape::runs`]).
pub fn replay(pipeline: PipelineShape, micro_batches: u32, stages: &[StageTime], send: Seconds) -> Option<Trace> {
    let mut events = Vec::new();
    let makespan = simulate(pipeline, micro_batches, stages, Links::Uniform(send), |event| events.push(event))?;
    Some(Trace { makespan, events })
}

/// Simulated step time, without the trace.
pub fn makespan(pipeline: PipelineShape, micro_batches: u32, stages: &[StageTime], send: Seconds) -> Option<Seconds> {
    simulate(pipeline, micro_batches, stages, Links::Uniform(send), |_| ())
}

/// Simulated step time if `wires[i]` joins chunks i and i + 1; other sends take no time.
pub(crate) fn makespan_over(
    pipeline: PipelineShape,
    micro_batches: u32,
    stages: &[StageTime],
    wires: &[Wire],
) -> Option<Seconds> {
    simulate(pipeline, micro_batches, stages, Links::Wires(wires), |_| ())
}

/// Busy time of each rank in a step, over all its operations.
///
/// `None` if the schedule does not run.
pub fn busy(pipeline: PipelineShape, micro_batches: u32, stages: &[StageTime]) -> Option<Vec<Seconds>> {
    let of_rank = |list: &Vec<Slot>| list.iter().map(|slot| length(*slot, stages)).sum();
    Some(pipeline.ops(micro_batches)?.iter().map(of_rank).collect())
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

/// Runs the operations of all ranks in turn, each as soon as its inputs and its rank are there, and records each slot.
/// Returns the time of the last; `None` if the schedule does not run.
fn simulate(
    pipeline: PipelineShape,
    micro_batches: u32,
    stages: &[StageTime],
    links: Links,
    mut record: impl FnMut(Event),
) -> Option<Seconds> {
    let (lists, pp) = (pipeline.ops(micro_batches)?, pipeline.pp as usize);
    let (send, wires) = match links {
        Links::Uniform(send) => (send, &[][..]),
        Links::Wires(wires) => (Seconds::ZERO, wires),
    };
    let chunks = stages.len();
    let index = |op: Op| op.index(micro_batches, chunks);
    let mut done: Vec<Option<Seconds>> = vec![None; 3 * micro_batches as usize * chunks];
    let mut posts = Posts::new(wires, done.len(), pp);
    let mut clock = vec![Seconds::ZERO; pp];
    let mut next = vec![0; pp];
    let last = chunks as u32 - 1;
    let hop = |a: u32, b: u32| if pipeline.rank_of(a) == pipeline.rank_of(b) { Seconds::ZERO } else { send };
    // Earliest start that the operation's inputs allow, or `None` while they are not available.
    let ready = |op: Op, done: &[Option<Seconds>], posts: &Posts| -> Option<Seconds> {
        let done_at = |pass, stage| done[index(Op { pass, micro_batch: op.micro_batch, stage })];
        let arrival_from = |pass, stage| posts.arrived(done, index(Op { pass, micro_batch: op.micro_batch, stage }));
        match op.pass {
            Pass::Forward if op.stage == 0 => Some(Seconds::ZERO),
            Pass::Forward => arrival_from(Pass::Forward, op.stage - 1).map(|t| t + hop(op.stage - 1, op.stage)),
            Pass::Backward | Pass::Input if op.stage == last => done_at(Pass::Forward, op.stage),
            Pass::Backward | Pass::Input => {
                let gradient = arrival_from(Pass::Backward, op.stage + 1)? + hop(op.stage + 1, op.stage);
                done_at(Pass::Forward, op.stage).map(|own| own.max(gradient))
            }
            Pass::Wgrad => done_at(Pass::Backward, op.stage),
        }
    };
    loop {
        let mut progressed = false;
        for rank in 0..pp {
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
                    posts.post(op, index(op), end, |chunk| pipeline.rank_of(chunk) as usize);
                }
                record(Event { rank: rank as u32, slot, start, end });
                next[rank] += 1;
                progressed = true;
            }
        }
        if !progressed {
            break;
        }
    }
    let complete = (0..pp).all(|rank| next[rank] == lists[rank].len());
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
        // The link's number, and the stage at its other end.
        let direction = match op.pass {
            Pass::Forward => Some((op.stage as usize, op.stage + 1)),
            Pass::Backward | Pass::Input => op.stage.checked_sub(1).map(|below| (below as usize, below)),
            Pass::Wgrad => None,
        };
        self.arrived[operation] = Some(match direction.and_then(|(at, to)| Some((self.wires.get(at)?, to))) {
            Some((wire, to)) => {
                let free = &mut self.free[rank_of(op.stage) * self.ranks + rank_of(to)];
                let start = end.max(*free);
                *free = start + wire.occupied;
                start + wire.delay
            }
            None => end,
        });
    }
}

#[cfg(test)]
mod tests;
