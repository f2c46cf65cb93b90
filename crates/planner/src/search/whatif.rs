//! Searches of what-if questions on one problem that share costs and incumbents.

use std::ops::ControlFlow;
use std::sync::Mutex;

use super::cache::CostCache;
use super::driver::search_from;
use super::incumbents::SearchTarget;
use super::options::{Control, Goal, SearchOptions};
use super::ranking::Ranking;
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::ROUNDING;
use meshwright_engine::plan::Plan;
use meshwright_engine::units::Seconds;

/// Number of earlier answers kept as candidate incumbents.
const SEEDS: usize = 64;

/// Series of searches on one problem, with other fixed degrees, goals or frameworks.
///
/// Layer costs are computed once for all searches, and earlier answers serve as incumbents of later ones. The answers equal
/// those of [`search_with`](super::search_with); only the number of plans that each bound excludes depends on the earlier
/// searches.
pub struct WhatIfs<'c> {
    costs: &'c Costs<'c>,
    control: &'c Control<'c>,
    parts: CostCache,
    seeds: Mutex<Vec<Plan>>,
}

impl<'c> WhatIfs<'c> {
    /// Starts a series on a prepared cost model.
    pub fn new(costs: &'c Costs<'c>) -> Self {
        Self { costs, control: &|_, _| ControlFlow::Continue(()), parts: CostCache::default(), seeds: Mutex::default() }
    }

    /// Lets `control` end each search early, as it ends that of [`search_for`](super::search_for).
    #[must_use]
    pub fn controlled_by(self, control: &'c Control<'c>) -> Self {
        Self { control, ..self }
    }

    /// Adds candidate incumbents, such as the answers to a similar problem.
    #[must_use]
    pub fn starting_from(self, plans: &[Plan]) -> Self {
        self.remember(plans.iter().cloned());
        self
    }

    /// Finds the best plans under these options.
    pub fn ask(&self, options: &SearchOptions, goal: Goal) -> Ranking {
        self.ask_within(options, goal, f64::INFINITY)
    }

    /// Finds the fastest plans under these options that take at most `ceiling`.
    pub fn fastest_within(&self, options: &SearchOptions, ceiling: Seconds) -> Ranking {
        // The search adds in another order than the final price, which may round off the other way.
        let mut ranking = self.ask_within(options, Goal::Fastest, ceiling.get() / ROUNDING);
        ranking.evaluations.retain(|evaluation| evaluation.step.total() <= ceiling);
        ranking
    }

    fn ask_within(&self, options: &SearchOptions, goal: Goal, ceiling: f64) -> Ranking {
        let seeds = self.seeds.lock().expect("nobody panics with it").clone();
        let wanted = SearchTarget { ceiling, ..SearchTarget::new(self.costs, options, goal) };
        let ranking = search_from(self.costs, options, wanted, &seeds, &self.parts, self.control);
        self.remember(ranking.evaluations.iter().map(|evaluation| evaluation.plan.clone()));
        ranking
    }

    fn remember(&self, plans: impl Iterator<Item = Plan>) {
        let mut seeds = self.seeds.lock().expect("nobody panics with it");
        for plan in plans {
            if !seeds.contains(&plan) {
                seeds.push(plan);
            }
        }
        let over = seeds.len().saturating_sub(SEEDS);
        seeds.drain(..over);
    }
}
