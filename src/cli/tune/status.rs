//! `meshwright tune status`: what is believed of each plan, and whether further timing is worth it.

use std::fmt::Write as _;

use anyhow::Result;

use super::FolderArgs;
use crate::cli::format::OutputFormat;
use crate::cli::{Outcome, output};
use crate::report::Sheet;
use crate::tune::{Posterior, TrialStatus, document};
use meshwright_engine::units::{percent, significant};
use meshwright_planner::confidence::Interval;

/// Arguments of `tune status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: FolderArgs,
    /// Number of plans to show.
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Settings of plans without those that all plans share, and the shared ones.
fn settings(posterior: &Posterior) -> (Vec<String>, String) {
    let plans: Vec<Vec<&str>> =
        posterior.trials().iter().map(|trial| trial.plan.split_whitespace().collect()).collect();
    let is_shared = |setting: &&str| plans.iter().all(|plan| plan.contains(setting));
    let own = |plan: &Vec<&str>| {
        let is_shown = |setting: &&str| !is_shared(setting) && !["cp=1", "pp=1", "sp=on"].contains(setting);
        plan.iter().copied().filter(is_shown).collect::<Vec<&str>>().join(" ")
    };
    let shared: Vec<&str> =
        plans.first().map(|plan| plan.iter().copied().filter(is_shared).collect()).unwrap_or_default();
    (plans.iter().map(own).collect(), shared.join(" "))
}

fn sheet(posterior: &Posterior, top: usize) -> Sheet {
    let columns = ["trial", "status", "measured", "believed s", "90 %", "predicted", "runs", "P(best)", "plan"];
    let (plans, shared) = settings(posterior);
    let title = if shared.is_empty() { String::new() } else { format!("all: {shared}") };
    let mut sheet = Sheet::new(&title, &columns);
    for at in posterior.ranked().into_iter().take(top) {
        let (trial, believed) = (&posterior.trials()[at], posterior.outlook(at));
        let Interval { low, high } = believed.interval_s;
        sheet.push([
            trial.trial.to_string(),
            trial.status.to_string(),
            trial.step_s.map_or_else(String::new, significant),
            significant(believed.median_s),
            format!("{} to {}", significant(low), significant(high)),
            significant(believed.predicted_s),
            percent(believed.prospect.runs),
            percent(believed.prospect.best),
            plans[at].clone(),
        ]);
    }
    sheet
}

/// Sentences on the best trial, on stopping, and on what comes next.
fn sentences(posterior: &Posterior, dir: &str) -> Result<String> {
    let outlook = &posterior.outlook;
    let mut text = String::new();
    let number = |at: usize| posterior.trials()[at].trial;
    match outlook.leader {
        Some(leader) => writeln!(
            text,
            "Best so far: trial {}. Stopping now loses {} in the mean; it is within {} of the fastest with {}.",
            number(leader),
            percent(outlook.loss),
            percent(posterior.study().tolerance),
            percent(outlook.within)
        )?,
        None => writeln!(text, "No trial has run yet.")?,
    }
    let waiting: Vec<String> = posterior
        .trials()
        .iter()
        .filter(|trial| trial.status == TrialStatus::Waiting)
        .map(|trial| trial.trial.to_string())
        .collect();
    if !waiting.is_empty() {
        writeln!(text, "Waiting for the logs of trial {}.", waiting.join(", "))?;
    }
    let next = posterior.batch(1).first().copied();
    match next {
        _ if posterior.is_decided() => {
            writeln!(
                text,
                "Decided: the next trial would gain less than the tolerance.\n\nmeshwright tune apply --dir {dir}"
            )?;
        }
        Some(_) if posterior.trials_left() == 0 => {
            writeln!(text, "The budget is spent.\n\nmeshwright tune apply --dir {dir}")?;
        }
        Some(next) => {
            let prospect = posterior.outlook(next).prospect;
            let worth = match outlook.leader {
                Some(_) => format!("timing it gains {} in the mean", percent(prospect.gain)),
                None => format!("in the mean it reaches {} of the fastest's speed", percent(prospect.gain)),
            };
            writeln!(
                text,
                "Next: trial {}, for {worth}. {} trials are left.\n\nmeshwright tune next --dir {dir}",
                number(next),
                posterior.trials_left()
            )?;
        }
        None => writeln!(text, "No plan is left to try.")?,
    }
    Ok(text)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let posterior = args.folder.posterior()?;
    if args.format == OutputFormat::Json {
        output::print(&document(&posterior)?)?;
        return Ok(Outcome::Answered);
    }
    output::print(&output::sheets(&[sheet(&posterior, args.top as usize)], args.format)?)?;
    if args.format == OutputFormat::Table {
        output::print(&format!("\n{}", sentences(&posterior, &args.folder.dir.display().to_string())?))?;
    }
    Ok(Outcome::Answered)
}
