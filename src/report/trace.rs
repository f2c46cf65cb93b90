//! A step as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

use serde_json::{Value, json};

use crate::cost::timeline::{Parts, Timeline};
use crate::schedule::ops::Pass;
use crate::schedule::replay::Event;
use crate::units::{Bytes, Seconds};

/// Streams of each rank, in the order they are shown.
const STREAMS: [&str; 6] = ["compute", "TP", "CP", "EP", "PP", "DP"];

fn microseconds(time: Seconds) -> f64 {
    time.get() * 1e6
}

/// The trace: one process per pipeline rank with its compute, TP, CP, EP, PP and DP streams, and a counter of its memory.
///
/// Exposed communication of a pass stands on its own stream behind the pass's compute. Times are in microseconds, as the
/// format asks for.
///
/// # Errors
/// When a value has no JSON form.
pub fn chrome(timeline: &Timeline) -> serde_json::Result<String> {
    let mut events = Vec::new();
    let ranks = timeline.plan.layout.pp;
    for rank in 0..ranks {
        events.push(named("process_name", rank, 0, &format!("pipeline rank {rank}")));
        for (stream, name) in STREAMS.iter().enumerate() {
            events.push(named("thread_name", rank, stream, name));
        }
    }
    let last_chunk = timeline.parts.len() as u32 - 1;
    for event in &timeline.events {
        passes(timeline, event, last_chunk, &mut events);
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

/// One operation: its compute, then what of its communication nothing hides, then the send to the next stage.
fn passes(timeline: &Timeline, event: &Event, last_chunk: u32, into: &mut Vec<Value>) {
    let op = event.op;
    let (forward, backward) = timeline.parts[op.stage as usize];
    let (letter, parts) = match op.pass {
        Pass::Forward => ("F", forward),
        Pass::Backward => ("B", backward),
        Pass::Wgrad => ("W", Parts { compute: event.end - event.start, ..Parts::default() }),
    };
    let name = format!("{letter} micro-batch {} chunk {}", op.micro_batch, op.stage);
    let mut at = event.start;
    let whole: Seconds = parts.streams().into_iter().map(|(_, time)| time).sum();
    let scale = if whole > Seconds::ZERO { (event.end - event.start) / whole } else { 0.0 };
    for (stream, time) in parts.streams() {
        let length = time * scale;
        if length > Seconds::ZERO {
            into.push(slice(event.rank, stream, &name, at, length));
            at += length;
        }
    }
    let leaves = match op.pass {
        Pass::Forward => op.stage < last_chunk,
        Pass::Backward => op.stage > 0,
        Pass::Wgrad => false,
    };
    if leaves && timeline.send > Seconds::ZERO {
        into.push(slice(event.rank, "PP", &format!("send {name}"), event.end, timeline.send));
    }
}

/// Gradients, parameters and update after a rank's last pass, as far as nothing hides them.
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

/// Memory of a rank: what is always there, and activations that come with forwards and go with backwards.
fn memory(timeline: &Timeline, rank: u32, into: &mut Vec<Value>) {
    let footprint = &timeline.footprints[rank as usize];
    let fixed = footprint.device() - footprint.activations;
    let mut changes: Vec<(f64, f64)> = timeline
        .events
        .iter()
        .filter(|event| event.rank == rank)
        .filter_map(|event| {
            let bytes = timeline.kept[event.op.stage as usize];
            match event.op.pass {
                Pass::Forward => Some((event.start.get(), bytes.get())),
                Pass::Backward => Some((event.end.get(), -bytes.get())),
                Pass::Wgrad => None,
            }
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
