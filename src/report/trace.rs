//! Step as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

use serde_json::{Value, json};

use meshwright_engine::cost::timeline::{PassParts, Timeline};
use meshwright_engine::schedule::replay::Event;
use meshwright_engine::schedule::slot::{Op, Pass, Slot};
use meshwright_engine::units::{Bytes, Seconds};

/// Streams of each rank, in display order.
const STREAMS: [&str; 6] = ["compute", "TP", "CP", "EP", "PP", "DP"];

fn microseconds(time: Seconds) -> f64 {
    time.get() * 1e6
}

/// Renders the trace: one process per pipeline rank with its compute, TP, CP, EP, PP and DP streams, and a counter of its
/// memory.
///
/// Exposed communication of a pass is on its own stream after the pass's compute; expert traffic that a pair hides is next
/// to it. Times are in microseconds, as the format requires.
///
/// # Errors
///
/// A value has no JSON form.
pub fn chrome(timeline: &Timeline) -> serde_json::Result<String> {
    let mut events = Vec::new();
    let ranks = timeline.plan.layout.pp;
    for rank in 0..ranks {
        events.push(named("process_name", rank, 0, &format!("pipeline rank {rank}")));
        for (stream, name) in STREAMS.iter().enumerate() {
            events.push(named("thread_name", rank, stream, name));
        }
    }
    for event in &timeline.events {
        passes(timeline, event, &mut events);
    }
    for rank in 0..ranks {
        edges(timeline, rank, &mut events);
        memory(timeline, rank, &mut events);
    }
    let document = json!({
        "displayTimeUnit": "ms",
        "otherData": { "plan": timeline.plan.to_string(), "step_time_s": timeline.step.total().get() },
        "traceEvents": events,
    });
    serde_json::to_string(&document).map(|text| text + "\n")
}

fn named(what: &str, rank: u32, stream: usize, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": rank, "tid": stream, "args": { "name": name } })
}

fn slice(rank: u32, stream: &str, name: &str, start: Seconds, length: Seconds) -> Value {
    let tid = STREAMS.iter().position(|known| *known == stream).unwrap_or_default();
    json!({
        "ph": "X", "name": name, "cat": stream, "pid": rank, "tid": tid,
        "ts": microseconds(start), "dur": microseconds(length),
    })
}

fn name(op: Op) -> String {
    let letter = match op.pass {
        Pass::Forward => "F",
        Pass::Backward => "B",
        Pass::Input => "I",
        Pass::Wgrad => "W",
    };
    format!("{letter} micro-batch {} chunk {}", op.micro_batch, op.stage)
}

/// Streams of an operation with their durations, as if it ran alone.
fn parts(timeline: &Timeline, op: Op, length: Seconds) -> PassParts {
    let (forward, backward) = timeline.parts[op.stage as usize];
    match op.pass {
        Pass::Forward => forward,
        Pass::Backward | Pass::Input => backward,
        Pass::Wgrad => PassParts { compute: length, ..PassParts::default() },
    }
}

/// Events of a rank: compute, then its exposed communication, then the sends to the next stages.
fn passes(timeline: &Timeline, event: &Event, into: &mut Vec<Value>) {
    let (Slot { op, beside }, length) = (event.slot, event.end - event.start);
    let own = parts(timeline, op, length);
    let (title, shares) = match beside {
        None => {
            let whole: Seconds = own.streams().into_iter().map(|(_, time)| time).sum();
            let scale = if whole > Seconds::ZERO { length / whole } else { 0.0 };
            (name(op), own.streams().map(|(stream, time)| (stream, time * scale)))
        }
        Some(other) => {
            let title = format!("{} beside {}", name(op), name(other));
            let hidden = timeline.hideable[op.stage as usize] + timeline.hideable[other.stage as usize];
            if hidden > Seconds::ZERO {
                into.push(slice(event.rank, "EP", &format!("within {title}"), event.start, hidden.min(length)));
            }
            let its = parts(timeline, other, length);
            let (tp, cp) = (own.tp + its.tp, own.cp + its.cp);
            let ep = (own.ep + its.ep - hidden).or_zero();
            let pair = PassParts { compute: (length - tp - cp - ep).or_zero(), tp, cp, ep };
            (title, pair.streams())
        }
    };
    let mut at = event.start;
    for (stream, length) in shares {
        if length > Seconds::ZERO {
            into.push(slice(event.rank, stream, &title, at, length));
            at += length;
        }
    }
    for op in event.slot.ops().filter(|op| leaves(timeline, *op) && timeline.send > Seconds::ZERO) {
        into.push(slice(event.rank, "PP", &format!("send {}", name(op)), event.end, timeline.send));
    }
}

/// Whether the output of an operation goes to another rank.
fn leaves(timeline: &Timeline, op: Op) -> bool {
    let pipeline = timeline.plan.pipeline();
    let next = match op.pass {
        Pass::Forward => op.stage.checked_add(1).filter(|next| (*next as usize) < timeline.parts.len()),
        Pass::Backward | Pass::Input => op.stage.checked_sub(1),
        Pass::Wgrad => None,
    };
    next.is_some_and(|next| pipeline.rank_of(next) != pipeline.rank_of(op.stage))
}

/// Exposed gradient exchange, parameter gather and update after a rank's last pass.
fn edges(timeline: &Timeline, rank: u32, into: &mut Vec<Value>) {
    let ends = timeline.events.iter().filter(|event| event.rank == rank).map(|event| event.end);
    let mut at = ends.fold(Seconds::ZERO, Seconds::max);
    for (stream, name, time) in [
        ("DP", "exposed gradients and parameters", timeline.step.dp_comm),
        ("compute", "optimizer", timeline.step.optimizer),
    ] {
        if time > Seconds::ZERO {
            into.push(slice(rank, stream, name, at, time));
            at += time;
        }
    }
}

/// Memory of a rank: the constant part, and activations that forwards allocate and backwards free.
fn memory(timeline: &Timeline, rank: u32, into: &mut Vec<Value>) {
    let footprint = &timeline.footprints[rank as usize];
    let fixed = footprint.peak() - footprint.activations;
    let bytes = timeline.kept[rank as usize].get();
    let mut changes: Vec<(f64, f64)> = timeline
        .events
        .iter()
        .filter(|event| event.rank == rank)
        .flat_map(|event| event.slot.ops().map(move |op| (event, op)))
        .filter_map(|(event, op)| match op.pass {
            Pass::Forward => Some((event.start.get(), bytes)),
            Pass::Backward | Pass::Input => Some((event.end.get(), -bytes)),
            Pass::Wgrad => None,
        })
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut held = 0.0;
    let mut counter = |at: f64, held: f64| {
        into.push(json!({
            "ph": "C", "name": "memory, GiB", "pid": rank, "tid": 0, "ts": at * 1e6,
            "args": { "states and buffers": fixed.as_gib(), "activations": Bytes::new(held).as_gib() },
        }));
    };
    counter(0.0, 0.0);
    for (at, bytes) in changes {
        held = (held + bytes).max(0.0);
        counter(at, held);
    }
}
