//! Replays of published choices: the best plan that each rule of choosing trials has found after k of them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::timed::TimedPlan;
use meshwright_planner::confidence;
use meshwright_planner::discrepancy::{
    Belief, BeliefPoint, DiscrepancyTable, MemoryBelief, MemoryEvidence, Outlook, Tried,
};
use meshwright_planner::split_mix::SplitMix;

/// Fewest layouts with a time that make a choice worth replaying.
pub const FEWEST: usize = 8;
/// Trials of a replay.
pub const MOST: usize = 8;

/// Choice among layouts: model, GPUs and batch are given, and every layout was tried.
#[derive(Clone, Debug)]
pub struct MeasuredChoice<'a> {
    /// Problem of the layouts.
    pub problem: &'a str,
    /// Name of the model.
    pub model: &'a str,
    /// Number of GPUs.
    pub gpus: u32,
    /// Layouts, those that failed too.
    pub plans: Vec<&'a TimedPlan>,
}

/// Choices with at least [`FEWEST`] timed layouts; of repeats of one layout, the first counts.
pub fn choices(plans: &[TimedPlan]) -> Vec<MeasuredChoice<'_>> {
    let mut found: BTreeMap<(&str, u32, u32), BTreeMap<&str, &TimedPlan>> = BTreeMap::new();
    for plan in plans {
        found.entry((&plan.problem, plan.gpus, plan.batch)).or_default().entry(&plan.plan).or_insert(plan);
    }
    let choices = found.into_iter().map(|((problem, gpus, _), plans)| {
        let plans: Vec<&TimedPlan> = plans.into_values().collect();
        MeasuredChoice { problem, model: &plans[0].model, gpus, plans }
    });
    choices.filter(|choice| choice.plans.iter().filter(|plan| plan.measured.is_some()).count() >= FEWEST).collect()
}

/// Rule by which trials are chosen.
#[derive(Clone, Copy, Debug)]
pub enum TrialRule<'a> {
    /// Expected improvement under the discrepancy model.
    Tune(&'a DiscrepancyTable),
    /// Order of the predicted times among plans predicted to fit.
    Model,
    /// Random order, by a seed.
    Random(u64),
    /// Each trial as far as possible from those before it, from the middle on: a maximin design.
    SpaceFilling,
    /// Grid of NeMo's AutoConfigurator, in its order [nemo-autoconfigurator].
    AutoConfigurator,
}

/// Trials of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Relative loss of the best layout so far after each trial; infinite until one has run.
    pub regrets: Vec<f64>,
    /// Number of trials after which the rule stopped; `None` where it did not within [`MOST`].
    pub stopped: Option<usize>,
}

impl Replay {
    /// Relative loss after `trials` trials, or after the last.
    pub fn after(&self, trials: usize) -> f64 {
        let at = trials.min(self.regrets.len());
        at.checked_sub(1).map_or(f64::INFINITY, |at| self.regrets[at])
    }
}

/// Replays a choice.
pub fn replay(choice: &MeasuredChoice, rule: TrialRule, tolerance: f64) -> Replay {
    match rule {
        TrialRule::Tune(table) => tuned(choice, table, tolerance),
        TrialRule::Model => in_order(choice, &by_model(choice)),
        TrialRule::Random(seed) => in_order(choice, &shuffled(choice.plans.len(), seed)),
        TrialRule::SpaceFilling => in_order(choice, &maximin(choice)),
        TrialRule::AutoConfigurator => in_order(choice, &grid(choice)),
    }
}

/// Least measured time of a choice.
fn fastest(choice: &MeasuredChoice) -> f64 {
    choice.plans.iter().filter_map(|plan| plan.measured).fold(f64::INFINITY, f64::min)
}

/// Replay of trials in a fixed order.
fn in_order(choice: &MeasuredChoice, order: &[usize]) -> Replay {
    let (best, mut found) = (fastest(choice), f64::INFINITY);
    let regrets = order.iter().take(MOST).map(|&at| {
        found = found.min(choice.plans[at].measured.unwrap_or(f64::INFINITY));
        found / best - 1.0
    });
    Replay { regrets: regrets.collect(), stopped: None }
}

