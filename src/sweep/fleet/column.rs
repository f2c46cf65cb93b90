//! Columns of the integer program: clusters of one option with the runs that fit.

use std::collections::BTreeSet;
use std::ops::Range;

use super::rack::racks;
use super::request::{FleetGoal, Offer, PurchaseRequest};
use crate::sweep::file::Sweep;
use crate::sweep::record::{OptionStatus, Record, Totals};
use meshwright_engine::money::PurchaseKind;
use meshwright_engine::units::Seconds;

/// Option that can do the work, with the quantities that the program needs.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Record of the option.
    pub record: &'a Record,
    /// Totals of the record.
    pub totals: &'a Totals,
    /// Racks of one cluster.
    pub racks: f64,
    /// Value of the axis `gpu` or `cluster`.
    pub gpu: &'a str,
    /// Least number of days to pay for.
    pub committed_days: f64,
}

impl Candidate<'_> {
    /// Dollars per day of one cluster, averaged over its jobs.
    pub fn daily(&self) -> f64 {
        self.record.jobs.iter().map(|job| job.cost_usd * job.runs).sum::<f64>()
            / self.record.jobs.iter().map(|job| job.days * job.runs).sum::<f64>()
    }

    /// Dollars of the given runs of each workload on one cluster.
    ///
    /// ```text
    /// Σ runs·dollars + price·N·(commitment − days of the runs)⁺
    /// ```
    pub fn cost(&self, runs: &[u32]) -> f64 {
        let jobs = self.record.jobs.iter().zip(runs);
        let (days, dollars) = jobs.fold((0.0, 0.0), |(days, dollars), (job, &runs)| {
            (days + job.days * f64::from(runs), dollars + job.cost_usd * f64::from(runs))
        });
        dollars + self.idle((self.committed_days - days).max(0.0))
    }

    /// Share of the dollars of a cluster that is `used` from day to day which falls within a `period` of days. The cost is spread
    /// evenly from the start to the end of the cluster, or of its commitment.
    pub fn paid_within(&self, period: &Range<f64>, used: &Range<f64>) -> f64 {
        let end = used.end.max(used.start + self.committed_days);
        (period.end.min(end) - period.start.max(used.start)).max(0.0) / (end - used.start)
    }

    /// Dollars of days that are paid for but not used.
    pub fn idle(&self, days: f64) -> f64 {
        self.totals.usd_per_gpu_hour * f64::from(self.record.gpus) * 24.0 * days
    }

    /// Whether it takes no more GPUs, power, racks, commitment, days and dollars than another for every workload.
    fn beats(&self, other: &Self) -> bool {
        let jobs = self.record.jobs.iter().zip(&other.record.jobs);
        self.record.gpus <= other.record.gpus
            && self.totals.peak_mw <= other.totals.peak_mw
            && self.racks <= other.racks
            && self.committed_days <= other.committed_days
            && jobs.clone().all(|(a, b)| a.days <= b.days && a.cost_usd <= b.cost_usd)
    }
}

/// Options of a sweep that can do the work.
pub struct Candidates<'a> {
    /// Options that no other dominates.
    pub undominated: Vec<Candidate<'a>>,
    /// Number of all options that can do the work.
    pub usable: usize,
}

