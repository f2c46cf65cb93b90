//! Optimised host orders of the best plans.

use serde::Deserialize;

use crate::placement::{PlacementOptions, place};
use crate::report::json::AnswerDocument;
use crate::report::placed::{Entry, PlacedDocument};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::search::Ranking;

/// Choice of the plans whose order of hosts is optimised.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Stages and hosts"))]
#[serde(default, deny_unknown_fields)]
pub struct PlaceOptions {
    /// Optimise the order of hosts for the K fastest plans
    ///
    /// So that ranks with the most traffic are nearest. By default 3 on networks with three or more levels above a domain, told
    /// in a sentence if it saves over 1 %.
    #[cfg_attr(feature = "cli", arg(long, value_name = "K"))]
    pub place: Option<u32>,
    /// Keep hosts in rank order.
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "place", hide_short_help = true))]
    pub no_place: bool,
}

/// Placement of one ranked plan.
pub fn entry(costs: &Costs, place_in_ranking: usize, plan: &Plan) -> Entry {
    Entry { place: place_in_ranking, plan: plan.clone(), outcome: place(costs, plan, &PlacementOptions::default()) }
}

/// Default number of plans to place, the number of network levels above a domain that it requires, and the least saving to
/// report, as a share of the step.
const BY_DEFAULT: (u32, usize, f64) = (3, 3, 0.01);

impl PlaceOptions {
    /// Placements of the best plans; empty if placement is off. Plans are left out from when `is_over` says so.
    pub fn entries(&self, problem: &Problem, ranking: &Ranking, is_over: &(dyn Fn() -> bool + Sync)) -> Vec<Entry> {
        let deep = problem.cluster().levels.len() >= BY_DEFAULT.1;
        let most = self.place.unwrap_or(if deep && !self.no_place { BY_DEFAULT.0 } else { 0 });
        let costs = Costs::new(problem);
        let ranked = ranking.evaluations.iter().take(most as usize).enumerate().take_while(|_| !is_over());
        ranked.map(|(at, evaluation)| entry(&costs, at + 1, &evaluation.plan)).collect()
    }

    /// Least saving to report, as a share of the step.
    pub fn least_saving(&self) -> f64 {
        if self.place.is_some() { 0.0 } else { BY_DEFAULT.2 }
    }

    /// JSON answer with the placements, if they were requested or save enough.
    ///
    /// # Errors
    ///
    /// A value has no JSON form.
    pub fn json(
        &self,
        problem: &Problem,
        entries: &[Entry],
        document: AnswerDocument,
    ) -> serde_json::Result<AnswerDocument> {
        let worth = |entry: &Entry| entry.outcome.as_ref().is_ok_and(|placed| placed.gain() > self.least_saving());
        if self.place.is_none() && !entries.iter().any(worth) {
            return Ok(document);
        }
        let placed: Vec<PlacedDocument> = entries.iter().map(|entry| PlacedDocument::new(problem, entry)).collect();
        document.with("placed", &placed)
    }
}
