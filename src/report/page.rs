//! Sweep as a self-contained HTML page: the data and the script that draws it are in the file.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sweep::Sweep;
use crate::sweep::fleet::{Fleet, Line};
use crate::sweep::front;
use crate::sweep::insight::{BreakEven, Marginal};
use crate::sweep::record::{OptionStatus, Record};
use crate::sweep::tornado::Bar;
use meshwright_engine::cost::Term;
use meshwright_engine::units::count;

/// Template of the page.
const PAGE: &str = include_str!("page.html");
/// Marker that the data replace.
const MARK: &str = "/*DATA*/";

#[derive(Serialize)]
struct Workload<'a> {
    name: &'a str,
    model: &'a str,
    tokens: String,
    runs: f64,
}

#[derive(Serialize)]
struct Job<'a> {
    workload: &'a str,
    plan: &'a str,
    step: f64,
    mfu: f64,
    terms: &'a BTreeMap<String, f64>,
}

#[derive(Serialize)]
struct Shown<'a> {
    label: &'a str,
    gpu: &'a str,
    gpus: u32,
    days: f64,
    days_low: f64,
    days_high: f64,
    cost: f64,
    cost_low: f64,
    cost_high: f64,
    mwh: f64,
    peak_mw: f64,
    effective: f64,
    front: bool,
    energy_front: bool,
    jobs: Vec<Job<'a>>,
}

#[derive(Serialize)]
struct Not<'a> {
    label: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct Tornado<'a> {
    label: &'a str,
    cost: f64,
    bars: &'a [Bar],
}

#[derive(Serialize)]
struct Bought<'a> {
    summary: String,
    lines: &'a [Line],
}

#[derive(Serialize)]
struct Data<'a> {
    version: &'static str,
    name: &'a str,
    digest: &'a str,
    market: &'a str,
    date: &'a str,
    count: u64,
    none_count: u64,
    /// Terms of a step, each with its colour.
    terms: Vec<(Term, &'static str)>,
    workloads: Vec<Workload<'a>>,
    options: Vec<Shown<'a>>,
    none: Vec<Not<'a>>,
    break_even: &'a [BreakEven],
    marginals: &'a [Marginal],
    tornado: Option<Tornado<'a>>,
    fleet: Option<Bought<'a>>,
}

/// Results shown in addition to the records.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Number of options of the sweep, and of infeasible ones.
    pub counts: (u64, u64),
    /// Break-even prices of pairs of GPUs.
    pub break_even: &'a [BreakEven],
    /// Marginal effects of steps on axes.
    pub marginals: &'a [Marginal],
    /// Option of the tornado chart, as an index into the records, and its bars.
    pub tornado: Option<(usize, &'a [Bar])>,
    /// Recommended purchase.
    pub fleet: Option<&'a Fleet>,
}

/// Colour of a term in the charts: a variable of the page's style sheet.
const fn colour(term: Term) -> &'static str {
    match term {
        Term::Compute => "var(--c0)",
        Term::TpComm | Term::AmaxComm => "var(--c1)",
        Term::PpComm => "var(--c2)",
        Term::EpComm => "var(--c3)",
        Term::CpComm => "var(--c4)",
        Term::Recompute => "var(--c5)",
        Term::PipelineBubble => "var(--c6)",
        Term::Host => "var(--c7)",
        Term::Stragglers => "var(--bad)",
        Term::DpComm => "var(--good)",
        Term::Optimizer => "var(--soft)",
        Term::Offload => "var(--line)",
    }
}

/// Largest number of infeasible options listed.
const MOST_NONE: usize = 200;

/// Renders the page.
///
/// # Errors
///
/// A value has no JSON form.
pub fn render(sweep: &Sweep, records: &[Record], beside: &Beside) -> serde_json::Result<String> {
    let on_front = front::of(records, |totals| (totals.days, totals.cost_usd));
    let on_energy_front = front::of(records, |totals| (totals.days, totals.energy_mwh));
    let mut options: Vec<Shown> = records
        .iter()
        .enumerate()
        .filter_map(|(at, record)| shown(record, on_front.contains(&at), on_energy_front.contains(&at)))
        .collect();
    options.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.days.total_cmp(&b.days)));
    let none = records.iter().filter(|record| record.status == OptionStatus::Infeasible).take(MOST_NONE);
    let data = Data {
        version: env!("CARGO_PKG_VERSION"),
        name: &sweep.name,
        digest: &sweep.digest,
        market: &sweep.market.name,
        date: &sweep.market.date,
        count: beside.counts.0,
        none_count: beside.counts.1,
        terms: Term::ALL.iter().map(|term| (*term, colour(*term))).collect(),
        workloads: sweep
            .tasks
            .iter()
            .map(|task| Workload {
                name: &task.name,
                model: &task.model.name,
                tokens: count(task.tokens.get()),
                runs: task.runs,
            })
            .collect(),
        options,
        none: none
            .map(|record| Not { label: &record.label, reason: record.reason.as_deref().unwrap_or_default() })
            .collect(),
        break_even: beside.break_even,
        marginals: beside.marginals,
        tornado: beside.tornado.and_then(|(at, bars)| {
            let record = &records[at];
            let cost = record.totals.as_ref()?.cost_usd;
            Some(Tornado { label: &record.label, cost, bars })
        }),
        fleet: beside.fleet.map(|fleet| Bought { summary: super::sweep::bought(fleet), lines: &fleet.lines }),
    };
    Ok(PAGE.replacen(MARK, &super::markup::script(&data)?, 1))
}

fn shown(record: &Record, front: bool, energy_front: bool) -> Option<Shown<'_>> {
    let totals = record.totals.as_ref()?;
    Some(Shown {
        label: &record.label,
        gpu: &record.gpu,
        gpus: record.gpus,
        days: totals.days,
        days_low: totals.days_low,
        days_high: totals.days_high,
        cost: totals.cost_usd,
        cost_low: totals.cost_low_usd,
        cost_high: totals.cost_high_usd,
        mwh: totals.energy_mwh,
        peak_mw: totals.peak_mw,
        effective: totals.effective,
        front,
        energy_front,
        jobs: record
            .jobs
            .iter()
            .map(|job| Job {
                workload: &job.workload,
                plan: &job.plan,
                step: job.step_time_s,
                mfu: job.mfu,
                terms: &job.terms,
            })
            .collect(),
    })
}
