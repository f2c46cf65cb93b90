//! Fleet of a solution of the integer program, and an independent check of it from the records alone.

use super::answer::{Fleet, FleetLine, FleetProof, OptionCounts, WorkloadRuns};
use super::column::{Candidate, Column, offers_of};
use super::request::{FleetGoal, PeriodBudget, PurchaseRequest};
use crate::sweep::file::Sweep;
use crate::sweep::record::Record;
use meshwright_engine::units::Watts;

/// Limits of power and racks on one day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayLimits {
    /// Most power at the wall, in megawatts.
    pub megawatts: Option<f64>,
    /// Largest number of racks.
    pub racks: Option<f64>,
}

impl DayLimits {
    /// Tighter limit of the whole plan and of the period that the day is in.
    pub fn of(wanted: &PurchaseRequest, day: f64) -> Self {
        let period = wanted.period.iter().find(|period| day < period.until.as_days() - 1e-9);
        let tighter = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        };
        Self {
            megawatts: tighter(
                wanted.power.map(Watts::as_megawatts),
                period.and_then(|period| period.power).map(Watts::as_megawatts),
            ),
            racks: tighter(wanted.racks, period.and_then(|period| period.racks)),
        }
    }
}

/// Tokens that one cluster trains in a day of the first workload, interruptions included.
pub fn tokens_a_day(candidate: &Candidate) -> f64 {
    candidate
        .record
        .jobs
        .first()
        .map_or(0.0, |job| job.tokens_per_s_per_gpu * f64::from(candidate.record.gpus) * job.effective * 86_400.0)
}

/// Fleet of a solution of the integer program.
pub fn fleet(
    sweep: &Sweep,
    wanted: &PurchaseRequest,
    candidates: &[Candidate],
    columns: &[Column],
    copies: &[u32],
    days: &[f64],
) -> Fleet {
    let mut lines = Vec::new();
    let mut open: Vec<u32> = sweep.tasks.iter().map(|task| task.runs.round() as u32).collect();
    let (mut peak, mut most_racks) = (Vec::new(), Vec::new());
    for (k, column) in columns.iter().enumerate().filter(|(k, _)| copies[*k] > 0) {
        let candidate = &candidates[column.candidate];
        let count = f64::from(copies[k]);
        peak.push((column, count * candidate.totals.peak_mw));
        most_racks.push((column, count * candidate.racks));
        let label = candidate.record.label.clone();
        let line = |clusters: u32, runs: &[u32], to_day: f64, tokens: f64, cost_usd: f64| FleetLine {
            option: candidate.record.option,
            label: label.clone(),
            clusters,
            gpus: candidate.record.gpus,
            from_day: column.from,
            to_day,
            runs: sweep
                .tasks
                .iter()
                .zip(runs)
                .map(|(task, &runs)| WorkloadRuns { workload: task.name.clone(), runs })
                .collect(),
            tokens,
            cost_usd,
        };
        match wanted.goal {
            FleetGoal::Tokens => {
                let length = (column.to - column.from) * count;
                let worked = days[k].min(length);
                let cost = if candidate.committed_days > 0.0 {
                    candidate.idle((column.to - column.from).max(candidate.committed_days)) * count
                } else {
                    candidate.daily() * worked
                };
                lines.push(line(copies[k], &[], column.from + worked / count, worked * tokens_a_day(candidate), cost));
            }
            FleetGoal::Cost => {
                // Runs that other clusters make are not repeated; the last clusters get the remainder.
                let mut left = copies[k];
                while left > 0 {
                    let runs: Vec<u32> = column.runs.iter().zip(&open).map(|(own, open)| (*own).min(*open)).collect();
                    let identical = if runs == column.runs {
                        let room =
                            runs.iter().zip(&open).filter(|(own, _)| **own > 0).map(|(own, open)| open / own).min();
                        left.min(room.unwrap_or(left)).max(1)
                    } else {
                        1
                    };
                    if runs.iter().any(|&runs| runs > 0) {
                        for (open, own) in open.iter_mut().zip(&runs) {
                            *open -= own * identical;
                        }
                        let to = column.from + super::column::busy(candidate, &runs);
                        let tokens: f64 = sweep
                            .tasks
                            .iter()
                            .zip(&runs)
                            .map(|(task, runs)| task.tokens.get() * f64::from(*runs))
                            .sum();
                        let cost = candidate.cost(&runs) * f64::from(identical);
                        lines.push(line(identical, &runs, to, tokens * f64::from(identical), cost));
                    }
                    left -= identical;
                }
            }
        }
    }
    let at_once = |sizes: &[(&Column, f64)]| {
        let at =
            |day: f64| sizes.iter().filter(|(c, _)| c.from <= day && day < c.to).map(|(_, size)| size).sum::<f64>();
        sizes.iter().map(|(column, _)| at(column.from)).fold(0.0, f64::max)
    };
    Fleet {
        cost_usd: lines.iter().map(|line| line.cost_usd).sum(),
        tokens: lines.iter().map(|line| line.tokens).sum(),
        days: lines.iter().map(|line| line.to_day).fold(0.0, f64::max),
        peak_mw: at_once(&peak),
        racks: at_once(&most_racks),
        lines,
        proof: FleetProof::Within(f64::INFINITY),
        bound: f64::NEG_INFINITY,
        options: OptionCounts::default(),
        columns: 0,
    }
}

