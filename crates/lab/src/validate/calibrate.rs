//! Calibration of prediction intervals: residuals of runs that are predicted with constants fitted without their source, by
//! class.
//!
//! Whoever plans is a source that the constants were not fitted to. So are sources to which nothing is fitted: their
//! runs count, too. The errors on a stack or GPU without data are those of the runs whose stack or GPU no other source
//! has.

use std::collections::{BTreeMap, BTreeSet};

use super::metrics::PredictedPair;
use super::pairs::time_pair;
use super::sample::{PredictedRun, outcome, samples, set};
use super::sources::{self, SourceFits};
use super::weights::{OF_SOURCE, outwards};
use super::{choice, cross, memory, networks};
use crate::runs::{Prediction, Row, is_generic, mixers_of, predict_all_with};
use meshwright_engine::model::MixerKind;
use meshwright_planner::catalog::Overrides;
use meshwright_planner::confidence::{OfClass, OrderGap, Quantiles, RunClass, StackRuns, Stacks, Table, Weighted};

/// Least weight of the runs for the quantiles of a class; a smaller class uses those of a wider one.
const FEWEST: f64 = 10.0;
/// Share of pairs that must be in the predicted order for the plans to count as distinguishable.
const IN_ORDER: f64 = 0.9;

/// Measured runs to calibrate with.
#[derive(Clone, Copy, Debug)]
pub struct CalibrationRuns<'a> {
    /// Runs that constants are fitted to; each is predicted with those fitted without its source.
    pub fitted: &'a [Row],
    /// Runs of other sources, to which nothing is fitted ([`trusted`]).
    pub unfitted: &'a [Row],
}

/// Runs without those of low trust, whose source omits settings that decide their time.
pub fn trusted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.retain(|row| row.trust.as_deref() != Some("low"));
    rows
}

/// Residual with the class and the source of its run.
#[derive(Clone, Debug)]
struct Residual {
    class: RunClass,
    source: String,
    ratio: f64,
    weight: f64,
}

/// Derives the interval table of a fit from runs, each predicted with constants fitted without its source; `counts` selects
/// the runs. `None` without any.
pub fn calibrate(
    runs: CalibrationRuns,
    sets: &Overrides,
    fits: &SourceFits,
    name: &str,
    date: &str,
    counts: &dyn Fn(&PredictedRun) -> bool,
) -> Option<Table> {
    let time = residuals(runs, sets, fits, counts);
    let admits = |sample: &PredictedRun| outcome(sample.row) == "ok" && counts(sample);
    let (known, others) = (cross::predict(runs.fitted, sets), predict_all_with(runs.unfitted, sets));
    let admitted: Vec<PredictedRun> = samples(runs.fitted, &known).into_iter().filter(admits).collect();
    let others: Vec<PredictedRun> = samples(runs.unfitted, &others).into_iter().filter(admits).collect();
    // Peaks depend on what a framework allocates, which its source states: the folds hold them as well as sources would.
    let families = memory::families(&admitted)?;
    let stacks = |experts| {
        let of_kind = admitted.iter().chain(&others).filter(|sample| sample.is_moe() == experts);
        names(of_kind, |prediction| prediction.stack.clone())
    };
    let classes = RunClass::all().map(|class| Some(OfClass { class, time: quantiles(&time, class)? }));
    Some(Table {
        name: name.to_owned(),
        date: date.to_owned(),
        source: "published-runs".into(),
        fit: sets.fit().map_or_else(|| "none".to_owned(), |fit| fit.name.clone()),
        gpus: names(admitted.iter().chain(&others), |prediction| prediction.gpu.clone()),
        mixers: mixers(admitted.iter().chain(&others)),
        stacks: Stacks { dense: stacks(false), moe: stacks(true) },
        apart: order_gap(&admitted),
        networks: networks::rates(admitted.iter().chain(&others)),
        classes: classes.collect::<Option<Vec<OfClass>>>()?,
        families,
    })
}

