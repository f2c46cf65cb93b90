//! Many questions about one problem: what is priced for one is kept for the next.

use std::ops::ControlFlow;
use std::sync::Mutex;

use super::tables::Parts;
use super::{Goal, Options, Ranking, search_from};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::units::Seconds;

/// Answers kept to start from.
const SEEDS: usize = 64;

/// What-ifs on one problem: other degrees fixed or forbidden, other goals, other frameworks.
///
/// Layers are priced once for all of them, and the plans that answered earlier questions are what later ones have to beat from
/// the start. The answers are those of [`search_with`](super::search_with); only how many plans each bound cut depends on what
/// was asked before.
#[derive(Debug)]
pub struct WhatIfs<'c> {
    costs: &'c Costs<'c>,
    parts: Parts,
    seeds: Mutex<Vec<Plan>>,
}

impl<'c> WhatIfs<'c> {
    /// Of a problem that is prepared for pricing.
    pub fn new(costs: &'c Costs<'c>) -> Self {
        Self { costs, parts: Parts::default(), seeds: Mutex::default() }
    }

    /// Starts from plans of a problem much like this one, too.
    #[must_use]
    pub fn starting_from(self, plans: &[Plan]) -> Self {
        self.remember(plans.iter().copied());
        self
    }

    /// The best plans under these options.
    pub fn ask(&self, options: &Options, goal: Goal) -> Ranking {
        self.ask_within(options, goal, f64::INFINITY)
    }

    /// The fastest plans under these options that take no longer than `ceiling`.
    pub fn fastest_within(&self, options: &Options, ceiling: Seconds) -> Ranking {
        self.ask_within(options, Goal::Fastest, ceiling.get())
    }

    fn ask_within(&self, options: &Options, goal: Goal, ceiling: f64) -> Ranking {
        let seeds = self.seeds.lock().expect("nobody panics with it").clone();
        let go_on = |_, _| ControlFlow::Continue(());
        let ranking = search_from(self.costs, options, (goal, ceiling), &seeds, &self.parts, &go_on);
        self.remember(ranking.evaluations.iter().map(|evaluation| evaluation.plan));
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