/// Replay of trials by expected improvement.
fn tuned(choice: &MeasuredChoice, table: &DiscrepancyTable, tolerance: f64) -> Replay {
    let plans = &choice.plans;
    let point =
        |(plan, of): (usize, &&TimedPlan)| BeliefPoint { traits: of.traits, predicted: of.predicted.ln(), plan };
    let points: Vec<BeliefPoint> = plans.iter().enumerate().map(point).collect();
    let mut belief = Belief::prior(table, &plans[0].stack, &points);
    let mut memory = MemoryBelief::of_quantiles(table, &confidence::table().memory(plans[0].family, true));
    let mut tried = vec![Tried::Untried; plans.len()];
    let (best, mut found) = (fastest(choice), f64::INFINITY);
    let mut replay = Replay { regrets: Vec::new(), stopped: None };
    loop {
        let runs: Vec<f64> = plans.iter().map(|plan| memory.runs(plan.room)).collect();
        let outlook = Outlook::new(&belief, &tried, &runs, tolerance);
        if outlook.is_decided(tolerance) && replay.stopped.is_none() {
            replay.stopped = Some(replay.regrets.len());
        }
        let Some(next) = outlook.next.filter(|_| replay.regrets.len() < MOST) else { return replay };
        let evidence = if let Some(step) = plans[next].measured {
            belief.observe(next, step.ln(), 0.0);
            tried[next] = Tried::Ran;
            found = found.min(step);
            plans[next].peak.map_or(MemoryEvidence::Fitted, MemoryEvidence::Peak)
        } else {
            tried[next] = Tried::Failed;
            MemoryEvidence::Failed
        };
        memory.observe(plans[next].room, evidence);
        replay.regrets.push(found / best - 1.0);
    }
}

/// Plans that are predicted to fit by time, then the others by time.
fn by_model(choice: &MeasuredChoice) -> Vec<usize> {
    let mut order: Vec<usize> = (0..choice.plans.len()).collect();
    let key = |at: usize| (choice.plans[at].room < 0.0, choice.plans[at].predicted);
    order.sort_by(|&a, &b| key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
    order
}

/// Random order of `n` indices: Fisher–Yates shuffle.
fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let (mut order, mut numbers): (Vec<usize>, _) = ((0..n).collect(), SplitMix::new(seed));
    for at in (1..n).rev() {
        order.swap(at, numbers.below(at + 1));
    }
    order
}

/// Order in which each layout is as far as possible from those before it, beginning near the mean (maximin design).
fn maximin(choice: &MeasuredChoice) -> Vec<usize> {
    let place = |at: usize| choice.plans[at].traits.coordinates;
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>();
    let n = choice.plans.len();
    let middle: Vec<f64> =
        (0..place(0).len()).map(|axis| (0..n).map(|at| place(at)[axis]).sum::<f64>() / n as f64).collect();
    let first = (0..n).min_by(|&a, &b| apart(&place(a), &middle).total_cmp(&apart(&place(b), &middle)));
    let mut order: Vec<usize> = first.into_iter().collect();
    while order.len() < n {
        let nearest = |at: usize| order.iter().map(|&to| apart(&place(at), &place(to))).fold(f64::INFINITY, f64::min);
        let left = (0..n).filter(|at| !order.contains(at));
        let Some(next) = left.max_by(|&a, &b| nearest(a).total_cmp(&nearest(b)).then(b.cmp(&a))) else { break };
        order.push(next);
    }
    order
}

/// Degrees that NeMo's AutoConfigurator tries for models up to a size.
struct TriedDegrees {
    /// Most parameters of the models, in billions.
    billions: f64,
    tp: &'static [u32],
    pp: RangeInclusive<u32>,
    micro_batches: &'static [u32],
    /// Product of tensor- and pipeline-parallel degree.
    tp_pp: RangeInclusive<u32>,
}

