//! One line of results: an option, its best plans, what it takes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of a line.
pub const SCHEMA: u32 = 1;

/// Whether an option can do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every workload has a plan.
    Ok,
    /// A workload has none, or the option has no price.
    Infeasible,
}

/// One workload on an option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The workload.
    pub workload: String,
    /// How often it runs.
    pub runs: f64,
    /// The fastest plan.
    pub plan: String,
    /// Step time.
    pub step_time_s: f64,
    /// Its terms in seconds.
    pub terms: BTreeMap<String, f64>,
    /// Model FLOP/s over the peak.
    pub mfu: f64,
    /// Tokens per second and GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Peak of the fullest rank.
    pub peak_mem_gib: f64,
    /// Days of one run.
    pub days: f64,
    /// Dollars of one run.
    pub cost_usd: f64,
    /// Share of the time that advances the model.
    pub effective: f64,
    /// Shares of the time that do not.
    pub losses: BTreeMap<String, f64>,
    /// Hours between interruptions.
    pub between_failures_h: f64,
}

/// All workloads, each as often as it runs, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Days.
    pub days: f64,
    /// From here, by the model's interval.
    pub days_low: f64,
    /// To here.
    pub days_high: f64,
    /// Dollars.
    pub cost_usd: f64,
    /// With the interval's shortest time and the low price.
    pub cost_low_usd: f64,
    /// With the interval's longest time and the high price.
    pub cost_high_usd: f64,
    /// Dollars for one GPU-hour.
    pub usd_per_gpu_hour: f64,
    /// GPU-hours paid for.
    pub gpu_hours: f64,
    /// At the wall.
    pub energy_mwh: f64,
    /// Emitted.
    pub co2_kg: f64,
    /// Most power at the wall.
    pub peak_mw: f64,
    /// Share of the time that advances models.
    pub effective: f64,
}

/// One line of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version.
    pub schema: u32,
    /// Fingerprint of the sweep.
    pub sweep: String,
    /// Number of the option, from 0.
    pub option: u64,
    /// What makes it differ.
    pub label: String,
    /// Its value on every axis.
    pub choice: BTreeMap<String, String>,
    /// Whether it can do the work.
    pub status: Status,
    /// Why not.
    pub reason: Option<String>,
    /// Device.
    pub gpu: String,
    /// How many.
    pub gpus: u32,
    /// All workloads together.
    pub totals: Option<Totals>,
    /// Each workload.
    pub jobs: Vec<Job>,
}

/// What a results file is read for first.
#[derive(Debug, Deserialize)]
pub struct Head {
    /// Fingerprint of the sweep.
    pub sweep: String,
    /// Number of the option.
    pub option: u64,
}
