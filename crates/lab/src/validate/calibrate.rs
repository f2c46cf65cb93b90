//! Calibration of prediction intervals: cross-validated residuals of scored runs, by class.
//!
//! The errors for a stack or GPU without data are learnt from those that have data: the constants of every stack (GPU) are
//! replaced by the median of all, and the runs are predicted with those.

use std::collections::BTreeMap;

use super::metrics::PredictedPair;
use super::pairs::{memory_pair, time_pair};
use super::sample::{PredictedRun, outcome, samples};
use super::{choice, cross};
use crate::runs::{Prediction, Row};
use meshwright_planner::catalog::fits::{Constant, Fit, value_at};
use meshwright_planner::catalog::{CatalogError, Overrides, gpu_names, stack_names};
use meshwright_planner::confidence::table::OfClass;
use meshwright_planner::confidence::{Apart, LEVELS, Quantiles, RunClass, Table};

/// Fewest runs for the quantiles of a class; a smaller class uses those of a wider one.
const FEWEST: f64 = 20.0;
/// Share of pairs that must be in the predicted order for the plans to count as distinguishable.
const IN_ORDER: f64 = 0.9;
/// Fitted constants of a stack.
const OF_STACK: [&str; 3] = ["traffic", "casts", "launches.x86"];
const OF_GPU: [&str; 6] = [
    "gemm.bf16.sustained",
    "gemm.fp8.sustained",
    "gemm.fp8-block.sustained",
    "gemm.mxfp8.sustained",
    "gemm.nvfp4.sustained",
    "hbm_efficiency",
];

/// Residual with the class of its run.
#[derive(Clone, Copy, Debug)]
struct Residual {
    class: RunClass,
    ratio: f64,
    weight: f64,
}

/// Derives the interval table of a fit from runs; `counts` selects the runs.
///
/// # Errors
///
/// A constant of the catalogue cannot be read.
pub fn calibrate(
    rows: &[Row],
    sets: &Overrides,
    name: &str,
    date: &str,
    counts: &dyn Fn(&PredictedRun) -> bool,
) -> Result<Option<Table>, CatalogError> {
    let mut time = Vec::new();
    let mut memory = Vec::new();
    let known = cross::predict(rows, sets);
    for (known_stack, known_gpu) in [(true, true), (false, true), (true, false), (false, false)] {
        let sets = strangers(sets, known_stack, known_gpu)?;
        let predictions = if known_stack && known_gpu { known.clone() } else { cross::predict(rows, &sets) };
        for sample in samples(rows, &predictions).iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample))
        {
            let class = RunClass {
                experts: sample.is_moe(),
                known_stack,
                known_gpu,
                near_limit: sample.prediction.near_limit.unwrap_or(false),
            };
            time.extend(time_pair(sample).map(|pair| residual(class, &pair)));
            memory.extend(memory_pair(sample).map(|pair| residual(class, &pair)));
        }
    }
    let known_samples = samples(rows, &known);
    let admitted: Vec<PredictedRun> =
        known_samples.iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample)).copied().collect();
    let mut classes = Vec::new();
    for class in RunClass::all() {
        let (Some(time), Some(memory)) = (quantiles(&time, class, true), quantiles(&memory, class, false)) else {
            return Ok(None);
        };
        classes.push(OfClass { class, time, memory });
    }
    Ok(Some(Table {
        name: name.to_owned(),
        date: date.to_owned(),
        source: "published-runs".into(),
        fit: sets.fit().map_or_else(|| "none".to_owned(), |fit| fit.name.clone()),
        stacks: names(&admitted, |prediction| prediction.stack.clone()),
        gpus: names(&admitted, |prediction| prediction.gpu.clone()),
        apart: apart(&admitted),
        classes,
    }))
}

fn residual(class: RunClass, pair: &PredictedPair) -> Residual {
    Residual { class, ratio: pair.measured / pair.predicted, weight: pair.weight }
}