/// Degrees for GPT models with 4,096 tokens on devices of 80 GB. Source: [nemo-autoconfigurator].
const TRIED: [TriedDegrees; 7] = [
    TriedDegrees { billions: 1.0, tp: &[1, 2, 4], pp: 1..=1, micro_batches: &[1, 2, 4, 8], tp_pp: 1..=8 },
    TriedDegrees { billions: 4.0, tp: &[1, 2, 4], pp: 1..=1, micro_batches: &[1, 2, 4, 8], tp_pp: 1..=8 },
    TriedDegrees { billions: 8.0, tp: &[1, 2, 4], pp: 1..=2, micro_batches: &[1, 2, 4], tp_pp: 1..=8 },
    TriedDegrees { billions: 13.0, tp: &[2, 4], pp: 1..=2, micro_batches: &[1, 2, 4], tp_pp: 1..=8 },
    TriedDegrees { billions: 23.0, tp: &[4, 8], pp: 1..=2, micro_batches: &[1, 2], tp_pp: 4..=16 },
    TriedDegrees { billions: 45.0, tp: &[4, 8], pp: 2..=4, micro_batches: &[1, 2], tp_pp: 8..=32 },
    TriedDegrees { billions: 95.0, tp: &[4, 8], pp: 1..=8, micro_batches: &[1, 2], tp_pp: 8..=64 },
];

/// Layouts inside the grid, by tp, pp and micro-batch; the others are never tried.
fn grid(choice: &MeasuredChoice) -> Vec<usize> {
    let degree = |at: usize, axis: usize| choice.plans[at].traits.coordinates[axis].exp2().round() as u32;
    let billions = choice.plans[0].billions.unwrap_or_default();
    let Some(tried) = TRIED.iter().find(|tried| billions <= tried.billions) else { return Vec::new() };
    let inside = |&at: &usize| {
        let (tp, pp, mbs) = (degree(at, 0), degree(at, 1), degree(at, 2));
        tried.tp.contains(&tp)
            && tried.pp.contains(&pp)
            && tried.micro_batches.contains(&mbs)
            && tried.tp_pp.contains(&(tp * pp))
    };
    let mut order: Vec<usize> = (0..choice.plans.len()).filter(inside).collect();
    order.sort_by_key(|&at| (degree(at, 0), degree(at, 1), degree(at, 2), at));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::stack::Family;
    use meshwright_planner::discrepancy::{Traits, built_in};

    fn plan(at: u32, predicted: f64, measured: Option<f64>) -> TimedPlan {
        let step = f64::from(at);
        let linear = [1.0, step / 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1 * step, 0.0, 0.0, 0.0, 0.0];
        TimedPlan {
            id: at.to_string(),
            problem: "p".into(),
            model: "m".into(),
            billions: Some(3.0),
            set: "s".into(),
            stack: "unknown".into(),
            gpus: 64,
            batch: 256,
            plan: at.to_string(),
            traits: Traits {
                linear,
                coordinates: [step, 0.0, 0.0, 1.0, 0.0, 0.0],
                log2_gpus: 6.0,
                micro_batches: 8.0,
                stages: 1,
            },
            predicted,
            measured,
            room: 1.0,
            peak: None,
            family: Family::Nanotron,
        }
    }

    #[test]
    fn rules_try_each_layout_once_and_end_at_the_best() {
        let plans: Vec<TimedPlan> = (0..8)
            .map(|at| plan(at, 1.0 + 0.1 * f64::from(at), (at != 1).then(|| 2.0 - 0.1 * f64::from(at))))
            .collect();
        let more = plan(8, 3.0, Some(9.0));
        let plans: Vec<TimedPlan> = plans.into_iter().chain([more]).collect();
        let found = choices(&plans);
        assert_eq!(found.len(), 1);
        for rule in [TrialRule::Tune(built_in()), TrialRule::Model, TrialRule::Random(1), TrialRule::SpaceFilling] {
            let replay = replay(&found[0], rule, 0.05);
            assert!(replay.regrets.windows(2).all(|pair| pair[1] <= pair[0]), "{rule:?}: {replay:?}");
        }
        // The best, 1.3 s, is the eighth in the model's order; its second fails.
        let model = replay(&found[0], TrialRule::Model, 0.05);
        assert!((model.after(2) - (2.0 / 1.3 - 1.0)).abs() < 1e-9 && model.after(8).abs() < 1e-9, "{model:?}");
        // The grid of 3 billion parameters has tp 1, 2 and 4.
        assert_eq!(grid(&found[0]), [0, 1, 2]);
    }
}
