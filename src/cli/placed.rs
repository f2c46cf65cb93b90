//! `plan --place`: optimised host orders of the best plans.

use anyhow::Result;

use super::format::OutputFormat;
use super::launch_files::Chosen;
use super::output;
use crate::report::placed::{Entry, HOST_FILE, PlacedDocument, host_file, nothing, sentence, sheet};
use crate::report::{json, table};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::percent;
use meshwright_frameworks::emit::EmittedFile;
use meshwright_planner::placement::{PlacementOptions, place};
use meshwright_planner::search::Ranking;

/// Arguments of placement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Stages and hosts")]
pub struct PlaceArgs {
    /// Optimise the order of hosts for the K fastest plans
    ///
    /// So that ranks with the most traffic are nearest. By default 3 on networks with three or more levels above a domain, told
    /// in a sentence if it saves over 1 %.
    #[arg(long, value_name = "K")]
    pub(super) place: Option<u32>,
    /// Keep hosts in rank order.
    #[arg(long, conflicts_with = "place", hide_short_help = true)]
    pub(super) no_place: bool,
}

/// Placement of one ranked plan.
pub fn entry(costs: &Costs, place_in_ranking: usize, plan: &Plan) -> Entry {
    Entry { place: place_in_ranking, plan: *plan, outcome: place(costs, plan, &PlacementOptions::default()) }
}

/// Default number of plans to place, the number of network levels above a domain that it requires, and the least saving to
/// report, as a share of the step.
const BY_DEFAULT: (u32, usize, f64) = (3, 3, 0.01);

impl PlaceArgs {
    /// Placements of the best plans; empty if placement is off.
    pub fn entries(&self, problem: &Problem, ranking: &Ranking) -> Vec<Entry> {
        let deep = problem.cluster().levels.len() >= BY_DEFAULT.1;
        let most = self.place.unwrap_or(if deep && !self.no_place { BY_DEFAULT.0 } else { 0 });
        let costs = Costs::new(problem);
        let ranked = ranking.evaluations.iter().take(most as usize).enumerate();
        ranked.map(|(at, evaluation)| entry(&costs, at + 1, &evaluation.plan)).collect()
    }

    /// Plan to write, in the rank order that its host list assumes, with the list; `None` if hosts stay in order, or if the
    /// stages were refined for the other rank order.
    pub fn files(&self, problem: &Problem, entries: &[Entry], chosen: &Chosen) -> Option<(Plan, EmittedFile)> {
        let of_plan = entries.iter().find(|entry| entry.plan == *chosen.plan)?;
        let placed = of_plan.outcome.as_ref().ok().filter(|placed| placed.gain() > self.least())?;
        if chosen.refined.is_some() && placed.plan != *chosen.plan {
            output::talk("the order of hosts is not written: its rank order differs from that of the refined stages");
            return None;
        }
        let text = host_file(problem, placed)?;
        Some((placed.plan, EmittedFile { name: HOST_FILE.into(), text }))
    }

    /// Least saving to report, as a share of the step.
    fn least(&self) -> f64 {
        if self.place.is_some() { 0.0 } else { BY_DEFAULT.2 }
    }

    /// Sentence on the first plan that another order of hosts makes faster; none if the table of placed plans was asked for.
    pub fn sentence(&self, entries: &[Entry]) -> Option<String> {
        if self.place.is_some() {
            return None;
        }
        let worth = |entry: &Entry| Some(entry.outcome.as_ref().ok()?.gain()).filter(|gain| *gain > self.least());
        let (entry, gain) = entries.iter().find_map(|entry| Some((entry, worth(entry)?)))?;
        Some(format!("Hosts in another order make plan {} {} faster: --place {0}.", entry.place, percent(gain)))
    }

    /// Table of placed plans with launch instructions, if it was asked for and another order of hosts is faster.
    pub fn text(&self, problem: &Problem, entries: &[Entry], format: OutputFormat) -> Result<String> {
        if self.place.is_none() {
            return Ok(String::new());
        }
        let Some(sheet) = sheet(problem, entries, self.least()) else {
            if let Some(why) = nothing(entries) {
                output::talk(&format!("--place: {why}"));
            }
            return Ok(String::new());
        };
        let words = sentence(problem, entries, self.least());
        let words = if format == OutputFormat::Table { table::wrapped(&words) } else { words };
        Ok(format!("\n{}\n{words}\n", output::sheets(&[sheet], format)?))
    }

    /// JSON answer with the placements, if they were requested or save enough.
    pub fn json(&self, problem: &Problem, entries: &[Entry], document: String) -> serde_json::Result<String> {
        let worth = |entry: &Entry| entry.outcome.as_ref().is_ok_and(|placed| placed.gain() > self.least());
        if self.place.is_none() && !entries.iter().any(worth) {
            return Ok(document);
        }
        let told: Vec<PlacedDocument> = entries.iter().map(|entry| PlacedDocument::new(problem, entry)).collect();
        json::with(&document, "placed", &told)
    }
}
