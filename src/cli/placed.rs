//! `plan --place`: optimised host orders of the best plans.

use anyhow::Result;

use super::format::OutputFormat;
use super::output;
use crate::question::{Chosen, PlaceOptions};
use crate::report::placed::{Entry, HOST_FILE, host_file, nothing, sentence, sheet};
use crate::report::table;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::percent;
use meshwright_frameworks::emit::EmittedFile;

/// Plan to write, in the rank order that its host list assumes, with the list; `None` if hosts stay in order, or if the
/// stages were refined for the other rank order.
pub fn files(
    asked: &PlaceOptions,
    problem: &Problem,
    entries: &[Entry],
    chosen: &Chosen,
) -> Option<(Plan, EmittedFile)> {
    let of_plan = entries.iter().find(|entry| entry.plan == *chosen.plan)?;
    let placed = of_plan.outcome.as_ref().ok().filter(|placed| placed.gain() > asked.least_saving())?;
    if chosen.refined.is_some() && placed.plan != *chosen.plan {
        output::talk("the order of hosts is not written: its rank order differs from that of the refined stages");
        return None;
    }
    let text = host_file(problem, placed)?;
    Some((placed.plan.clone(), EmittedFile { name: HOST_FILE.into(), text }))
}

/// Sentence on the first plan that another order of hosts makes faster; none if the table of placed plans was asked for.
pub fn hint(asked: &PlaceOptions, entries: &[Entry]) -> Option<String> {
    if asked.place.is_some() {
        return None;
    }
    let worth = |entry: &Entry| Some(entry.outcome.as_ref().ok()?.gain()).filter(|gain| *gain > asked.least_saving());
    let (entry, gain) = entries.iter().find_map(|entry| Some((entry, worth(entry)?)))?;
    Some(format!("Hosts in another order make plan {} {} faster: --place {0}.", entry.place, percent(gain)))
}

/// Table of placed plans with launch instructions, if it was asked for and another order of hosts is faster.
pub fn text(asked: &PlaceOptions, problem: &Problem, entries: &[Entry], format: OutputFormat) -> Result<String> {
    if asked.place.is_none() {
        return Ok(String::new());
    }
    let Some(sheet) = sheet(problem, entries, asked.least_saving()) else {
        if let Some(why) = nothing(entries) {
            output::talk(&format!("--place: {why}"));
        }
        return Ok(String::new());
    };
    let words = sentence(problem, entries, asked.least_saving());
    let words = if format == OutputFormat::Table { table::wrapped(&words) } else { words };
    Ok(format!("\n{}\n{words}\n", output::sheets(&[sheet], format)?))
}
