//! Report of a sweep: the front of dollars and days, steps of its options, sensitivities of the cost, recommended purchase.

use std::collections::BTreeSet;

use super::bars::{CostSpread, StepBar, steps, tornado};
use super::colour;
use super::element::HtmlElement;
use super::page::{HtmlReport, LargeFigure, figure, figures, folded, paragraph, table};
use super::scatter::{Dot, ScatterFrame, scatter};
use crate::report::sweep as sheets;
use crate::sweep::Sweep;
use crate::sweep::fleet::Fleet;
use crate::sweep::front;
use crate::sweep::insight::{BreakEven, Marginal};
use crate::sweep::record::{Record, Totals};
use crate::sweep::tornado::Bar;
use meshwright_engine::cost::Term;
use meshwright_engine::units::{Seconds, Usd, count, percent, significant, thousands};

/// Most options in the table, and infeasible ones.
const MOST_OPTIONS: usize = 200;
/// Most options whose steps are drawn.
const MOST_STEPS: usize = 16;

/// Results of a sweep that its report shows in addition to the records.
#[derive(Clone, Copy, Debug)]
pub struct SweepResults<'a> {
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

/// One quantity of an option against its days.
struct Measure {
    heading: &'static str,
    name: &'static str,
    value: fn(&Totals) -> f64,
    text: fn(f64) -> String,
}

const COST: Measure =
    Measure { heading: "Cost against time", name: "cost", value: |totals| totals.cost_usd, text: usd };
const ENERGY: Measure =
    Measure { heading: "Energy against time", name: "energy", value: |totals| totals.energy_mwh, text: mwh };

fn usd(dollars: f64) -> String {
    Usd::new(dollars).to_string()
}

fn mwh(energy: f64) -> String {
    format!("{} MWh", significant(energy))
}

fn days(days: f64) -> String {
    format!("{} d", significant(days))
}

/// Text of the report.
pub fn sweep_report(sweep: &Sweep, records: &[Record], results: &SweepResults) -> String {
    let mut feasible: Vec<(usize, &Totals)> =
        records.iter().enumerate().filter_map(|(at, record)| Some((at, record.totals.as_ref()?))).collect();
    feasible.sort_by(|a, b| a.1.cost_usd.total_cmp(&b.1.cost_usd).then(a.1.days.total_cmp(&b.1.days)));
    let mut report = HtmlReport::new(sweep.name.clone(), vec![lead(sweep, results)]);
    report.answer("The best of each", best(records, &feasible));
    if feasible.is_empty() {
        report.section(COST.heading, [paragraph("No option is feasible.")]);
    } else {
        let colours = gpu_colours(records);
        for measure in [COST, ENERGY] {
            report.section(measure.heading, [against_days(records, &feasible, &measure, &colours)]);
        }
    }
    for (at, task) in sweep.tasks.iter().enumerate() {
        let bars = step_bars(records, &feasible, at);
        if !bars.is_empty() {
            let name = if sweep.tasks.len() > 1 {
                format!("Where a step goes: {}", task.name)
            } else {
                "Where a step goes".into()
            };
            report
                .section(&name, [figure(steps(&bars), "Step time and MFU of the front and of the cheapest options.")]);
        }
    }
    if let Some((record, totals, bars)) = moved(records, results) {
        let caption = format!("{}: {}. The plan stays; only its bill changes.", record.label, usd(totals.cost_usd));
        report.section("What moves the cost", [figure(tornado(totals.cost_usd, &bars, usd), &caption)]);
    }
    if let (Some(fleet), Some(wanted)) = (results.fleet, &sweep.wanted) {
        let sheet = sheets::fleet(fleet, wanted.goal);
        report.section(&sheet.title, [paragraph(&sheets::bought(fleet)), table(&sheet)]);
    }
    report.sheet(&sheets::break_even(results.break_even));
    report.sheet(&sheets::marginals(results.marginals));
    options(&mut report, records, &feasible);
    let none = sheets::infeasible(records, MOST_OPTIONS);
    if !none.rows.is_empty() {
        report.section(&none.title, [folded(&format!("{} of them, with reasons", none.rows.len()), table(&none))]);
    }
    report.text()
}