fn names(samples: &[PredictedRun], name: fn(&Prediction) -> Option<String>) -> Vec<String> {
    let mut names: Vec<String> = samples
        .iter()
        .filter(|sample| sample.measured().is_some())
        .filter_map(|sample| name(sample.prediction))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Quantiles of a class, rounded outwards. With too few runs, distinctions are dropped one after another: first nearness to
/// the memory limit, then experts.
fn quantiles(residuals: &[Residual], class: RunClass, by_limit: bool) -> Option<Quantiles> {
    let of = |admits: &dyn Fn(&RunClass) -> bool| -> Vec<(f64, f64)> {
        residuals.iter().filter(|of| admits(&of.class)).map(|of| (of.ratio, of.weight)).collect()
    };
    let same = |other: &RunClass| other.known_stack == class.known_stack && other.known_gpu == class.known_gpu;
    let candidates = [
        of(&|other| {
            same(other) && other.experts == class.experts && (!by_limit || other.near_limit == class.near_limit)
        }),
        of(&|other| same(other) && other.experts == class.experts),
        of(&|other| same(other)),
    ];
    let enough = |ratios: &Vec<(f64, f64)>| ratios.iter().map(|(_, weight)| weight).sum::<f64>() >= FEWEST;
    let found = candidates.iter().find(|ratios| enough(ratios)).unwrap_or(&candidates[2]);
    let mut found = Quantiles::of(found)?;
    for (value, level) in found.values.iter_mut().zip(LEVELS) {
        let thousandth = *value * 1e3;
        *value = if level < 0.5 { thousandth.floor() } else { thousandth.ceil() } / 1e3;
    }
    Some(found)
}

/// Overrides that give every stack, or every GPU, the median constants of all, as if it had no data of its own.
fn strangers(sets: &Overrides, known_stack: bool, known_gpu: bool) -> Result<Overrides, CatalogError> {
    let mut constants = Vec::new();
    if !known_stack {
        constants.extend(medians("stack", &stack_names(), &OF_STACK, sets)?);
    }
    if !known_gpu {
        constants.extend(medians("gpu", &gpu_names(), &OF_GPU, sets)?);
    }
    let mut fit = sets.fit().cloned().unwrap_or_else(Fit::empty);
    fit.constants.extend(constants);
    Ok(sets.clone().with_fit(Some(fit.into())))
}

/// Median constants: for every entry that has a value at a key, the median of all entries that do.
fn medians(section: &str, names: &[&str], keys: &[&str], sets: &Overrides) -> Result<Vec<Constant>, CatalogError> {
    let mut constants = Vec::new();
    for key in keys {
        let mut values: BTreeMap<String, (f64, String)> = BTreeMap::new();
        for name in names {
            let full = format!("{section}.{name}.{key}");
            if let Some(value) = value_at(&full, sets)? {
                let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
                if let Ok(number) = text[..digits].parse() {
                    values.insert(full, (number, text[digits..].to_owned()));
                }
            }
        }
        let mut sorted: Vec<f64> = values.values().map(|(number, _)| *number).collect();
        sorted.sort_by(f64::total_cmp);
        let Some(&middle) = sorted.get(sorted.len() / 2) else { continue };
        constants.extend(values.into_iter().map(|(key, (_, unit))| {
            let value = if unit.is_empty() {
                toml::Value::Float(middle)
            } else {
                toml::Value::String(format!("{middle}{unit}"))
            };
            Constant::plain(key, value)
        }));
    }
    Ok(constants)
}

/// Least gap g such that of pairs predicted at least g apart, nine of ten are in the predicted order.
fn apart(ran: &[PredictedRun]) -> Apart {
    let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in ran {
        if let Some(pair) = time_pair(sample) {
            groups.entry(choice::name(sample)).or_default().push((pair.predicted, pair.measured));
        }
    }
    let mut pairs: Vec<(f64, bool)> = Vec::new();
    for plans in groups.values() {
        for (at, a) in plans.iter().enumerate() {
            for b in &plans[at + 1..] {
                let (fast, slow) = if a.0 <= b.0 { (a, b) } else { (b, a) };
                pairs.push((slow.0 / fast.0 - 1.0, fast.1 <= slow.1));
            }
        }
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut right = 0.0;
    let mut gap = pairs.first().map_or(0.1, |(gap, _)| *gap);
    for (at, (predicted, in_order)) in pairs.iter().enumerate() {
        right += f64::from(u8::from(*in_order));
        if right / (at as f64 + 1.0) >= IN_ORDER {
            gap = *predicted;
        }
    }
    Apart { gap: (gap * 1e3).ceil() / 1e3, pairs: pairs.len() as u32 }
}

/// Share of runs inside intervals derived from other folds.
pub fn coverage(rows: &[Row], predictions: &[Prediction], counts: &dyn Fn(&PredictedRun) -> bool) -> Option<f64> {
    let folds = cross::folds(rows);
    let residuals: Vec<(usize, Residual)> = samples(rows, predictions)
        .iter()
        .enumerate()
        .filter(|(_, sample)| outcome(sample.row) == "ok" && counts(sample))
        .filter_map(|(at, sample)| {
            let near_limit = sample.prediction.near_limit.unwrap_or(false);
            let class = RunClass { experts: sample.is_moe(), known_stack: true, known_gpu: true, near_limit };
            time_pair(sample).map(|pair| (folds[at], residual(class, &pair)))
        })
        .collect();
    let mut inside = 0.0;
    let mut all = 0.0;
    for fold in 0..meshwright_planner::catalog::fits::FOLDS {
        let rest: Vec<Residual> =
            residuals.iter().filter(|(of, _)| *of != fold).map(|(_, residual)| *residual).collect();
        for (_, residual) in residuals.iter().filter(|(of, _)| *of == fold) {
            let (low, high) = quantiles(&rest, residual.class, true)?.interval();
            inside += residual.weight * f64::from(u8::from((low..=high).contains(&residual.ratio)));
            all += residual.weight;
        }
    }
    (all > 0.0).then(|| inside / all)
}
