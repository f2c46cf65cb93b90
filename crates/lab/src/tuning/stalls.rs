//! Fit of the stalls of a stack: expectation maximisation over its runs, each stalled or not.

use std::collections::BTreeMap;

use super::timed::TimedPlan;
use meshwright_planner::discrepancy::{CLASSES, StalledRun, Stalls, normal_density};

/// Iterations of the fit; after half of them the law of nanotron's sweep is that of the end to four digits.
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
        let of = self.law.of_plan(&plan.traits);
        let quiet = (-of.expected).exp();
        let without = quiet * normal_density(time, mean, self.spread);
        let run = of.stalled(time, mean, self.spread);
        let with = run.map_or(0.0, |run| (1.0 - quiet) * run.density);
        let likelihood = (without + with).max(f64::MIN_POSITIVE);
        Explained { run, share: with / likelihood, likelihood }
    }

    /// Parameters of greatest likelihood, given how probably each run stalled by these; `None` where too few did.
    fn improved(&self, plans: &[(&TimedPlan, f64)]) -> Option<Self> {
        let explained: Vec<Explained> = plans.iter().map(|(plan, measured)| self.explain(plan, *measured)).collect();
        if explained.iter().map(|run| run.share).sum::<f64>() < FEWEST {
            return None;
        }
        let runs = || plans.iter().zip(&explained);
        let quiet = mean_and_deviation(runs().map(|((plan, measured), run)| (1.0 - run.share, error(plan, *measured))));
        let mut law = self.law.clone();
        let (mut square, mut weight) = (0.0, 0.0);
        for class in 0..CLASSES {
            let of: Vec<_> = runs().filter(|((plan, _), _)| Stalls::class(&plan.traits) == class).collect();
            law.rate[class] =
                rate(&of.iter().map(|((plan, _), run)| (f64::from(plan.gpus), run.share)).collect::<Vec<_>>());
            let lost = || of.iter().filter_map(|(_, run)| run.run.map(|stalled| (run.share, stalled)));
            let stalled: f64 = lost().map(|(share, _)| share).sum();
            let shift = lost().map(|(share, run)| share * run.error).sum::<f64>() / (stalled + 1e-9);
            law.seconds[class] *= shift.exp();
            square += lost()
                .map(|(share, run)| share * (run.squared_error - 2.0 * shift * run.error + shift * shift))
                .sum::<f64>();
            weight += stalled;
        }
        law.spread = (square / weight).sqrt().max(LEAST);
        Some(Self { law, mean: quiet.0, spread: quiet.1.max(LEAST) })
    }

    /// Whether a run stalled rather than not.
    pub fn is_stalled(&self, plan: &TimedPlan) -> bool {
        plan.measured.is_some_and(|measured| self.explain(plan, measured).share > 0.5)
    }
}

/// ln(measured/predicted) of a run.
fn error(plan: &TimedPlan, measured: f64) -> f64 {
    (measured / plan.predicted).ln()
}

/// Weighted mean and standard deviation of values.
fn mean_and_deviation(values: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
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
fn stalls_of_stack(plans: &[(&TimedPlan, f64)]) -> Option<FittedStalls> {
    let (mean, spread) = mean_and_deviation(plans.iter().map(|(plan, measured)| (1.0, error(plan, *measured))));
    let plain: f64 =
        plans.iter().map(|(plan, measured)| normal_density(error(plan, *measured), mean, spread.max(LEAST)).ln()).sum();
    let law = Stalls { rate: [0.001; CLASSES], seconds: [1.0; CLASSES], spread: 0.5 };
    let mut fitted = FittedStalls { law, mean: 0.0, spread: 0.15 };
    for _ in 0..ITERATIONS {
        fitted = fitted.improved(plans)?;
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
    stacks.into_iter().filter_map(|(stack, plans)| Some((stack.to_owned(), stalls_of_stack(&plans)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::stack::Family;
    use meshwright_planner::discrepancy::Traits;

    /// Runs of four stages on 64 GPUs, 8 micro-batches each, whose errors alternate by 4 %; the first `stalled` lose 1
    /// s, by 10 % more or less, in each.
    fn runs(stalled: u32) -> Vec<TimedPlan> {
        let run = |at: u32| {
            let sign = if at.is_multiple_of(2) { 1.0 } else { -1.0_f64 };
            let lost = if at < stalled { 8.0 * (0.1 * if at % 4 < 2 { 1.0 } else { -1.0_f64 }).exp() } else { 0.0 };
            TimedPlan {
                id: at.to_string(),
                problem: "p".into(),
                model: "m".into(),
                billions: None,
                set: "s".into(),
                stack: "stack".into(),
                gpus: 64,
                batch: 256,
                plan: at.to_string(),
                traits: Traits {
                    linear: [0.0; 13],
                    coordinates: [0.0; 6],
                    log2_gpus: 6.0,
                    micro_batches: 8.0,
                    stages: 4,
                },
                predicted: 4.0,
                measured: Some(4.0 * (0.04 * sign).exp() + lost),
                room: 1.0,
                peak: None,
                family: Family::Nanotron,
            }
        };
        (0..80).map(run).collect()
    }

    #[test]
    fn stalls_are_found_where_runs_have_them() {
        let plans = runs(40);
        let found = &stalls(&plans.iter().collect::<Vec<_>>())["stack"];
        // Half of the runs on 64 GPUs: 1 − exp(−64·rate) = ½
        assert!((found.law.rate[2] - std::f64::consts::LN_2 / 64.0).abs() < 2e-4, "{found:?}");
        assert!((found.law.seconds[2] - 1.0).abs() < 0.03 && (found.law.spread - 0.1).abs() < 0.03, "{found:?}");
        assert!(plans.iter().enumerate().all(|(at, plan)| found.is_stalled(plan) == (at < 40)));
        assert!(stalls(&runs(0).iter().collect::<Vec<_>>()).is_empty(), "noise is no stall");
    }
}
