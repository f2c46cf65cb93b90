//! Fit of the stalls of a stack: expectation maximisation over its runs, each stalled or not.

use std::collections::BTreeMap;

use super::timed::TimedPlan;
use meshwright_planner::discrepancy::{CLASSES, StalledRun, Stalls, normal_density};

/// Iterations of the fit; the likelihood changes by less than 0.01 after half of them.
const ITERATIONS: usize = 60;
/// Fewest stalled runs that a law rests on.
const FEWEST: f64 = 10.0;
/// Parameters that stalls add: the rates, the seconds and their spread.
const PARAMETERS: f64 = 7.0;
/// Least spread of the seconds, and of the runs that do not stall.
const LEAST: f64 = 0.05;
/// Range of a rate per GPU.
const RATES: (f64, f64) = (1e-7, 1.0);

/// Stalls of a stack, and the normal law of ln(measured/predicted) of its runs that do not stall.
#[derive(Clone, Debug)]
pub(super) struct FittedStalls {
    pub law: Stalls,
    mean: f64,
    spread: f64,
}

/// Run that stalled with a probability.
struct Explained {
    run: Option<StalledRun>,
    share: f64,
    likelihood: f64,
}

impl FittedStalls {
    fn explain(&self, plan: &TimedPlan, measured: f64) -> Explained {
        let (time, mean) = (measured.ln(), plan.predicted.ln() + self.mean);
        let of = self.law.of(&plan.traits);
        let quiet = (-of.expected).exp();
        let without = quiet * normal_density(time, mean, self.spread);
        let run = of.stalled(time, mean, self.spread);
        let with = run.map_or(0.0, |run| (1.0 - quiet) * run.density);
        let likelihood = (without + with).max(f64::MIN_POSITIVE);
        Explained { run, share: with / likelihood, likelihood }
    }

    /// Whether a run stalled rather than not.
    pub fn is_stalled(&self, plan: &TimedPlan) -> bool {
        plan.measured.is_some_and(|measured| self.explain(plan, measured).share > 0.5)
    }
}

/// Weighted mean and standard deviation of values.
fn moments(values: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let weight: f64 = values.clone().map(|(weight, _)| weight).sum();
    let mean = values.clone().map(|(weight, value)| weight * value).sum::<f64>() / weight;
    (mean, (values.map(|(weight, value)| weight * (value - mean).powi(2)).sum::<f64>() / weight).sqrt())
}

/// Rate of greatest likelihood, Σ r·ln(1 − e^(−rate·n)) − (1 − r)·rate·n, of runs on n GPUs that stalled with probability r.
fn rate(runs: &[(f64, f64)]) -> f64 {
    let slope = |rate: f64| -> f64 {
        runs.iter().map(|(gpus, share)| gpus * (share / (rate * gpus).exp_m1() - (1.0 - share))).sum()
    };
    let (mut low, mut high) = RATES;
    while high / low > 1.0 + 1e-9 {
        let middle = (low * high).sqrt();
        if slope(middle) > 0.0 { low = middle } else { high = middle }
    }
    low
}

/// Stalls of one stack by its timed plans; `None` where the Bayesian information criterion prefers a normal law [schwarz-1978].
fn of_stack(plans: &[(&TimedPlan, f64)]) -> Option<FittedStalls> {
    let errors = |plan: &TimedPlan, measured: f64| (measured / plan.predicted).ln();
    let (mean, spread) = moments(plans.iter().map(|(plan, measured)| (1.0, errors(plan, *measured))));
    let plain: f64 = plans
        .iter()
        .map(|(plan, measured)| normal_density(errors(plan, *measured), mean, spread.max(LEAST)).ln())
        .sum();
    let law = Stalls { rate: [0.001; CLASSES], seconds: [1.0; CLASSES], spread: 0.5 };
    let mut fitted = FittedStalls { law, mean: 0.0, spread: 0.15 };
    for _ in 0..ITERATIONS {
        let explained: Vec<Explained> = plans.iter().map(|(plan, measured)| fitted.explain(plan, *measured)).collect();
        if explained.iter().map(|run| run.share).sum::<f64>() < FEWEST {
            return None;
        }
        let runs = || plans.iter().zip(&explained);
        let quiet = moments(runs().map(|((plan, measured), run)| (1.0 - run.share, errors(plan, *measured))));
        let mut law = fitted.law.clone();
        let (mut square, mut weight) = (0.0, 0.0);
        for class in 0..CLASSES {
            let of: Vec<_> = runs().filter(|((plan, _), _)| Stalls::class(&plan.traits) == class).collect();
            law.rate[class] =
                rate(&of.iter().map(|((plan, _), run)| (f64::from(plan.gpus), run.share)).collect::<Vec<_>>());
            let lost = || of.iter().filter_map(|(_, run)| run.run.map(|stalled| (run.share, stalled.error)));
            let stalled: f64 = lost().map(|(share, _)| share).sum();
            let shift = lost().map(|(share, error)| share * error.0).sum::<f64>() / (stalled + 1e-9);
            law.seconds[class] *= shift.exp();
            square +=
                lost().map(|(share, error)| share * (error.1 - 2.0 * shift * error.0 + shift * shift)).sum::<f64>();
            weight += stalled;
        }
        law.spread = (square / weight).sqrt().max(LEAST);
        fitted = FittedStalls { law, mean: quiet.0, spread: quiet.1.max(LEAST) };
    }
    let likelihood: f64 = plans.iter().map(|(plan, measured)| fitted.explain(plan, *measured).likelihood.ln()).sum();
    let worth = 2.0 * (likelihood - plain) - PARAMETERS * (plans.len() as f64).ln();
    (worth > 0.0).then_some(fitted)
}

/// Stalls of the stacks whose runs show them, by the name of the stack.
pub(super) fn stalls(plans: &[&TimedPlan]) -> BTreeMap<String, FittedStalls> {
    let mut stacks: BTreeMap<&str, Vec<(&TimedPlan, f64)>> = BTreeMap::new();
    for plan in plans {
        if let Some(measured) = plan.measured {
            stacks.entry(&plan.stack).or_default().push((plan, measured));
        }
    }
    stacks.into_iter().filter_map(|(stack, plans)| Some((stack.to_owned(), of_stack(&plans)?))).collect()
}