/// Residuals of step times, by predictions with constants that were fitted without the run's source. A GPU counts as known where
/// another source has runs of it, a stack where another has runs of it with a model of the same kind, dense or mixture.
fn residuals(
    runs: CalibrationRuns,
    sets: &Overrides,
    fits: &SourceFits,
    counts: &dyn Fn(&PredictedRun) -> bool,
) -> Vec<Residual> {
    let predicted = sources::predict(runs.fitted, sets, fits).into_iter();
    let predicted = predicted.chain(predict_all_with(runs.unfitted, sets).into_iter().map(Some));
    let rows = runs.fitted.iter().chain(runs.unfitted).cloned();
    let (own, predictions): (Vec<Row>, Vec<Prediction>) =
        rows.zip(predicted).filter_map(|(row, of)| Some((row, of?))).unzip();
    let samples = samples(&own, &predictions);
    let counted: Vec<&PredictedRun> =
        samples.iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample)).collect();
    let known_elsewhere = |sample: &PredictedRun, matches: fn(&PredictedRun, &PredictedRun) -> bool| {
        counted.iter().any(|other| other.set() != sample.set() && matches(other, sample))
    };
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for sample in counted.iter().filter(|sample| sample.measured().is_some()) {
        *shares.entry(sample.set()).or_default() += sample.weight;
    }
    let residual_of = |sample: &&PredictedRun| {
        let class = RunClass {
            experts: sample.is_moe(),
            stack: match known_elsewhere(sample, |a, b| {
                a.prediction.stack == b.prediction.stack
                    && a.is_moe() == b.is_moe()
                    && is_generic(a.row) == is_generic(b.row)
            }) {
                false => StackRuns::None,
                true if is_generic(sample.row) => StackRuns::Generic,
                true => StackRuns::Own,
            },
            known_gpu: known_elsewhere(sample, |a, b| a.prediction.gpu == b.prediction.gpu),
            near_limit: sample.prediction.near_limit.unwrap_or(false),
        };
        let share = shares.get(sample.set()).map_or(1.0, |share| share.powf(OF_SOURCE - 1.0));
        time_pair(sample).map(|pair| residual(class, sample.set(), &pair, share))
    };
    counted.iter().filter_map(residual_of).collect()
}

fn residual(class: RunClass, source: &str, pair: &PredictedPair, share: f64) -> Residual {
    Residual { class, source: source.to_owned(), ratio: pair.measured / pair.predicted, weight: pair.weight * share }
}

