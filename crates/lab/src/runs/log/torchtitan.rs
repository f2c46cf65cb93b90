//! Logs of torchtitan: the mesh, the trainer's settings, and a line for every logged step.
//!
//! Formats: `torchtitan/components/metrics.py` (`MetricsProcessor.log`), `torchtitan/distributed/parallel_dims.py`,
//! `torchtitan/trainer.py` ([torchtitan]). `memory` is the most that the allocator reserved on any rank since the last line.

use super::lines::{after, number_after, year};
use super::{LoggedRun, Row, shape, steady};
use meshwright_planner::catalog::gpu_names;

/// Words of the lines that are read, other than those of the model's shape.
pub(super) const WORDS: &[&str] = &[
    "tps:",
    "Trainer is initialized with",
    "mesh with parallelism:",
    "device mesh with [",
    "capacity:",
    "Float8",
    "float8",
    "MXFP8",
    "torch.compile",
    "activation checkpointing",
];

/// Reads a log that has a step line.
pub fn read(text: &str) -> Option<LoggedRun> {
    let steps: Vec<&str> = text.lines().filter(|line| line.contains("step:") && line.contains("tps:")).collect();
    let rates: Vec<f64> =
        steps.iter().filter_map(|line| number_after(line, "tps:")).filter(|rate| *rate > 0.0).collect();
    if rates.is_empty() {
        return None;
    }
    let memory = steps.iter().filter_map(|line| number_after(line, "memory:")).fold(0.0, f64::max);
    let find = |label: &str| text.lines().find(|line| line.contains(label));
    let trainer = find("Trainer is initialized with");
    let of_trainer = |label: &str| trainer.and_then(|line| number_after(line, label));
    let mesh = Mesh::of(text);
    let steady = steady(&rates);
    let rate = steady.map(|steady| steady.median);
    let (batch, seq_len) = (of_trainer("global batch size"), of_trainer("sequence length"));
    let seconds = match (batch, seq_len, rate) {
        (Some(batch), Some(seq_len), Some(rate)) => Some(batch * seq_len / (rate * mesh.gpus())),
        _ => None,
    };
    let float8 = ["Float8", "float8", "MXFP8"].iter().any(|word| text.contains(word));
    let row = Row {
        framework: Some("torchtitan (FSDP2)".into()),
        purpose: Some("pretrain".into()),
        year: steps.iter().find_map(|line| year(line)),
        gpu: find("capacity:").and_then(gpu),
        gpus_total: Some(mesh.gpus()),
        dtype: Some(if float8 { "fp8" } else { "bf16" }.into()),
        dtype_detail: text.contains("MXFP8").then(|| "mxfp8".into()),
        tp: Some(mesh.tp),
        sp: Some(f64::from(u8::from(mesh.tp > 1.0))),
        pp: Some(mesh.pp),
        dp: Some(mesh.replicate * mesh.shard),
        cp: Some(mesh.cp),
        ep: Some(mesh.ep),
        zero_stage: Some(if mesh.shard > 1.0 { 3.0 } else { 0.0 }),
        fsdp: (mesh.replicate > 1.0).then(|| format!("hsdp {} x dp {}", mesh.shard, mesh.replicate)),
        micro_batch: of_trainer("local batch size"),
        global_batch: batch,
        grad_accum: of_trainer("gradient accumulation steps").or_else(|| of_trainer("gradient_accumulation_steps:")),
        seq_len,
        recompute: Some(recompute(text)),
        notes: (!text.contains("torch.compile")).then(|| "eager".into()),
        tokens_per_s_per_gpu: rate,
        tokens_per_s_per_gpu_canon: rate,
        step_time_canon_s: seconds,
        canon_from: rate.map(|_| "median tps of the log".into()),
        peak_mem_gib: (memory > 0.0).then_some(memory),
        mem_kind: (memory > 0.0).then(|| "torch max_reserved, max over ranks".into()),
        ..Row::default()
    };
    let row = match text.lines().find_map(shape::of_titan) {
        Some(shape) => shape.fill(row),
        None => row,
    };
    Some(LoggedRun { row, steps: rates.len(), error: steady.and_then(|steady| steady.error) })
}

/// Degrees of the device mesh.
struct Mesh {
    replicate: f64,
    shard: f64,
    tp: f64,
    pp: f64,
    cp: f64,
    ep: f64,
}

impl Mesh {
    /// Parses `Building device mesh with parallelism: pp=1, …`, or the older `Building 2-D device mesh with ['dp_shard',
    /// 'tp'], [4, 2]`.
    fn of(text: &str) -> Self {
        let mut mesh = Self { replicate: 1.0, shard: 1.0, tp: 1.0, pp: 1.0, cp: 1.0, ep: 1.0 };
        if let Some(line) = text.lines().find(|line| line.contains("mesh with parallelism:")) {
            let number_of = |label: &str| number_after(line, label).unwrap_or(1.0).max(1.0);
            let (replicate, shard) = (number_of("dp_replicate="), number_of("dp_shard="));
            mesh = Self {
                replicate,
                shard,
                tp: number_of(" tp="),
                pp: number_of("pp="),
                cp: number_of(" cp="),
                ep: number_of(" ep="),
            };
        } else if let Some(line) = text.lines().find(|line| line.contains("device mesh with [")) {
            let lists = &line[line.find("mesh with [").map_or(0, |at| at + "mesh with [".len())..];
            let (names, rest) = lists.split_once(']').unwrap_or((lists, ""));
            let sizes = rest.split(['[', ']']).nth(1).unwrap_or_default();
            for (name, size) in names.split(',').zip(sizes.split(',')) {
                let size = size.trim().parse().unwrap_or(1.0);
                match name.trim().trim_matches(['\'', '"']) {
                    "dp_replicate" => mesh.replicate = size,
                    "dp_shard" | "dp" => mesh.shard = size,
                    "tp" => mesh.tp = size,
                    "pp" => mesh.pp = size,
                    "cp" => mesh.cp = size,
                    _ => {}
                }
            }
        }
        mesh
    }

    fn gpus(&self) -> f64 {
        self.replicate * self.shard * self.tp * self.pp * self.cp
    }
}

/// Value of the column `gpu` from `CUDA capacity: NVIDIA H100 with 95.04GiB memory`; parts with another memory size are
/// other devices.
fn gpu(line: &str) -> Option<String> {
    let name = gpu_names::for_runs(gpu_names::in_log(line)?)?;
    let gib = number_after(line, " with ").unwrap_or_default();
    Some(match name {
        "H100" if gib > 85.0 => "H100-96GB-HBM2e".into(),
        "A100-80GB" if gib > 0.0 && gib < 50.0 => "A100-40GB".into(),
        name => name.to_owned(),
    })
}

/// Text for the column `recompute`.
fn recompute(text: &str) -> String {
    let line = text.lines().find(|line| line.contains("activation checkpointing"));
    match line.and_then(|line| after(line, "Applied")) {
        Some(mode) if mode.eq_ignore_ascii_case("full") || mode == "FullAC" => "full".into(),
        Some(_) => "selective op".into(),
        None => "none".into(),
    }
}
