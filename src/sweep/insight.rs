//! Conclusions for a buyer: break-even prices of GPUs, and marginal effects of one step on an axis.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::file::Sweep;
use super::record::{OptionStatus, Record, Totals};

/// Price of a GPU-hour at which the cheapest options of two GPUs cost the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BreakEven {
    /// Purchase terms of both; empty if the sweep names none.
    pub terms: String,
    /// GPU whose break-even price this is.
    pub gpu: String,
    /// GPU that it is compared with.
    pub against: String,
    /// Break-even price; below it, `gpu` costs less.
    pub usd_per_gpu_hour: f64,
    /// Current price of `gpu`.
    pub now_usd_per_gpu_hour: f64,
    /// Whether `gpu` costs less at its current price.
    pub wins: bool,
    /// Whether the two cost intervals overlap, so that the order is uncertain.
    pub is_close: bool,
}

/// Name of a record in a comparison: the GPU or cluster of its choice.
fn kind(record: &Record) -> &str {
    record.choice.get("gpu").or_else(|| record.choice.get("cluster")).map_or(&record.gpu, |name| name)
}

/// Cheapest option of each GPU under each set of purchase terms.
fn cheapest(records: &[Record]) -> BTreeMap<&str, BTreeMap<&str, &Totals>> {
    let mut best: BTreeMap<&str, BTreeMap<&str, &Totals>> = BTreeMap::new();
    for record in records {
        if let (OptionStatus::Ok, Some(totals)) = (record.status, &record.totals) {
            let terms = record.choice.get("terms").map_or("", String::as_str);
            let known = best.entry(terms).or_default().entry(kind(record)).or_insert(totals);
            if totals.cost_usd < known.cost_usd {
                *known = totals;
            }
        }
    }
    best
}

/// Break-even prices of every pair of GPUs under the same terms, each at its cheapest option.
///
/// ```text
/// p* = (cost of the other − what is not GPU-hours)/GPU-hours
/// ```
pub fn break_even(records: &[Record]) -> Vec<BreakEven> {
    let mut points = Vec::new();
    for (terms, best) in cheapest(records) {
        for (gpu, own) in &best {
            for (against, other) in best.iter().filter(|(against, _)| *against != gpu) {
                let other_cost = own.cost_usd - own.usd_per_gpu_hour * own.gpu_hours;
                points.push(BreakEven {
                    terms: terms.to_owned(),
                    gpu: (*gpu).to_owned(),
                    against: (*against).to_owned(),
                    usd_per_gpu_hour: (other.cost_usd - other_cost) / own.gpu_hours,
                    now_usd_per_gpu_hour: own.usd_per_gpu_hour,
                    wins: own.cost_usd < other.cost_usd,
                    is_close: own.cost_low_usd < other.cost_high_usd && other.cost_low_usd < own.cost_high_usd,
                });
            }
        }
    }
    points
}

/// Effect of changing one axis from one value to the next, all else equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Marginal {
    /// Name of the axis.
    pub axis: String,
    /// Value before the step.
    pub from: String,
    /// Value after the step.
    pub to: String,
    /// Number of pairs of options that differ in nothing else.
    pub pairs: usize,
    /// Geometric mean of the change in days, as a share.
    pub days: f64,
    /// Smallest and largest change in days, as shares.
    pub days_range: (f64, f64),
    /// Geometric mean of the change in dollars, as a share.
    pub cost: f64,
    /// Geometric mean of the change in energy, as a share.
    pub energy: f64,
}

/// Marginal effects on every axis with more than one value, in the order of the sweep.
pub fn marginals(sweep: &Sweep, records: &[Record]) -> Vec<Marginal> {
    let of_axes: Vec<Vec<Marginal>> =
        sweep.varied().into_par_iter().map(|(axis, values)| of_axis(records, axis, &values)).collect();
    of_axes.concat()
}

/// Marginal effects of the steps from each value of an axis to the next.
fn of_axis(records: &[Record], axis: &str, values: &[String]) -> Vec<Marginal> {
    let mut marginals = Vec::new();
    let mut rows: BTreeMap<Vec<(&str, &str)>, BTreeMap<&str, &Totals>> = BTreeMap::new();
    for record in records {
        let (Some(totals), Some(value)) = (&record.totals, record.choice.get(axis)) else { continue };
        let others = record.choice.iter().filter(|(key, _)| *key != axis);
        let rest = others.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        rows.entry(rest).or_default().insert(value, totals);
    }
    for pair in values.windows(2) {
        let ratios: Vec<(f64, f64, f64)> = rows
            .values()
            .filter_map(|row| Some((row.get(pair[0].as_str())?, row.get(pair[1].as_str())?)))
            .map(|(a, b)| (b.days / a.days, b.cost_usd / a.cost_usd, b.energy_mwh / a.energy_mwh))
            .collect();
        if ratios.is_empty() {
            continue;
        }
        let mean = |of: fn(&(f64, f64, f64)) -> f64| {
            (ratios.iter().map(|ratio| of(ratio).ln()).sum::<f64>() / ratios.len() as f64).exp() - 1.0
        };
        let days = ratios.iter().map(|ratio| ratio.0 - 1.0);
        marginals.push(Marginal {
            axis: axis.to_owned(),
            from: pair[0].clone(),
            to: pair[1].clone(),
            pairs: ratios.len(),
            days: mean(|ratio| ratio.0),
            days_range: (days.clone().fold(f64::INFINITY, f64::min), days.fold(f64::NEG_INFINITY, f64::max)),
            cost: mean(|ratio| ratio.1),
            energy: mean(|ratio| ratio.2),
        });
    }
    marginals
}
