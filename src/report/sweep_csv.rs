//! Sweep as CSV: one line per option, with the same columns on every line.

use std::io::BufWriter;
use std::path::Path;

use crate::files::{Draft, Existing, FileMode};
use crate::sweep::choice::AXES;
use crate::sweep::record::{Job, Record, Totals};
use crate::sweep::{Sweep, SweepError, store};

/// Column names: option, axes of the sweep, totals, then each workload.
pub fn columns(sweep: &Sweep) -> Vec<String> {
    let mut columns: Vec<String> = ["option", "status", "reason"].map(str::to_owned).into();
    columns.extend(AXES.iter().map(|(name, _)| (*name).to_owned()));
    columns.extend(["gpu_name".to_owned(), "gpu_count".to_owned()]);
    columns.extend(totals(None).into_iter().map(|(name, _)| name.to_owned()));
    for task in &sweep.tasks {
        columns.extend(job(None).into_iter().map(|(name, _)| format!("{}.{name}", task.name)));
    }
    columns
}

fn totals(totals: Option<&Totals>) -> [(&'static str, String); 12] {
    let figure = |of: fn(&Totals) -> f64| totals.map_or_else(String::new, |totals| of(totals).to_string());
    [
        ("days", figure(|t| t.days)),
        ("days_low", figure(|t| t.days_low)),
        ("days_high", figure(|t| t.days_high)),
        ("cost_usd", figure(|t| t.cost_usd)),
        ("cost_low_usd", figure(|t| t.cost_low_usd)),
        ("cost_high_usd", figure(|t| t.cost_high_usd)),
        ("usd_per_gpu_hour", figure(|t| t.usd_per_gpu_hour)),
        ("gpu_hours", figure(|t| t.gpu_hours)),
        ("energy_mwh", figure(|t| t.energy_mwh)),
        ("co2_kg", figure(|t| t.co2_kg)),
        ("peak_mw", figure(|t| t.peak_mw)),
        ("effective", figure(|t| t.effective)),
    ]
}

fn job(job: Option<&Job>) -> [(&'static str, String); 8] {
    let figure = |of: fn(&Job) -> f64| job.map_or_else(String::new, |job| of(job).to_string());
    [
        ("plan", job.map_or_else(String::new, |job| job.plan.clone())),
        ("step_time_s", figure(|j| j.step_time_s)),
        ("mfu", figure(|j| j.mfu)),
        ("tokens_per_s_per_gpu", figure(|j| j.tokens_per_s_per_gpu)),
        ("peak_mem_gib", figure(|j| j.peak_mem_gib)),
        ("days", figure(|j| j.days)),
        ("cost_usd", figure(|j| j.cost_usd)),
        ("effective", figure(|j| j.effective)),
    ]
}

/// Cells of a record.
pub fn row(sweep: &Sweep, record: &Record) -> Vec<String> {
    let status = if record.totals.is_some() { "ok" } else { "infeasible" };
    let mut row = vec![record.option.to_string(), status.to_owned(), record.reason.clone().unwrap_or_default()];
    row.extend(AXES.iter().map(|(name, _)| record.choice.get(*name).cloned().unwrap_or_default()));
    row.extend([record.gpu.clone(), record.gpus.to_string()]);
    row.extend(totals(record.totals.as_ref()).into_iter().map(|(_, value)| value));
    for task in &sweep.tasks {
        let of = record.jobs.iter().find(|job| job.workload == task.name);
        row.extend(job(of).into_iter().map(|(_, value)| value));
    }
    row
}

/// CSV text of records in memory.
///
/// # Errors
///
/// A row cannot be written, which does not happen in memory.
pub fn text(sweep: &Sweep, records: &[Record]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns(sweep))?;
    for record in records {
        writer.write_record(row(sweep, record))?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Converts a finished results file to CSV, line by line.
///
/// # Errors
///
/// The input cannot be read, or the output is there or cannot be written.
pub fn write(sweep: &Sweep, results: &Path, to: &Path, existing: Existing) -> Result<(), SweepError> {
    let failed = |why: &dyn std::fmt::Display| SweepError::results(to, format!("cannot be written: {why}"));
    let draft = Draft::new(to, existing, FileMode::Data)?;
    let mut writer = csv::Writer::from_writer(BufWriter::new(draft));
    writer.write_record(columns(sweep)).map_err(|why| failed(&why))?;
    store::lines(results, &mut |bytes| {
        let record: Record = serde_json::from_slice(bytes).map_err(|why| SweepError::results(results, why))?;
        writer.write_record(row(sweep, &record)).map_err(|why| failed(&why))
    })?;
    let buffer = writer.into_inner().map_err(|why| failed(&why))?;
    Ok(buffer.into_inner().map_err(|why| failed(&why))?.publish()?)
}
