//! Logs of DeepSpeed with a user's own model: its printed configuration, and its throughput timer.
//!
//! Formats: `deepspeed/runtime/config.py` (`print`), `deepspeed/utils/timer.py` (`ThroughputTimer`) ([deepspeed]).

use std::collections::BTreeMap;

use super::lines::{dotted, number_after, year};
use super::{LoggedRun, Row, steady};

/// Label of the throughput of the last step in a throughput line.
const STEP: &str = "CurrSamplesPerSec=";

/// Words of the lines that are read, other than the dump of settings.
pub(super) const WORDS: &[&str] = &[STEP, "world_size=", "world size:", "zero_config"];

/// Reads a log that has a throughput line.
pub fn read(text: &str) -> Option<LoggedRun> {
    let mut settings: BTreeMap<&str, &str> = BTreeMap::new();
    let mut rates = Vec::new();
    let mut allocated: Option<f64> = None;
    let mut when = None;
    let mut world = None;
    for line in text.lines() {
        world = world.or_else(|| number_after(line, "world_size=")).or_else(|| number_after(line, "world size:"));
        if let Some(rate) = number_after(line, STEP).filter(|rate| *rate > 0.0) {
            rates.push(rate);
            when = when.or_else(|| year(line));
            let most = number_after(line, "MaxMemAllocated=");
            allocated = most.map(|most| allocated.map_or(most, |known: f64| known.max(most))).or(allocated);
        } else if let Some((name, value)) = dotted(line) {
            settings.entry(name).or_insert(value);
        } else if let Some((name, value)) = json_setting(line) {
            settings.entry(name).or_insert(value);
        }
    }
    if rates.is_empty() {
        return None;
    }
    let number = |name: &str| settings.get(name).and_then(|value| value.parse::<f64>().ok());
    let is_on = |name: &str| settings.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let batch = number("train_batch_size");
    let steady = steady(&rates);
    let rate = steady.map(|steady| steady.median);
    let seconds = batch.zip(rate).map(|(batch, rate)| batch / rate);
    let gpus = world.or_else(|| number("world_size"));
    let row = Row {
        framework: Some("DeepSpeed".into()),
        purpose: Some("pretrain".into()),
        year: when,
        gpus_total: gpus,
        dp: gpus,
        tp: Some(1.0),
        pp: Some(1.0),
        cp: Some(1.0),
        dtype: Some(if is_on("fp16_enabled") { "fp16" } else { "bf16" }.into()),
        zero_stage: number("zero_optimization_stage").or_else(|| zero_stage(text)),
        micro_batch: number("train_micro_batch_size_per_gpu"),
        global_batch: batch,
        grad_accum: number("gradient_accumulation_steps"),
        step_time_s: seconds,
        step_time_canon_s: seconds,
        canon_from: seconds.map(|_| "batch over the median CurrSamplesPerSec of the log".into()),
        peak_mem_gib: allocated,
        mem_kind: allocated.map(|_| "torch max_memory_allocated of rank 0".into()),
        ..Row::default()
    };
    Some(LoggedRun { row, steps: rates.len(), error: steady.and_then(|steady| steady.error) })
}

/// Value of `stage=3` in the printed `zero_config`.
fn zero_stage(text: &str) -> Option<f64> {
    text.lines().filter(|line| line.contains("zero_config")).find_map(|line| number_after(line, "stage="))
}

/// Key and value of a JSON line as DeepSpeed prints it: `"train_batch_size": 96,`.
pub(super) fn json_setting(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.trim().strip_prefix('"')?.split_once("\":")?;
    Some((name, value.trim().trim_end_matches(',')))
}
