//! Scores of replays: the loss of each rule after each trial, by choice and over all choices.

use serde::{Deserialize, Serialize};

use super::fit;
use super::replay::{MOST, MeasuredChoice, Replay, TrialRule, replay};
use super::timed::TimedPlan;
use meshwright_planner::discrepancy::DiscrepancyTable;

/// Random orders over which `random` is averaged.
const SEEDS: u64 = 100;
/// Loss that counts as long as no trial has run.
const NOTHING_RAN: f64 = 1.0;

/// Scores of one rule on one choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleScore {
    /// Name of the rule.
    pub rule: String,
    /// Mean relative loss of step time against the fastest layout, after 1, 2, … trials; 1 where nothing has run.
    pub loss: Vec<f64>,
    /// Share of the replays within the tolerance of the fastest, after 1, 2, … trials.
    pub within: Vec<f64>,
    /// Number of trials after which the rule stopped; none where it did not.
    pub stopped_after: Option<usize>,
}

/// Scores of every rule on one choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayedChoice {
    /// Set of the runs.
    pub set: String,
    /// Name of the model.
    pub model: String,
    /// Name of the stack.
    pub stack: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Sequences per step.
    pub batch: u32,
    /// Number of layouts that were tried.
    pub plans: usize,
    /// Number of them that ran.
    pub timed: usize,
    /// Scores by rule.
    pub rules: Vec<RuleScore>,
}

/// Scores of one rule over several choices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleSummary {
    /// Name of the rule.
    pub rule: String,
    /// Mean over the choices of the loss after 1, 2, … trials.
    pub loss: Vec<f64>,
    /// Share of the choices within the tolerance after 1, 2, … trials.
    pub within: Vec<f64>,
    /// Share of the choices where the rule stopped.
    pub stopped: f64,
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

fn scored(rule: &str, replays: &[Replay], tolerance: f64) -> RuleScore {
    let after = |trials: usize, of: &dyn Fn(f64) -> f64| mean(replays.iter().map(|replay| of(replay.after(trials))));
    RuleScore {
        rule: rule.to_owned(),
        loss: (1..=MOST).map(|trials| after(trials, &|loss| loss.min(NOTHING_RAN))).collect(),
        within: (1..=MOST).map(|trials| after(trials, &|loss| f64::from(u8::from(loss <= tolerance)))).collect(),
        stopped_after: replays.first().and_then(|replay| replay.stopped),
    }
}

/// Scores of every rule on a choice; `table` has the parameters that tune knows before it.
pub fn score(choice: &MeasuredChoice, table: &DiscrepancyTable, tolerance: f64) -> ReplayedChoice {
    let one = |rule| vec![replay(choice, rule, tolerance)];
    let random = (0..SEEDS).map(|seed| replay(choice, TrialRule::Random(seed), tolerance)).collect();
    let rules = [
        ("tune", one(TrialRule::Tune(table))),
        ("model", one(TrialRule::Model)),
        ("random", random),
        ("space-filling", one(TrialRule::SpaceFilling)),
        ("auto-configurator", one(TrialRule::AutoConfigurator)),
    ];
    ReplayedChoice {
        set: choice.plans[0].set.clone(),
        model: choice.model.to_owned(),
        stack: choice.plans[0].stack.clone(),
        gpus: choice.gpus,
        batch: choice.plans[0].batch,
        plans: choice.plans.len(),
        timed: choice.plans.iter().filter(|plan| plan.measured.is_some()).count(),
        rules: rules.iter().map(|(rule, replays)| scored(rule, replays, tolerance)).collect(),
    }
}

/// Parameters of the discrepancy model, fitted to the runs of all models but one.
pub fn table_without(model: &str, plans: &[TimedPlan], constants: &str) -> DiscrepancyTable {
    let others: Vec<&TimedPlan> = plans.iter().filter(|plan| plan.model != model).collect();
    fit(&others, "without one model", "undated", constants)
}

/// Scores of each rule over choices.
pub fn summaries(choices: &[ReplayedChoice]) -> Vec<RuleSummary> {
    let Some(first) = choices.first() else { return Vec::new() };
    let summary = |(at, named): (usize, &RuleScore)| {
        let over = |of: &dyn Fn(&RuleScore) -> f64| mean(choices.iter().map(|choice| of(&choice.rules[at])));
        RuleSummary {
            rule: named.rule.clone(),
            loss: (0..MOST).map(|trial| over(&|rule| rule.loss[trial])).collect(),
            within: (0..MOST).map(|trial| over(&|rule| rule.within[trial])).collect(),
            stopped: over(&|rule| f64::from(u8::from(rule.stopped_after.is_some()))),
        }
    };
    first.rules.iter().enumerate().map(summary).collect()
}
