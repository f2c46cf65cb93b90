//! Bill of a job: days, dollars, energy, and losses of time.

use super::Sheet;
use meshwright_engine::goodput::{Goodput, Losses};
use meshwright_engine::money::Bill;
use meshwright_engine::units::{Seconds, count, percent, significant};

/// Table of the bills of the ranked plans.
pub fn sheet(title: String, bills: &[(Goodput, Bill)]) -> Sheet {
    let columns = ["#", "days", "effective", "GPU-hours", "cost", "low price", "high price", "MWh", "t CO2"];
    let mut sheet = Sheet::new(title, &columns);
    for (at, (goodput, bill)) in bills.iter().enumerate() {
        sheet.push([
            (at + 1).to_string(),
            significant(bill.time.as_days()),
            percent(goodput.effective),
            count(bill.gpu_hours.round()),
            bill.total.to_string(),
            bill.low.to_string(),
            bill.high.to_string(),
            significant(bill.energy.as_mwh()),
            significant(bill.carbon_kg / 1000.0),
        ]);
    }
    sheet
}

/// Smallest share of the time that is named as a loss: less prints as 0.0 %.
const SMALLEST_LOSS: f64 = 5e-4;

/// Losses of time in words, largest first.
fn loss_list(goodput: &Goodput) -> String {
    let mut parts: Vec<_> = goodput.losses.parts().into_iter().filter(|(_, share)| *share >= SMALLEST_LOSS).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts.iter().map(|(name, share)| format!("{name} {}", percent(*share))).collect::<Vec<_>>().join(", ")
}

/// Time between two events in words: in whole minutes from ten minutes to an hour.
fn interval(time: Seconds) -> String {
    match time.get() {
        seconds if (600.0..3600.0).contains(&seconds) => format!("{:.0} min", seconds / 60.0),
        _ => time.to_string(),
    }
}

/// Sentence about the interruptions of a job.
pub fn interruptions(goodput: &Goodput) -> String {
    format!(
        "Interrupted every {}, restarted in {}; a checkpoint every {} pauses training for {}; {} spare nodes. {} of \
         the time is lost: {}.",
        interval(goodput.between_failures),
        goodput.restart,
        interval(goodput.interval),
        goodput.checkpoint.pause,
        goodput.spares,
        percent(1.0 - goodput.effective),
        loss_list(goodput)
    )
}

/// JSON form of a bill.
#[derive(Debug, serde::Serialize)]
pub struct BillDocument {
    days: f64,
    effective: f64,
    gpu_hours: f64,
    cost_usd: f64,
    cost_low_usd: f64,
    cost_high_usd: f64,
    electricity_usd: f64,
    storage_usd: f64,
    energy_mwh: f64,
    co2_kg: f64,
    between_failures_h: f64,
    checkpoint_interval_s: f64,
    checkpoint_pause_s: f64,
    restart_s: f64,
    spare_nodes: u32,
    losses: Losses,
}

impl BillDocument {
    /// JSON form of a goodput and its bill.
    pub fn new(goodput: &Goodput, bill: &Bill) -> Self {
        let Goodput { between_failures, interval, checkpoint, restart, spares, effective, losses } = *goodput;
        let Bill { time, gpu_hours, gpus: _, electricity, storage, total, low, high, energy, carbon_kg } = *bill;
        Self {
            days: time.as_days(),
            effective,
            gpu_hours,
            cost_usd: total.get(),
            cost_low_usd: low.get(),
            cost_high_usd: high.get(),
            electricity_usd: electricity.get(),
            storage_usd: storage.get(),
            energy_mwh: energy.as_mwh(),
            co2_kg: carbon_kg,
            between_failures_h: between_failures.as_hours(),
            checkpoint_interval_s: interval.get(),
            checkpoint_pause_s: checkpoint.pause.get(),
            restart_s: restart.get(),
            spare_nodes: spares,
            losses,
        }
    }
}
