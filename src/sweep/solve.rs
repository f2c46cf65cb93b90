//! Solution of one machine: a search for each workload, then a bill for each of its prices.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::choice::Choice;
use super::error::SweepError;
use super::file::Sweep;
use super::problem::problem;
use super::record::{Job, OptionStatus, Record, SCHEMA, Totals};
use super::task::{Task, mode};
use crate::sweep::machine;
use meshwright_engine::cost::{Evaluation, Figures};
use meshwright_engine::goodput::Goodput;
use meshwright_engine::money::{self, Bill, Market, Prices, PurchaseKind, Rate, Terms};
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Sourced;
use meshwright_engine::units::{Seconds, Usd};
use meshwright_frameworks::graphs::fastest_launchable;
use meshwright_planner::advice::Prudence;
use meshwright_planner::catalog::SET_SOURCE;
use meshwright_planner::confidence::{Confidence, Interval};
use meshwright_planner::search::Control;

/// Workload with its best plan on one machine.
#[derive(Clone, Debug)]
pub struct Solved {
    /// Problem of the workload on the machine.
    pub problem: Problem,
    /// Evaluation of the fastest plan.
    pub evaluation: Evaluation,
}

/// Best plan of every workload on a machine.
///
/// # Errors
///
/// The reason why a workload has no plan, as text.
pub fn machine(sweep: &Sweep, choice: &Choice) -> Result<Vec<Solved>, String> {
    machine_within(sweep, choice, &|_, _| ControlFlow::Continue(()))
}

/// Best plans of all workloads on a machine, as far as they are found until `control` breaks.
pub(super) fn machine_within(sweep: &Sweep, choice: &Choice, control: &Control) -> Result<Vec<Solved>, String> {
    sweep.tasks.iter().map(|task| task_on(sweep, task, choice, control)).collect()
}

/// Best plan of a workload on a machine.
fn task_on(sweep: &Sweep, task: &Task, choice: &Choice, control: &Control) -> Result<Solved, String> {
    let (problem, has_open_graphs) = problem(sweep, task, choice).map_err(|error| error.to_string())?;
    let (problem, ranking) = fastest_launchable(problem, has_open_graphs, Prudence::default(), control);
    if let Some(evaluation) = ranking.evaluations.first().cloned() {
        return Ok(Solved { problem, evaluation });
    }
    let rules: Vec<&str> = ranking.rejections.iter().map(|rule| rule.rule).collect();
    Err(ranking.nearest.map_or_else(
        || format!("{} has no legal plan: {}", task.name, rules.join(", ")),
        |miss| format!("no plan of {} fits; nearest miss: {}", task.name, miss.reason),
    ))
}

/// Market of an option: the sweep's, with the changes of the option's axes.
///
/// # Errors
///
/// A value does not fit its axis.
pub fn market(sweep: &Sweep, choice: &Choice) -> Result<(Market, Terms), SweepError> {
    let mut market = sweep.market.clone();
    let named = |key: &str, why: &dyn std::fmt::Display| SweepError::value(key, why);
    let set = set_source();
    if let Some(text) = choice.get("storage") {
        market.conditions.checkpoints.storage = Some(text.parse().map_err(|why| named("storage", &why))?);
    }
    if let Some(text) = choice.get("checkpoints") {
        market.conditions.checkpoints.mode = mode(text).map_err(|why| named("checkpoints", &why))?;
    }
    if let Some(text) = choice.get("spares") {
        market.conditions.spares = Some(text.parse().map_err(|why| named("spares", &why))?);
    }
    if let Some(text) = choice.get("electricity") {
        market.site.electricity =
            Sourced { value: text.parse().map_err(|why| named("electricity", &why))?, source: set.clone() };
    }
    if let Some(text) = choice.get("pue") {
        market.site.pue = Sourced { value: machine::ratio(text).map_err(|why| named("pue", &why))?, source: set };
    }
    for (key, price) in [("nic_price", &mut market.own.nic), ("port_price", &mut market.own.port)] {
        if let Some(text) = choice.get(key) {
            let value: Usd = text.parse().map_err(|why| named(key, &why))?;
            *price = Some(Sourced { value, source: set_source() });
        }
    }
    let name = choice.get("terms").unwrap_or_else(|| usual_terms(&sweep.market));
    let terms = market.terms_named(name).map_err(|why| named("terms", &why))?.clone();
    Ok((market, terms))
}

/// Source of values that the sweep file sets.
fn set_source() -> String {
    SET_SOURCE.to_owned()
}

/// Default purchase terms.
const USUAL_TERMS: &str = "contract";

/// Name of the purchase terms of options that name none.
pub(super) fn usual_terms(market: &Market) -> &str {
    let named = market.terms.keys().find(|name| name.as_str() == USUAL_TERMS);
    named.or(market.terms.keys().next()).map_or("", String::as_str)
}

/// Price of a GPU-hour of an option.
fn rate(market: &Market, terms: &Terms, choice: &Choice, problem: &Problem) -> Result<Rate, String> {
    let price = choice.get("price").map(str::parse).transpose().map_err(|why| format!("price: {why}"))?;
    let mut cluster = problem.cluster().clone();
    if let (Some(text), Some(price)) = (choice.get("buy"), cluster.gpu.price.as_mut()) {
        let value: Usd = text.parse().map_err(|why| format!("buy: {why}"))?;
        price.buy = Some(Sourced { value, source: set_source() });
    }
    money::rate(market, terms, &cluster, price).map_err(|why| why.to_string())
}

