//! Fit of the discrepancy model: maximum a posteriori of its spreads and scales by coordinate descent.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::likelihood::{Group, stack_posterior};
use super::stalls::stalls;
use super::timed::TimedPlan;
use meshwright_planner::discrepancy::{DiscrepancyTable, StackCoefficients, Stalls, TRAITS, TraitSpread};

/// Ratio to the fastest predicted plan of a choice above which a plan does not count: nobody would try it.
const RELEVANT: f64 = 4.0;
/// Factors by which a parameter is changed, coarse to fine.
const FACTORS: [f64; 3] = [3.0, 1.8, 1.3];
/// Rounds over all parameters with one factor, at most.
const ROUNDS: usize = 2;
/// Range of a parameter.
const RANGE: (f64, f64) = (1e-3, 20.0);
/// Share of the device's memory up to which a failure counts as a crash.
const SMALL: f64 = 0.5;
/// Fewest plans of a choice whose memory errors count for what they have in common.
const FEWEST: usize = 2;

/// Scales of a stack that are tried, from 0.1 by eighths of a doubling to 2.
fn scales() -> impl Iterator<Item = f64> {
    (0..=34).map(|step| 0.1 * (f64::from(step) / 8.0).exp2())
}

/// Groups by stack, each stack with its scale.
type Stacks<'a> = BTreeMap<&'a str, (f64, Vec<Group<'a>>)>;

/// Groups of relevant plans by stack: the plans of one problem on any number of GPUs are a group.
fn groups<'a>(plans: &[&'a TimedPlan]) -> Stacks<'a> {
    let mut fastest: BTreeMap<(&str, u32, u32), f64> = BTreeMap::new();
    for plan in plans.iter().filter(|plan| plan.measured.is_some()) {
        let least = fastest.entry((&plan.problem, plan.gpus, plan.batch)).or_insert(f64::INFINITY);
        *least = least.min(plan.predicted);
    }
    let mut groups: BTreeMap<&str, BTreeMap<&str, Group>> = BTreeMap::new();
    for plan in plans {
        let Some(measured) = plan.measured else { continue };
        if plan.predicted <= RELEVANT * fastest[&(plan.problem.as_str(), plan.gpus, plan.batch)] {
            let of_stack = groups.entry(&plan.stack).or_default();
            of_stack.entry(&plan.problem).or_default().push((plan, (measured / plan.predicted).ln()));
        }
    }
    groups.into_iter().map(|(stack, of)| (stack, (1.0, of.into_values().collect()))).collect()
}

/// Parameters of a table in one list: spreads across stacks, spreads within them, then the scales.
fn parameters(table: &DiscrepancyTable) -> Vec<f64> {
    let across = table.traits.iter().map(|spread| spread.across);
    let within = table.traits.iter().map(|spread| spread.within);
    across.chain(within).chain([table.smooth, table.length, table.reach, table.own]).collect()
}

/// Table with these parameters.
fn with_parameters(table: &DiscrepancyTable, values: &[f64]) -> DiscrepancyTable {
    let (across, rest) = values.split_at(TRAITS.len());
    let (within, scales) = rest.split_at(TRAITS.len());
    let spreads = across.iter().zip(within).zip(TRAITS);
    DiscrepancyTable {
        smooth: scales[0],
        length: scales[1],
        reach: scales[2],
        own: scales[3],
        traits: spreads.map(|((&across, &within), name)| TraitSpread { name: name.into(), across, within }).collect(),
        ..table.clone()
    }
}

/// −2 times the logarithm of the posterior density: the marginal likelihood, half-normal priors of 0.3 on the spreads, and
/// log-normal ones on the length (2) and the reach (3 doublings), which keep what few runs show near to nothing.
fn objective(table: &DiscrepancyTable, groups: &Stacks) -> f64 {
    let deviance: f64 = groups
        .par_iter()
        .map(|(_, (scale, of))| deviance(table, *scale, of))
        .collect::<Vec<f64>>() // summed in one order, whatever the number of threads
        .iter()
        .sum();
    let spreads: f64 = table.traits.iter().map(|spread| spread.across.powi(2) + spread.within.powi(2)).sum();
    let scales = (table.length / 2.0).ln().powi(2) + (table.reach / 3.0).ln().powi(2);
    deviance + spreads / 0.3_f64.powi(2) + 2.0 * scales
}

/// −2 times the logarithm of the density of a stack's runs and of its scale, whose logarithm has a normal prior of
/// standard deviation ½ about 0.
fn deviance(table: &DiscrepancyTable, scale: f64, groups: &[Group]) -> f64 {
    let likelihood = stack_posterior(table, scale, groups).map_or(f64::INFINITY, |posterior| posterior.deviance);
    likelihood + (scale.ln() / 0.5).powi(2)
}