/// First line of the report: the workloads, the options, and the source of the prices.
fn lead(sweep: &Sweep, results: &SweepResults) -> String {
    let tasks = sweep.tasks.iter().map(|task| {
        let runs =
            if (task.runs - 1.0).abs() < f64::EPSILON { String::new() } else { format!(", {} times", task.runs) };
        format!("{} on {} tokens{runs}", task.model.name, count(task.tokens.get()))
    });
    let market = &sweep.market;
    let (all, none) = results.counts;
    format!(
        "{} · {} options, {} infeasible · prices: {} ({}) · sweep {}",
        tasks.collect::<Vec<_>>().join("; "),
        thousands(all),
        thousands(none),
        market.name,
        market.date,
        sweep.digest
    )
}

/// Cheapest option, soonest, and the one of least energy.
fn best(records: &[Record], feasible: &[(usize, &Totals)]) -> Option<HtmlElement> {
    let least_by = |value: fn(&Totals) -> f64| feasible.iter().min_by(|a, b| value(a.1).total_cmp(&value(b.1)));
    let shown = |name, value: fn(&Totals) -> f64, text: fn(&Totals) -> String| {
        least_by(value).map(|(at, totals)| LargeFigure { name, value: text(totals), note: records[*at].label.clone() })
    };
    let both = |totals: &Totals| format!("{}, {}", usd(totals.cost_usd), days(totals.days));
    let entries = [
        shown("cheapest", |totals| totals.cost_usd, both),
        shown("soonest", |totals| totals.days, |totals| format!("{}, {}", days(totals.days), usd(totals.cost_usd))),
        shown(
            "least energy",
            |totals| totals.energy_mwh,
            |totals| format!("{}, {}", mwh(totals.energy_mwh), days(totals.days)),
        ),
    ];
    let entries: Vec<_> = entries.into_iter().flatten().collect();
    (!entries.is_empty()).then(|| figures(&entries))
}

/// Colours of GPUs in the order of the records.
fn gpu_colours(records: &[Record]) -> Vec<(String, &'static str)> {
    let mut names: Vec<&str> = Vec::new();
    for record in records.iter().filter(|record| record.totals.is_some()) {
        if !names.contains(&record.gpu.as_str()) {
            names.push(&record.gpu);
        }
    }
    names.into_iter().zip(colour::SERIES.into_iter().cycle()).map(|(name, fill)| (name.to_owned(), fill)).collect()
}