/// Options that can do the work and are not dominated.
///
/// An option is dominated if another one under the same offers takes no more GPUs, power, racks, commitment, days and
/// dollars for every workload: it can replace the first in any fleet.
pub fn candidates<'a>(sweep: &Sweep, wanted: &PurchaseRequest, records: &'a [Record]) -> Candidates<'a> {
    let mut all: Vec<Candidate> = Vec::new();
    for record in records.iter().filter(|record| record.status == OptionStatus::Ok) {
        let Some(totals) = &record.totals else { continue };
        let gpu = record.choice.get("gpu").or_else(|| record.choice.get("cluster")).map_or("", String::as_str);
        let terms = record.choice.get("terms").and_then(|name| sweep.market.terms.get(name));
        let commitment =
            terms.filter(|terms| terms.kind == PurchaseKind::Rent).and_then(|terms| terms.commitment.as_ref());
        let committed_days = commitment.map_or(0.0, |time| time.value.as_days());
        all.push(Candidate { record, totals, racks: racks(sweep, wanted, record), gpu, committed_days });
    }
    let usable = all.len();
    // An option that finishes sooner is paid for sooner, so with budgets by period no option dominates another.
    if !wanted.period_budgets().is_empty() {
        return Candidates { undominated: all, usable };
    }
    let offers: Vec<Vec<usize>> = all.iter().map(|candidate| offers_of(wanted, candidate)).collect();
    let beaten: BTreeSet<usize> = (0..all.len())
        .filter(|&at| {
            (0..all.len()).any(|other| {
                other != at
                    && offers[other] == offers[at]
                    && (wanted.offer.is_empty() || !offers[at].is_empty())
                    && all[other].beats(&all[at])
                    && (!all[at].beats(&all[other]) || other < at)
            })
        })
        .collect();
    let left = all.into_iter().enumerate().filter(|(at, _)| !beaten.contains(at)).map(|(_, candidate)| candidate);
    Candidates { undominated: left.collect(), usable }
}

/// Indices of the offers that apply to a candidate.
pub fn offers_of(wanted: &PurchaseRequest, candidate: &Candidate) -> Vec<usize> {
    let terms = candidate.record.choice.get("terms").map(String::as_str);
    let holds =
        |offer: &Offer| offer.gpu == candidate.gpu && offer.terms.as_deref().is_none_or(|wanted| Some(wanted) == terms);
    (0..wanted.offer.len()).filter(|at| holds(&wanted.offer[*at])).collect()
}

/// One cluster of an option from a given day on, with its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Index of the candidate.
    pub candidate: usize,
    /// Index of the offer, if the file has offers.
    pub offer: Option<usize>,
    /// First day of the cluster.
    pub from: f64,
    /// Day on which the cluster is returned.
    pub to: f64,
    /// Number of runs of each workload; empty if the goal is tokens.
    pub runs: Vec<u32>,
}

/// Largest number of columns for one candidate and start; beyond it, columns are thinned out and the result is not proved
/// optimal.
const MOST_PATTERNS: usize = 600;

/// Starts and ends of periods within the horizon, in days: 0 first, the horizon last.
pub fn boundaries(wanted: &PurchaseRequest, horizon: f64) -> Vec<f64> {
    let mut days = vec![0.0, horizon];
    days.extend(wanted.period.iter().map(|period| period.until.as_days()));
    days.extend(wanted.offer.iter().flat_map(|offer| [offer.from, offer.until]).flatten().map(Seconds::as_days));
    days.retain(|day| *day >= 0.0 && *day <= horizon);
    days.sort_by(f64::total_cmp);
    days.dedup();
    days
}

/// Columns of the program.
pub struct ColumnList {
    /// Columns of all candidates.
    pub columns: Vec<Column>,
    /// Whether no column was left out: without that, the answer of the program is not proved optimal.
    pub is_complete: bool,
}

/// Days in which a cluster may be bought under one offer.
struct PurchaseWindow {
    /// Index of the offer; none where the request has no offers.
    offer: Option<usize>,
    days: Range<f64>,
}

/// Windows in which a candidate may be bought, within the horizon in days.
fn purchase_windows(wanted: &PurchaseRequest, candidate: &Candidate, horizon: f64) -> Vec<PurchaseWindow> {
    if wanted.offer.is_empty() {
        return vec![PurchaseWindow { offer: None, days: 0.0..horizon }];
    }
    let window = |index: usize| {
        let offer = &wanted.offer[index];
        let from = offer.from.map_or(0.0, Seconds::as_days);
        let until = offer.until.map_or(horizon, Seconds::as_days);
        PurchaseWindow { offer: Some(index), days: from..until.min(horizon) }
    };
    offers_of(wanted, candidate).into_iter().map(window).collect()
}