/// Fits the discrepancy model to timed plans; the spreads and the scales of stacks in turn.
pub fn fit(plans: &[&TimedPlan], name: &str, date: &str, constants: &str) -> DiscrepancyTable {
    let stalls = stalls(plans);
    let quiet: Vec<&TimedPlan> = plans
        .iter()
        .copied()
        .filter(|plan| !stalls.get(plan.stack.as_str()).is_some_and(|of| of.is_stalled(plan)))
        .collect();
    let mut groups = groups(&quiet);
    let traits = TRAITS.map(|name| TraitSpread { name: name.into(), across: 0.1, within: 0.1 });
    let all = || groups.values().flat_map(|(_, of)| of);
    let start = DiscrepancyTable {
        name: name.into(),
        date: date.into(),
        source: "published-runs".into(),
        fit: constants.into(),
        runs: all().map(|group| group.len() as u32).sum(),
        problems: all().count() as u32,
        smooth: 0.1,
        length: 1.5,
        reach: 3.0,
        own: 0.1,
        memory_shared: memory_shared(plans),
        crashes: crashes(plans),
        traits: traits.into(),
        stacks: Vec::new(),
    };
    let table = descend(&start, &groups);
    for (scale, of) in groups.values_mut() {
        let best = scales().min_by(|a, b| deviance(&table, *a, of).total_cmp(&deviance(&table, *b, of)));
        *scale = rounded(best.expect("there are scales"));
    }
    let table = descend(&table, &groups);
    let stacks = groups.iter().filter_map(|(stack, (scale, of))| {
        let posterior = stack_posterior(&table, *scale, of)?;
        Some(StackCoefficients {
            name: (*stack).to_owned(),
            runs: of.iter().map(|group| group.len() as u32).sum(),
            scale: *scale,
            stalls: stalls.get(*stack).map(|of| written(&of.law)),
            mean: posterior.mean.iter().map(|value| rounded(*value)).collect(),
            covariance: posterior
                .covariance
                .row_iter()
                .map(|row| row.iter().map(|value| rounded(*value)).collect())
                .collect(),
        })
    });
    let stacks = stacks.collect();
    DiscrepancyTable { stacks, ..table }
}

/// Value to seven significant digits, as files have it.
fn rounded(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

/// Law of stalls as files have it.
fn written(law: &Stalls) -> Stalls {
    Stalls { rate: law.rate.map(rounded), seconds: law.seconds.map(rounded), spread: rounded(law.spread) }
}

/// Multiplies and divides one parameter after another while that lowers the objective.
fn descend(start: &DiscrepancyTable, groups: &Stacks) -> DiscrepancyTable {
    let mut values = parameters(start);
    let mut least = objective(start, groups);
    for factor in FACTORS {
        for _ in 0..ROUNDS {
            let before = least;
            for at in 0..values.len() {
                for factor in [factor, 1.0 / factor] {
                    loop {
                        let mut moved = values.clone();
                        moved[at] = (moved[at] * factor).clamp(RANGE.0, RANGE.1);
                        let found = objective(&with_parameters(start, &moved), groups);
                        if found >= least - 1e-6 {
                            break;
                        }
                        (values, least) = (moved, found);
                    }
                }
            }
            if before - least < 0.5 {
                break;
            }
        }
    }
    with_parameters(start, &values.iter().map(|value| rounded(*value)).collect::<Vec<f64>>())
}

/// Share of the variance of memory errors that plans of one problem have in common (one-way analysis of variance).
fn memory_shared(plans: &[&TimedPlan]) -> f64 {
    let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for plan in plans {
        groups.entry(&plan.problem).or_default().extend(plan.peak);
    }
    let groups: Vec<Vec<f64>> = groups.into_values().filter(|group| group.len() >= FEWEST).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let within = |group: &Vec<f64>| group.iter().map(|value| (value - mean(group)).powi(2)).sum::<f64>();
    let freedom: usize = groups.iter().map(|group| group.len() - 1).sum();
    if groups.len() < FEWEST || freedom == 0 {
        return 0.0;
    }
    let own = groups.iter().map(within).sum::<f64>() / freedom as f64;
    let means: Vec<f64> = groups.iter().map(|group| mean(group)).collect();
    let between = means.iter().map(|value| (value - mean(&means)).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
    rounded((between / (between + own)).clamp(0.0, 1.0))
}

/// Share of failures among runs that are predicted to fill at most half of the memory.
fn crashes(plans: &[&TimedPlan]) -> f64 {
    let small: Vec<_> = plans.iter().filter(|plan| plan.room >= -SMALL.ln()).collect();
    let failed = small.iter().filter(|plan| plan.measured.is_none()).count();
    // Laplace's rule of succession, so that no run never crashes
    rounded((failed as f64 + 1.0) / (small.len() as f64 + 2.0))
}