/// Scatter of a quantity against days, with its front, in the colours of the GPUs.
fn against_days(
    records: &[Record],
    feasible: &[(usize, &Totals)],
    measure: &Measure,
    colours: &[(String, &'static str)],
) -> HtmlElement {
    let Measure { name, value, text, .. } = *measure;
    let on_front = front::of_records(records, |totals| (totals.days, value(totals)));
    let most = feasible.iter().map(|(at, _)| records[*at].gpus).max().unwrap_or(1);
    let mut dots: Vec<Dot> = feasible
        .iter()
        .map(|(at, totals)| {
            let record = &records[*at];
            let is_strong = on_front.contains(at);
            let fill = colours.iter().find(|(gpu, _)| *gpu == record.gpu).map_or(colour::AFTER, |(_, fill)| fill);
            Dot {
                at: (totals.days, value(totals)),
                radius: 4.0 + 6.0 * (f64::from(record.gpus) / f64::from(most)).sqrt(),
                fill,
                is_strong,
                title: described(record, totals),
                name: if is_strong { record.label.clone() } else { String::new() },
            }
        })
        .collect();
    dots.sort_by_key(|dot| dot.is_strong);
    let mut steps: Vec<(f64, f64)> = dots.iter().filter(|dot| dot.is_strong).map(|dot| dot.at).collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let frame = ScatterFrame {
        across: "days until all tokens are trained".into(),
        up: name.into(),
        across_text: days,
        up_text: text,
        height: 380.0,
        band: None,
        front: steps,
        legend: colours.to_vec(),
    };
    let caption = format!(
        "Dashed: no option has both less {name} and fewer days. Larger points have more GPUs; hover over one for its figures."
    );
    figure(scatter(&frame, &dots).svg, &caption)
}

/// Figures of an option with their intervals, and its plans.
fn described(record: &Record, totals: &Totals) -> String {
    let jobs = record.jobs.iter().map(|job| {
        format!("{}: {} a step, {} MFU, {}", job.workload, Seconds::new(job.step_time_s), percent(job.mfu), job.plan)
    });
    format!(
        "{}: {} × {}; {} ({} to {}), {} ({} to {}), {}, {} effective; {}",
        record.label,
        thousands(u64::from(record.gpus)),
        record.gpu,
        usd(totals.cost_usd),
        usd(totals.cost_low_usd),
        usd(totals.cost_high_usd),
        days(totals.days),
        significant(totals.days_low),
        days(totals.days_high),
        mwh(totals.energy_mwh),
        percent(totals.effective),
        jobs.collect::<Vec<_>>().join("; ")
    )
}

/// Steps of one workload: of the front, then of the cheapest options, each plan once.
fn step_bars(records: &[Record], feasible: &[(usize, &Totals)], workload: usize) -> Vec<StepBar> {
    let on_front = front::of_records(records, |totals| (totals.days, totals.cost_usd));
    let (first, rest): (Vec<usize>, Vec<usize>) =
        feasible.iter().map(|(at, _)| *at).partition(|at| on_front.contains(at));
    let mut seen: BTreeSet<(String, u32, String)> = BTreeSet::new();
    let jobs = first.into_iter().chain(rest).filter_map(|at| Some((&records[at], records[at].jobs.get(workload)?)));
    let jobs = jobs.filter(|(record, job)| seen.insert((record.gpu.clone(), record.gpus, job.plan.clone())));
    let bar = |(record, job): (&Record, &crate::sweep::record::Job)| StepBar {
        name: record.label.clone(),
        title: format!("{}: {}", record.label, job.plan),
        terms: Term::ALL.iter().map(|term| (*term, job.terms.get(term.key()).copied().unwrap_or_default())).collect(),
        note: format!("{} · {}", Seconds::new(job.step_time_s), percent(job.mfu)),
    };
    jobs.take(MOST_STEPS).map(bar).collect()
}

/// Option whose cost is varied, with its bars.
fn moved<'a>(records: &'a [Record], results: &SweepResults) -> Option<(&'a Record, &'a Totals, Vec<CostSpread>)> {
    let (at, bars) = results.tornado.filter(|(_, bars)| !bars.is_empty())?;
    let spread = |bar: &Bar| CostSpread {
        what: bar.what.clone(),
        low: (bar.low.clone(), bar.low_usd),
        high: (bar.high.clone(), bar.high_usd),
    };
    Some((&records[at], records[at].totals.as_ref()?, bars.iter().map(spread).collect()))
}

/// Section of all options that are known, cheapest first.
fn options(report: &mut HtmlReport, records: &[Record], feasible: &[(usize, &Totals)]) {
    let order: Vec<usize> = feasible.iter().map(|(at, _)| *at).take(MOST_OPTIONS).collect();
    let on_front = front::of_records(records, |totals| (totals.days, totals.cost_usd));
    let sheet = sheets::options("Options, cheapest first".into(), records, &order, &on_front);
    let more = feasible.len() - order.len();
    let note = (more > 0).then(|| paragraph(&format!("{} more are in results.csv.", thousands(more as u64))));
    if !sheet.rows.is_empty() {
        report.section(&sheet.title, [table(&sheet)].into_iter().chain(note));
    }
}
