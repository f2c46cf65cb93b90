//! `plan --place`: the order of hosts of the best plans beside the ranking.

use anyhow::Result;

use super::emit::Chosen;
use super::{OutputFormat, output};
use crate::report::placed::{Document, Entry, HOST_FILE, host_file, nothing, sentence, sheet};
use crate::report::{json, table};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::emit::EmittedFile;
use meshwright_planner::placement::{Options, place};
use meshwright_planner::search::Ranking;

/// Arguments of placement.
#[derive(Debug, clap::Args)]
pub struct PlaceArgs {
    /// Order the hosts of the K fastest plans so that ranks that talk most sit nearest
    /// [default: 3 on networks of three levels and more above a domain, said where it saves over 1 %].
    #[arg(long, value_name = "K")]
    pub(super) place: Option<u32>,
    /// Leave hosts in rank order.
    #[arg(long, conflicts_with = "place")]
    pub(super) no_place: bool,
}

/// A plan, placed.
pub fn entry(costs: &Costs, place_in_ranking: usize, plan: &Plan) -> Entry {
    Entry { place: place_in_ranking, plan: *plan, outcome: place(costs, plan, &Options::default()) }
}

/// Plans that are placed where no number is given, the levels above a domain that the network then needs, and the share of a step
/// that another order then saves at least.
const BY_DEFAULT: (u32, usize, f64) = (3, 3, 0.01);

impl PlaceArgs {
    /// Placements of the best plans; none where they were not asked for.
    pub fn entries(&self, problem: &Problem, ranking: &Ranking) -> Vec<Entry> {
        let deep = problem.cluster().levels.len() >= BY_DEFAULT.1;
        let most = self.place.unwrap_or(if deep && !self.no_place { BY_DEFAULT.0 } else { 0 });
        let costs = Costs::new(problem);
        let ranked = ranking.evaluations.iter().take(most as usize).enumerate();
        ranked.map(|(at, evaluation)| entry(&costs, at + 1, &evaluation.plan)).collect()
    }

    /// The plan to be written with the rank order that its hosts are listed for, and the list; none where they stay as they stand, or
    /// where stages were refined for the other rank order.
    pub fn files(&self, problem: &Problem, entries: &[Entry], chosen: &Chosen) -> Option<(Plan, EmittedFile)> {
        let of_plan = entries.iter().find(|entry| entry.plan == *chosen.plan)?;
        let placed = of_plan.outcome.as_ref().ok().filter(|placed| placed.gain() > self.least())?;
        if chosen.refined.is_some() && placed.plan != *chosen.plan {
            output::talk("the order of hosts is not written: its rank order is not that of the refined stages");
            return None;
        }
        let text = host_file(problem, placed)?;
        Some((placed.plan, EmittedFile { name: HOST_FILE.into(), text }))
    }

    /// The share of a step below which nothing is said.
    fn least(&self) -> f64 {
        if self.place.is_some() { 0.0 } else { BY_DEFAULT.2 }
    }

    /// The table of placed plans and how to launch them; empty where no other order of hosts is faster.
    pub fn text(&self, problem: &Problem, entries: &[Entry], format: OutputFormat) -> Result<String> {
        let Some(sheet) = sheet(problem, entries, self.least()) else {
            if let Some(why) = nothing(entries).filter(|_| self.place.is_some()) {
                output::talk(&format!("--place: {why}"));
            }
            return Ok(String::new());
        };
        let words = sentence(problem, entries, self.least());
        let words = if format == OutputFormat::Table { table::wrapped(&words) } else { words };
        Ok(format!("\n{}\n{words}\n", output::sheets(&[sheet], format)?))
    }

    /// The answer with the placements in it, where they were asked for or are worth saying.
    pub fn json(&self, problem: &Problem, entries: &[Entry], document: String) -> serde_json::Result<String> {
        let worth = |entry: &Entry| entry.outcome.as_ref().is_ok_and(|placed| placed.gain() > self.least());
        if self.place.is_none() && !entries.iter().any(worth) {
            return Ok(document);
        }
        let told: Vec<Document> = entries.iter().map(|entry| Document::new(problem, entry)).collect();
        json::with(&document, "placed", &told)
    }
}
