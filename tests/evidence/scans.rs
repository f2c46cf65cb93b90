//! Scans by chunks against an H100: the counted bytes of the kernels that `checks/silicon/scan.py` times, without the
//! convolutions, gates and norms of their blocks.

use serde_json::Value;

use crate::random::spec;
use crate::silicon::{H200, SECOND_H100, calibration, median_us, samples, text};
use meshwright::cost::Costs;
use meshwright::problem::Problem;
use meshwright::units::Bytes;

/// Bytes per token of what was measured, term by term in specification §2.3.
struct Counted {
    /// Of norms and of sums of decays, which stream.
    streamed: f64,
    /// Of kernels that multiply small matrices of a chunk.
    by_chunk: f64,
    /// Kernels of both.
    kernels: f64,
}

fn number(record: &Value, key: &str) -> f64 {
    record[key].as_f64().unwrap_or_else(|| panic!("{record}: {key}"))
}

/// Mamba-2 without a gate: the scan writes its output once, and no kernel has the gate's gradient.
fn mamba(record: &Value, backward: bool) -> Counted {
    let of = |key: &str| number(record, key);
    let channels = of("heads") * of("head_dim");
    let (state, group, pairs) =
        (channels * of("state") / of("chunk"), of("groups") * of("state"), of("groups") * of("chunk"));
    let (by_chunk, kernels) = if backward {
        (22.0 * channels + 34.0 * state + 38.0 * group + 24.0 * pairs, 13.0)
    } else {
        (6.0 * channels + 12.0 * state + 8.0 * group + 8.0 * pairs, 5.0)
    };
    Counted { streamed: 0.0, by_chunk, kernels }
}

/// Forward pass of the gated delta rule with a head of keys for each of values, in chunks of 64 tokens.
fn delta_rule(record: &Value) -> Counted {
    let (heads, dim) = (number(record, "heads"), number(record, "head_dim"));
    let channels = heads * dim;
    let by_chunk = channels * (12.0 + 10.0 + 4.0 + 4.0 * dim / 64.0) + 6.0 * 64.0 * heads;
    Counted { streamed: 8.0 * channels, by_chunk, kernels: 8.0 }
}

/// Backward pass of the gated delta rule with a head of keys for each of values: factors and states computed again,
/// gradients of values inside chunks, of states, of queries, keys and factors, and through the factors and the inverse;
/// norms and a sum stream.
fn delta_rule_backward(record: &Value) -> Counted {
    let (heads, dim) = (number(record, "heads"), number(record, "head_dim"));
    let channels = heads * dim;
    let by_chunk = channels * (30.0 + 18.0 + 16.0 + 8.0 * dim / 64.0) + 4.0 * 64.0 * heads;
    Counted { streamed: 18.0 * channels, by_chunk, kernels: 10.0 }
}

/// Forward pass of Kimi Delta Attention, whose decays are read in fp32 here: 8 bytes a channel, not 6.
fn kimi_delta(record: &Value) -> Counted {
    let (heads, dim) = (number(record, "heads"), number(record, "head_dim"));
    let channels = heads * dim;
    let by_chunk = channels * (50.0 + 4.0 * dim / 64.0) + 10.0 * (64.0 + 16.0) * heads;
    Counted { streamed: 16.0 * channels, by_chunk, kernels: 9.0 }
}

fn counted(record: &Value) -> Counted {
    match record["name"].as_str().unwrap() {
        "gated delta rule forward" => delta_rule(record),
        "gated delta rule backward" => delta_rule_backward(record),
        "kimi delta attention forward" => kimi_delta(record),
        name => mamba(record, name.ends_with("backward")),
    }
}

/// Problem on a device as it was calibrated.
fn calibrated(cluster: &'static str, device: &str) -> Problem {
    let base = spec("llama3-8b", cluster, "nemo-25", 128, 8192).gpus(8).problem();
    let (mut cluster, mut stack) = (base.cluster().clone(), base.stack().clone());
    let gpu = cluster.gpu.name.clone();
    calibration(&base, &samples(device)).apply_curves(&gpu, &mut cluster, &mut stack).unwrap();
    Problem::new(base.model().clone(), cluster, base.workload().clone(), stack, base.hbm_profile()).unwrap()
}

/// Measured time over that of streaming kernels with the counted bytes: of everything, and of the kernels by chunk alone.
fn slower(record: &Value, problem: &Problem) -> [f64; 2] {
    let Counted { streamed, by_chunk, kernels } = counted(record);
    let tokens = number(record, "sequence");
    let device = &Costs::new(problem).device;
    let stream = |bytes: f64, kernels: f64| device.stream_fused(Bytes::new(tokens * bytes), kernels).get();
    let measured = median_us(record) * 1e-6;
    let around = stream(streamed, kernels);
    [measured / (around + stream(by_chunk, 0.0)), (measured - around) / stream(by_chunk, 0.0)]
}

/// Time of kernels by chunk against streaming kernels of as many bytes, as specification §2.3 has it, on a problem's device.
fn priced(problem: &Problem) -> f64 {
    let processors = f64::from(problem.cluster().gpu.processors.value);
    (0.52 + Costs::new(problem).device.streaming_bandwidth().get() / (25.8e9 * processors)).max(4.0 / 3.0)
}

/// Scans on two devices that differ in their memory alone: what the H200's faster memory does not shorten is the work
/// of the processors. Mamba-2's scan over chunks of 256 tokens takes as long as over 128, though it moves fewer bytes,
/// and is no part of the figures: stacks scan by 128.
#[test]
fn scans_by_chunk_take_what_is_counted() {
    let devices = [("h100-512", SECOND_H100, SECOND_H100, 4), ("h200-1k", H200, "h200-2026-11-28", 3)];
    for (cluster, device, scans, count) in devices {
        let problem = calibrated(cluster, device);
        let parsed = text(&format!("tests/silicon/{scans}/scans.jsonl"));
        let records = parsed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_scan = |record: &Value| record["times_us"].is_array() && record["taps"].is_null();
        let mut found = Vec::new();
        for record in records.filter(is_scan) {
            let name = record["name"].as_str().unwrap();
            let [whole, by_chunk] = slower(&record, &problem);
            println!(
                "{cluster}, {name}: {whole:.3} of counted bytes at streaming bandwidth, kernels by chunk {by_chunk:.3}"
            );
            if record["chunk"].as_u64() != Some(256) {
                assert!((1.1..1.7).contains(&whole), "{name}: {whole}");
                found.push(by_chunk / priced(&problem));
            }
        }
        assert_eq!(found.len(), count);
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        println!("{cluster}: {:.3} of streaming time, measured {mean:.3} of it", priced(&problem));
        assert!((mean - 1.0).abs() < 0.03 && found.iter().all(|ratio| (ratio - 1.0).abs() < 0.15), "{found:?}");
    }
}