/// Record of an option on a solved machine.
pub fn record(sweep: &Sweep, option: u64, choice: &Choice, solved: &Result<Vec<Solved>, String>) -> Record {
    let cluster = machine::cluster(choice, &sweep.sets).ok();
    let mut record = Record {
        schema: SCHEMA,
        sweep: sweep.digest.clone(),
        option,
        label: sweep.label(choice),
        choice: choice.0.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        status: OptionStatus::Infeasible,
        reason: None,
        gpu: cluster.as_ref().map_or_else(String::new, |cluster| cluster.gpu.name.clone()),
        gpus: cluster.as_ref().map_or(0, |cluster| cluster.gpus),
        totals: None,
        jobs: Vec::new(),
    };
    match solved {
        Err(why) => record.reason = Some(why.clone()),
        Ok(solved) => match priced(sweep, choice, solved) {
            Err(why) => record.reason = Some(why),
            Ok((totals, jobs)) => {
                record.status = OptionStatus::Ok;
                record.totals = Some(totals);
                record.jobs = jobs;
            }
        },
    }
    record
}

/// Sums over the runs of all workloads.
#[derive(Default)]
struct Sums {
    time: Seconds,
    /// Time at the short end of the prediction intervals.
    soonest: Seconds,
    /// Time at the long end of the prediction intervals.
    latest: Seconds,
    /// Seconds that advance models.
    useful: f64,
    gpu_hours: f64,
    /// Dollars for electricity and storage, beside the GPU-hours.
    beside: Usd,
    energy_mwh: f64,
    co2_kg: f64,
}

impl Sums {
    /// Adds `runs` runs, each of which costs `bill`; `interval` = prediction interval of a step, relative to its prediction.
    fn add(&mut self, runs: f64, bill: &Bill, effective: f64, interval: Interval<f64>) {
        self.time += bill.time * runs;
        self.soonest += bill.time * (runs * interval.low);
        self.latest += bill.time * (runs * interval.high);
        self.useful += bill.time.get() * runs * effective;
        self.gpu_hours += bill.gpu_hours * runs;
        self.beside += (bill.electricity + bill.storage) * runs;
        self.energy_mwh += bill.energy.as_mwh() * runs;
        self.co2_kg += bill.carbon_kg * runs;
    }
}

/// Record of one workload.
fn job(task: &Task, evaluation: &Evaluation, figures: &Figures, bill: &Bill, goodput: &Goodput) -> Job {
    let named = |parts: &[(&'static str, f64)]| -> BTreeMap<String, f64> {
        parts.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    };
    Job {
        workload: task.name.clone(),
        runs: task.runs,
        plan: evaluation.plan.to_string(),
        step_time_s: figures.step.get(),
        terms: named(&evaluation.step.terms().map(|(term, time)| (term.key(), time.get()))),
        mfu: figures.mfu,
        tokens_per_s_per_gpu: figures.tokens_per_second,
        peak_mem_gib: figures.peak.as_gib(),
        days: bill.time.as_days(),
        cost_usd: bill.total.get(),
        effective: goodput.effective,
        losses: named(&goodput.losses.parts()),
        between_failures_h: goodput.between_failures.as_hours(),
    }
}

/// Bills of all workloads, and their totals.
///
/// ```text
/// days = Σ runs·days      dollars = Σ runs·bill, and at least the commitment
/// ```
///
/// # Errors
///
/// The reason why there is no bill, as text.
pub fn priced(sweep: &Sweep, choice: &Choice, solved: &[Solved]) -> Result<(Totals, Vec<Job>), String> {
    let (market, terms) = market(sweep, choice).map_err(|error| error.to_string())?;
    let Some(first) = solved.first() else { return Err("there is no workload".into()) };
    let cluster = first.problem.cluster();
    let rate = rate(&market, &terms, choice, &first.problem)?;
    let prices = Prices { market: &market, terms: &terms, rate };
    let conditions = market.conditions(&terms);
    let (mut jobs, mut sums) = (Vec::new(), Sums::default());
    for (task, Solved { problem, evaluation }) in sweep.tasks.iter().zip(solved) {
        let goodput = conditions.goodput(problem);
        if goodput.effective <= 0.0 {
            return Err(format!("{} makes no progress: interrupted every {}", task.name, goodput.between_failures));
        }
        let bill = money::bill(problem, prices, &evaluation.step, &goodput, task.tokens);
        let figures = Figures::new(problem, evaluation);
        let relative = Confidence::new(problem, evaluation).step.map(|time| time / figures.step);
        sums.add(task.runs, &bill, goodput.effective, relative);
        jobs.push(job(task, evaluation, &figures, &bill, &goodput));
    }
    let Sums { time, soonest, latest, useful, gpu_hours, beside, energy_mwh, co2_kg } = sums;
    let commitment = terms
        .commitment
        .as_ref()
        .filter(|_| terms.kind == PurchaseKind::Rent)
        .map_or(0.0, |least| f64::from(cluster.gpus) * least.value.as_hours());
    let (low, high) = (soonest / time, latest / time);
    let cost = |price: f64, stretch: f64| price * (gpu_hours * stretch).max(commitment) + beside.get() * stretch;
    let totals = Totals {
        days: time.as_days(),
        days_low: soonest.as_days(),
        days_high: latest.as_days(),
        cost_usd: cost(rate.usual.get(), 1.0),
        cost_low_usd: cost(rate.low.get(), low),
        cost_high_usd: cost(rate.high.get(), high),
        usd_per_gpu_hour: rate.usual.get(),
        gpu_hours: gpu_hours.max(commitment),
        energy_mwh,
        co2_kg,
        peak_mw: market.site.peak_power(cluster).as_megawatts(),
        effective: useful / time.get(),
    };
    Ok((totals, jobs))
}