fn names<'s>(
    samples: impl Iterator<Item = &'s PredictedRun<'s>>,
    name: fn(&Prediction) -> Option<String>,
) -> Vec<String> {
    let mut names: Vec<String> =
        samples.filter(|sample| sample.measured().is_some()).filter_map(|sample| name(sample.prediction)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Kinds of mixers of the models whose runs have an error.
fn mixers<'s>(samples: impl Iterator<Item = &'s PredictedRun<'s>>) -> Vec<MixerKind> {
    let with_error = samples.filter(|sample| time_pair(sample).is_some());
    with_error.flat_map(|sample| mixers_of(sample.row)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Quantiles of a class, rounded outwards. With too few measurements, distinctions are dropped one after another: nearness to
/// the memory limit, experts, the GPU, then which of stack and GPU is unknown. Intervals where less is known are nowhere narrower than
/// those where more is.
fn quantiles(residuals: &[Residual], class: RunClass) -> Option<Quantiles> {
    let residuals_of = |admits: &dyn Fn(&RunClass) -> bool| -> Vec<Weighted> {
        let admitted = residuals.iter().filter(|of| admits(&of.class));
        admitted.map(|of| Weighted { value: of.ratio, weight: of.weight }).collect()
    };
    let same = |other: &RunClass| other.stack == class.stack && other.known_gpu == class.known_gpu;
    let known = |of: &RunClass| of.stack != StackRuns::None && of.known_gpu;
    let candidates = [
        residuals_of(&|other| same(other) && other.experts == class.experts && other.near_limit == class.near_limit),
        residuals_of(&|other| same(other) && other.experts == class.experts),
        residuals_of(&|other| same(other)),
        residuals_of(&|other| other.stack == class.stack),
        residuals_of(&|other| known(other) == known(&class)),
        residuals_of(&|_| true),
    ];
    let enough = |ratios: &Vec<Weighted>| ratios.iter().map(|ratio| ratio.weight).sum::<f64>() >= FEWEST;
    let found = candidates.iter().find(|ratios| enough(ratios)).unwrap_or(&candidates[5]);
    let mut found = outwards(Quantiles::of(found)?);
    let better = StackRuns::ALL.into_iter().flat_map(|stack| [true, false].map(|known_gpu| (stack, known_gpu)));
    for (stack, known_gpu) in better {
        let known = RunClass { stack, known_gpu, ..class };
        if known != class && known.knows_as_much_as(class) {
            found = found.widened(&quantiles(residuals, known)?);
        }
    }
    Some(found)
}

/// Two plans of one choice that both ran.
struct PlanPair<'r> {
    /// Source of the runs.
    source: &'r str,
    /// Predicted time of the slower plan over that of the faster, less 1.
    gap: f64,
    /// Whether they were measured in the predicted order.
    in_order: bool,
}

/// Every pair of plans of one choice, source by source.
fn plan_pairs<'r>(ran: &'r [PredictedRun]) -> Vec<PlanPair<'r>> {
    let mut choices: BTreeMap<(&'r str, String), Vec<PredictedPair>> = BTreeMap::new();
    for sample in ran {
        if let Some(times) = time_pair(sample) {
            choices.entry((sample.set(), choice::name(sample))).or_default().push(times);
        }
    }
    let pair = |source, a: &PredictedPair, b: &PredictedPair| {
        let (fast, slow) = if a.predicted <= b.predicted { (a, b) } else { (b, a) };
        PlanPair { source, gap: slow.predicted / fast.predicted - 1.0, in_order: fast.measured <= slow.measured }
    };
    let mut pairs = Vec::new();
    for ((source, _), plans) in &choices {
        for (at, a) in plans.iter().enumerate() {
            pairs.extend(plans[at + 1..].iter().map(|b| pair(*source, a, b)));
        }
    }
    pairs
}

/// Least gap g such that of pairs predicted at least g apart, nine of ten are in the predicted order; pairs weigh by source.
fn order_gap(ran: &[PredictedRun]) -> OrderGap {
    let mut pairs = plan_pairs(ran);
    let mut of_source: BTreeMap<&str, f64> = BTreeMap::new();
    for pair in &pairs {
        *of_source.entry(pair.source).or_default() += 1.0;
    }
    pairs.sort_by(|a, b| b.gap.total_cmp(&a.gap));
    let (mut right, mut all) = (0.0, 0.0);
    let mut gap = pairs.first().map_or(0.1, |pair| pair.gap);
    for pair in &pairs {
        let weight = of_source[pair.source].powf(OF_SOURCE - 1.0);
        right += weight * f64::from(u8::from(pair.in_order));
        all += weight;
        if right / all >= IN_ORDER {
            gap = pair.gap;
        }
    }
    OrderGap { gap: (gap * 1e3).ceil() / 1e3, pairs: pairs.len() as u32 }
}

/// Runs of a source and those of them that are inside intervals derived from the residuals of other sources only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InsideOfSource {
    /// Weight of its runs.
    pub runs: f64,
    /// Weight of those inside.
    pub inside: f64,
}

/// Runs inside intervals derived without their source, by source.
pub fn coverage(
    runs: CalibrationRuns,
    sets: &Overrides,
    fits: &SourceFits,
    counts: &dyn Fn(&PredictedRun) -> bool,
) -> Option<BTreeMap<String, InsideOfSource>> {
    let time = residuals(runs, sets, fits, counts);
    let sources: BTreeSet<&str> = time.iter().map(|of| of.source.as_str()).collect();
    let mut found = BTreeMap::new();
    for source in sources {
        let rest: Vec<Residual> = time.iter().filter(|of| of.source != source).cloned().collect();
        let mut covered = InsideOfSource::default();
        for of in time.iter().filter(|of| of.source == source) {
            let interval = quantiles(&rest, of.class)?.interval();
            covered.runs += of.weight;
            covered.inside += of.weight * f64::from(u8::from(interval.contains(&of.ratio)));
        }
        found.insert(source.to_owned(), covered);
    }
    Some(found)
}

/// The sources of rows, of a map by source.
pub fn of_sources<'s>(
    by_source: &'s BTreeMap<String, InsideOfSource>,
    rows: &'s [Row],
) -> impl Iterator<Item = &'s InsideOfSource> {
    let sources: BTreeSet<&str> = rows.iter().map(set).collect();
    sources.into_iter().filter_map(|source| by_source.get(source))
}

/// Share of the runs of some sources inside intervals derived without each; `None` without any.
pub fn share_inside<'s>(of: impl Iterator<Item = &'s InsideOfSource>) -> Option<f64> {
    let (inside, runs) = of.fold((0.0, 0.0), |(inside, runs), of| (inside + of.inside, runs + of.runs));
    (runs > 0.0).then(|| inside / runs)
}
