//! Record of one option: its best plans and totals, one line of a results file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the record format.
pub const SCHEMA: u32 = 1;

/// Feasibility of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionStatus {
    /// Every workload has a plan.
    Ok,
    /// A workload has no feasible plan, or the option has no price.
    Infeasible,
}

/// One workload on an option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Name of the workload.
    pub workload: String,
    /// Number of training runs.
    pub runs: f64,
    /// Fastest plan, as text.
    pub plan: String,
    /// Step time in seconds.
    pub step_time_s: f64,
    /// Terms of the step time in seconds.
    pub terms: BTreeMap<String, f64>,
    /// Model FLOP/s relative to the peak.
    pub mfu: f64,
    /// Tokens per second and GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Memory of the fullest rank in GiB.
    pub peak_mem_gib: f64,
    /// Days of one run.
    pub days: f64,
    /// Dollars of one run.
    pub cost_usd: f64,
    /// Goodput: share of the time that advances the model.
    pub effective: f64,
    /// Losses as shares of the time.
    pub losses: BTreeMap<String, f64>,
    /// Mean hours between interruptions.
    pub between_failures_h: f64,
}

/// Totals of all workloads with all their runs, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Days in total.
    pub days: f64,
    /// Days at the short end of the prediction interval.
    pub days_low: f64,
    /// Days at the long end of the prediction interval.
    pub days_high: f64,
    /// Dollars in total.
    pub cost_usd: f64,
    /// Dollars at the short end of the interval and the low price.
    pub cost_low_usd: f64,
    /// Dollars at the long end of the interval and the high price.
    pub cost_high_usd: f64,
    /// Dollars per GPU-hour.
    pub usd_per_gpu_hour: f64,
    /// GPU-hours to pay for.
    pub gpu_hours: f64,
    /// Energy at the wall in MWh.
    pub energy_mwh: f64,
    /// Emissions in kg CO₂.
    pub co2_kg: f64,
    /// Peak power at the wall in MW.
    pub peak_mw: f64,
    /// Share of the time that advances models.
    pub effective: f64,
}

/// Results of one option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the record format.
    pub schema: u32,
    /// Fingerprint of the sweep.
    pub sweep: String,
    /// Number of the option, from 0.
    pub option: u64,
    /// Label: values on the axes that vary.
    pub label: String,
    /// Values on all axes.
    pub choice: BTreeMap<String, String>,
    /// Feasibility of the option.
    pub status: OptionStatus,
    /// Reason why it is infeasible.
    pub reason: Option<String>,
    /// Name of the device.
    pub gpu: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Totals of all workloads.
    pub totals: Option<Totals>,
    /// Results of each workload.
    pub jobs: Vec<Job>,
}

/// Leading fields of a record, enough to check and order a results file.
#[derive(Debug, Deserialize)]
pub struct Head {
    /// Fingerprint of the sweep.
    pub sweep: String,
    /// Number of the option.
    pub option: u64,
}
