//! Sheets of a sweep: options, fronts, break-even prices, marginal effects, purchase.

use itertools::Itertools;

use super::Sheet;
use crate::sweep::UnpricedNetworks;
use crate::sweep::fleet::{Fleet, FleetGoal, FleetProof};
use crate::sweep::insight::{BreakEven, Marginal};
use crate::sweep::record::{OptionStatus, Record};
use meshwright_engine::units::{Usd, count, percent, significant};

/// Dollar amount as text.
fn usd(dollars: f64) -> String {
    Usd::new(dollars).to_string()
}

/// Percent change with its sign.
fn change(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// Table of options in the given order, with those on the front marked.
pub fn options(title: String, records: &[Record], order: &[usize], on_front: &[usize]) -> Sheet {
    let columns = ["option", "front", "cost", "days", "MWh", "effective", "best plan"];
    let mut sheet = Sheet::new(title, &columns);
    for &at in order {
        let record = &records[at];
        let Some(totals) = &record.totals else { continue };
        let plans: Vec<String> = record.jobs.iter().map(|job| degrees(&job.plan)).collect();
        sheet.push([
            record.label.clone(),
            if on_front.contains(&at) { "*".to_owned() } else { String::new() },
            usd(totals.cost_usd),
            significant(totals.days),
            significant(totals.energy_mwh),
            percent(totals.effective),
            plans.join("; "),
        ]);
    }
    sheet
}

/// One option in a sentence: dollars and days with their intervals, and its plans.
pub fn choice(record: &Record) -> String {
    let Some(totals) = &record.totals else { return record.label.clone() };
    let plans: Vec<String> = record.jobs.iter().map(|job| degrees(&job.plan)).collect();
    format!(
        "{}: {} ({} to {}), {} days ({} to {}); {}",
        record.label,
        usd(totals.cost_usd),
        usd(totals.cost_low_usd),
        usd(totals.cost_high_usd),
        significant(totals.days),
        significant(totals.days_low),
        significant(totals.days_high),
        plans.join("; ")
    )
}

/// Degrees of a plan that are above 1: its text up to the first word that is not a degree.
fn degrees(plan: &str) -> String {
    let is_degree = |word: &&str| {
        let (key, value) = word.split_once('=').unwrap_or_default();
        !key.is_empty() && value.chars().all(|c| c.is_ascii_digit())
    };
    plan.split(' ').take_while(is_degree).filter(|word| !word.ends_with("=1")).join(" ")
}

/// Table of infeasible options with their reasons.
pub fn infeasible(records: &[Record], most: usize) -> Sheet {
    let mut sheet = Sheet::new("Infeasible options", &["option", "why"]);
    for record in records.iter().filter(|record| record.status == OptionStatus::Infeasible).take(most) {
        sheet.push([record.label.clone(), record.reason.clone().unwrap_or_default()]);
    }
    sheet
}

/// Sentences on networks that the options compare without prices of their own.
pub fn networks(unpriced: UnpricedNetworks, share: f64) -> Vec<String> {
    let UnpricedNetworks { rented, owned } = unpriced;
    let rent = rented.then(|| {
        "networks are compared at one rent: give each an [[options]] table with the `price` of its GPU-hour".to_owned()
    });
    let price = owned.then(|| {
        format!(
            "networks are compared at one price, {} of the machines: give each rate of NICs an [[options]] table with its \
             `nic_price` and `port_price`",
            percent(share)
        )
    });
    rent.into_iter().chain(price).collect()
}

/// Table of break-even prices.
pub fn break_even(points: &[BreakEven]) -> Sheet {
    let title = "Break-even prices of a GPU-hour, each GPU at its cheapest option";
    let mut sheet = Sheet::new(title, &["terms", "GPU", "beats", "below", "now", ""]);
    for point in points {
        let below = point.usd_per_gpu_hour;
        sheet.push([
            point.terms.clone(),
            point.gpu.clone(),
            point.against.clone(),
            if below > 0.0 { format!("${below:.2}/h") } else { "at no price".to_owned() },
            format!("${:.2}/h", point.now_usd_per_gpu_hour),
            match (point.wins, point.is_close) {
                (true, false) => "cheaper now".to_owned(),
                (true, true) => "cheaper now, within the error".to_owned(),
                (false, false) => "more expensive now".to_owned(),
                (false, true) => "more expensive now, within the error".to_owned(),
            },
        ]);
    }
    sheet
}

/// Table of the marginal effect of one step on each axis.
pub fn marginals(steps: &[Marginal]) -> Sheet {
    let columns = ["axis", "from", "to", "time", "least", "most", "cost", "energy", "pairs"];
    let mut sheet = Sheet::new("Effect of one step on each axis, all else equal", &columns);
    for step in steps {
        sheet.push([
            step.axis.replace('_', " "),
            step.from.clone(),
            step.to.clone(),
            change(step.days),
            change(step.days_range.0),
            change(step.days_range.1),
            change(step.cost),
            change(step.energy),
            step.pairs.to_string(),
        ]);
    }
    sheet
}

/// Sentence that summarises a fleet and its optimality gap.
pub fn bought(fleet: &Fleet) -> String {
    let proof = match fleet.proof {
        FleetProof::Optimal => "proved optimal".to_owned(),
        FleetProof::Within(gap) if gap.is_finite() => {
            format!("optimality gap ≤ {:.1} %", gap * 100.0)
        }
        FleetProof::Within(_) => "not proved optimal".to_owned(),
    };
    format!(
        "{} for {} tokens in {} days, at most {} MW and {:.0} racks; {proof}; {} of {} options after dominance, {} columns",
        usd(fleet.cost_usd),
        count(fleet.tokens),
        significant(fleet.days),
        significant(fleet.peak_mw),
        fleet.racks,
        fleet.options.undominated,
        fleet.options.usable,
        fleet.columns,
    )
}

/// Table of the recommended purchase.
pub fn fleet(fleet: &Fleet, goal: FleetGoal) -> Sheet {
    let title = match goal {
        FleetGoal::Cost => "What to buy: least cost",
        FleetGoal::Tokens => "What to buy: most tokens",
    };
    let columns = ["clusters", "option", "GPUs", "from day", "to day", "runs on each", "tokens", "cost"];
    let mut sheet = Sheet::new(title, &columns);
    for line in &fleet.lines {
        let runs: Vec<String> =
            line.runs.iter().filter(|of| of.runs > 0).map(|of| format!("{} x {}", of.runs, of.workload)).collect();
        sheet.push([
            line.clusters.to_string(),
            line.label.clone(),
            (line.gpus * line.clusters).to_string(),
            significant(line.from_day),
            significant(line.to_day),
            runs.join(", "),
            count(line.tokens),
            usd(line.cost_usd),
        ]);
    }
    sheet
}