/// Columns of every candidate, in each window and from each start.
pub fn columns(wanted: &PurchaseRequest, candidates: &[Candidate], runs: &[u32], horizon: f64) -> ColumnList {
    let days = boundaries(wanted, horizon);
    let mut columns = Vec::new();
    let mut is_complete = true;
    for (at, candidate) in candidates.iter().enumerate() {
        for PurchaseWindow { offer, days: window } in purchase_windows(wanted, candidate, horizon) {
            for &from in days.iter().filter(|day| window.contains(day)) {
                match wanted.goal {
                    FleetGoal::Cost => {
                        let RunPatterns { patterns, is_complete: all } = patterns(candidate, runs, window.end - from);
                        is_complete &= all;
                        for runs in patterns {
                            let used: f64 = busy(candidate, &runs);
                            columns.push(Column { candidate: at, offer, from, to: from + used, runs });
                        }
                    }
                    FleetGoal::Tokens => {
                        // Working days are free within a column if it lies within one period that has a budget.
                        let budgets = wanted.period_budgets();
                        let end = budgets.iter().find(|period| period.start <= from && from < period.end);
                        let last = end.map_or(window.end, |period| window.end.min(period.end));
                        for &to in days.iter().filter(|day| **day > from && **day <= last) {
                            columns.push(Column { candidate: at, offer, from, to, runs: Vec::new() });
                        }
                    }
                }
            }
        }
    }
    ColumnList { columns, is_complete }
}

/// Days of the given runs, one after the other.
pub fn busy(candidate: &Candidate, runs: &[u32]) -> f64 {
    candidate.record.jobs.iter().zip(runs).map(|(job, runs)| job.days * f64::from(*runs)).sum()
}

/// Numbers of runs of each workload that one cluster may do.
struct RunPatterns {
    patterns: Vec<Vec<u32>>,
    /// Whether no pattern was left out.
    is_complete: bool,
}

/// Every pattern of at least one run that fits into `days`.
fn patterns(candidate: &Candidate, runs: &[u32], days: f64) -> RunPatterns {
    let most: Vec<u32> = candidate
        .record
        .jobs
        .iter()
        .zip(runs)
        .map(|(job, &runs)| runs.min(((days / job.days) * (1.0 + 1e-12)).floor() as u32))
        .collect();
    let mut steps: Vec<Vec<u32>> = most.iter().map(|&most| (0..=most).collect()).collect();
    let size = |steps: &[Vec<u32>]| steps.iter().fold(1_usize, |size, values| size.saturating_mul(values.len()));
    let is_complete = size(&steps) <= MOST_PATTERNS * 4;
    let mut growth = 1.1;
    while size(&steps) > MOST_PATTERNS * 4 {
        for (values, &most) in steps.iter_mut().zip(&most) {
            *values = ladder(most, growth);
        }
        growth *= 1.1;
    }
    let mut found = vec![Vec::new()];
    for values in &steps {
        found = found
            .into_iter()
            .flat_map(|start: Vec<u32>| values.iter().map(move |&value| [start.clone(), vec![value]].concat()))
            .collect();
    }
    let fits = |runs: &[u32]| busy(candidate, runs) <= days * (1.0 + 1e-12);
    found.retain(|runs| runs.iter().any(|&runs| runs > 0) && fits(runs));
    RunPatterns { patterns: found, is_complete }
}

/// 0, 1, 2, … in growing steps up to `most`.
fn ladder(most: u32, growth: f64) -> Vec<u32> {
    let mut values = vec![0];
    let mut next = 1.0_f64;
    while next < f64::from(most) {
        values.push(next as u32);
        next = (next * growth).max(next + 1.0);
    }
    values.push(most);
    values.dedup();
    values
}