/// Checks that a fleet keeps every constraint, computed from the records alone.
///
/// # Errors
///
/// The first constraint that it breaks.
pub fn holds(sweep: &Sweep, wanted: &PurchaseRequest, records: &[Record], fleet: &Fleet) -> Result<(), String> {
    /// Tolerance of rounding in the solver.
    const TOLERANCE: f64 = 1.0 + 1e-6;
    let candidates = super::column::candidates(sweep, wanted, records).undominated;
    let candidate_of = |line: &FleetLine| {
        let found = candidates.iter().find(|candidate| candidate.record.option == line.option);
        found.ok_or_else(|| format!("option {} is infeasible", line.option))
    };
    if let Some(end) = wanted.finish_by
        && fleet.days > end.as_days() * TOLERANCE
    {
        return Err(format!("it ends on day {:.2}, after `finish_by`", fleet.days));
    }
    if wanted.goal == FleetGoal::Cost {
        for task in &sweep.tasks {
            let runs_of = |line: &FleetLine| -> u32 {
                line.runs.iter().filter(|of| of.workload == task.name).map(|of| of.runs * line.clusters).sum()
            };
            let made: f64 = fleet.lines.iter().map(runs_of).map(f64::from).sum();
            if made < task.runs {
                return Err(format!("`{}` runs {made} times of {}", task.name, task.runs));
            }
        }
    }
    if let Some(budget) = wanted.budget
        && fleet.cost_usd > budget.get() * TOLERANCE
    {
        return Err(format!("it costs ${:.0}, over `budget`", fleet.cost_usd));
    }
    for PeriodBudget { start, end, usd } in wanted.period_budgets() {
        let mut spent = 0.0;
        for line in &fleet.lines {
            spent += line.cost_usd * candidate_of(line)?.paid_within(&(start..end), &(line.from_day..line.to_day));
        }
        if spent > usd * TOLERANCE {
            return Err(format!("${spent:.0} from day {start:.0} to {end:.0}, over the period's `budget`"));
        }
    }
    for line in &fleet.lines {
        let candidate = candidate_of(line)?;
        if !line.runs.is_empty() {
            let runs: Vec<u32> = line.runs.iter().map(|of| of.runs).collect();
            let cost = candidate.cost(&runs) * f64::from(line.clusters);
            if (cost / line.cost_usd.max(1e-9) - 1.0).abs() > 1e-9 {
                return Err(format!("{} costs ${cost:.0}, not ${:.0}", line.label, line.cost_usd));
            }
        }
        let limits = DayLimits::of(wanted, line.from_day);
        let present =
            |other: &&FleetLine| other.from_day <= line.from_day + 1e-9 && line.from_day < other.to_day - 1e-9;
        let (mut megawatts, mut racks) = (0.0, 0.0);
        for other in fleet.lines.iter().filter(present) {
            let candidate = candidate_of(other)?;
            megawatts += candidate.totals.peak_mw * f64::from(other.clusters);
            racks += candidate.racks * f64::from(other.clusters);
        }
        if limits.megawatts.is_some_and(|most| megawatts > most * TOLERANCE) {
            return Err(format!("{megawatts:.2} MW on day {:.0}, over `power`", line.from_day));
        }
        if limits.racks.is_some_and(|most| racks > most * TOLERANCE) {
            return Err(format!("{racks:.0} racks on day {:.0}, over `racks`", line.from_day));
        }
        let offers = offers_of(wanted, candidate);
        if !wanted.offer.is_empty() {
            let open = offers.iter().any(|&place| {
                let offer = &wanted.offer[place];
                offer.from.is_none_or(|from| from.as_days() <= line.from_day + 1e-9)
                    && offer.until.is_none_or(|until| line.to_day <= until.as_days() * TOLERANCE)
            });
            let present = fleet.lines.iter().filter(present);
            let gpus: f64 = present
                .filter(|other| candidate_of(other).is_ok_and(|other| offers_of(wanted, other) == offers))
                .map(|other| f64::from(other.gpus) * f64::from(other.clusters))
                .sum();
            let most = offers.iter().try_fold(0.0, |most, &place| Some(most + f64::from(wanted.offer[place].most?)));
            if most.is_some_and(|most| gpus > most * TOLERANCE) {
                return Err(format!(
                    "{gpus} GPUs like those of {} on day {:.0}, over `most`",
                    line.label, line.from_day
                ));
            }
            if !open {
                return Err(format!(
                    "{} cannot be had from day {:.0} to {:.0}",
                    line.label, line.from_day, line.to_day
                ));
            }
        }
    }
    Ok(())
}
