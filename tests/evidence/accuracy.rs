//! How right the model is on published runs: `docs/accuracy.md`, and a ratchet under its headline figures.
//!
//! `UPDATE_EXPECT=1 cargo test --test evidence accuracy` writes both files anew. A headline figure that got worse is refused even
//! then: who means it edits `tests/published/accuracy.json` by hand, where it shows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use crate::accuracy_document::document;
use meshwright::catalog::Overrides;
use meshwright::catalog::fits;
use meshwright::confidence::table;
use meshwright::runs::{self, Prediction, Row};
use meshwright::validate::calibrate::{CalibrationRuns, InsideOfSource, calibrate, coverage, trusted};
use meshwright::validate::filter::Filter;
use meshwright::validate::order::PairOrder;
use meshwright::validate::sample::{PredictedRun, outcome, samples};
use meshwright::validate::sources::{self, SourceFits, basis};
use meshwright::validate::{Report, SourceCoverage, cross, memory_coverage, score};

/// Smallest change of a headline figure that counts: figures are shown to a tenth of a per cent.
const SHOWN: f64 = 0.000_5;

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn rows() -> Vec<Row> {
    runs::read(File::open(path("tests/published/runs.csv")).unwrap()).unwrap()
}

/// Further runs of the nanotron sweep, which are not scored: they show which of the scored ones contradict another.
fn witnesses() -> Vec<Row> {
    runs::read(File::open(path("tests/published/witnesses.csv")).unwrap()).unwrap()
}

pub fn only(items: &[&str]) -> Vec<Filter> {
    items.iter().map(|item| Filter::parse(item).unwrap()).collect()
}

/// The default fit, from its file: new constants can be scored before they are built in.
pub fn fit() -> Overrides {
    let file = path("clusters/fits").join(format!("{}.toml", fits::DEFAULT));
    fits::over(Overrides::specification(), file.to_str().unwrap()).unwrap()
}

/// Constants fitted without each source.
fn source_fits() -> SourceFits {
    toml::from_str(&std::fs::read_to_string(path("tests/published/without-source.toml")).unwrap()).unwrap()
}

/// Files of runs that no constant is fitted to, whose errors make the intervals. Others test them.
pub const OF_INTERVALS: [&str; 13] = [
    "publishers",
    "strangers",
    "later",
    "blind",
    "accelerators",
    "fresh",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
];

/// Runs that no constant is fitted to, for the intervals.
fn for_intervals() -> Vec<Row> {
    let read =
        |name: &str| runs::read(File::open(path(&format!("tests/published/unfitted/{name}.csv"))).unwrap()).unwrap();
    trusted(OF_INTERVALS.iter().flat_map(|name| read(name)).collect())
}

/// Files of runs that no constant is fitted to, by their names.
pub fn unfitted() -> BTreeMap<String, Vec<Row>> {
    let files = std::fs::read_dir(path("tests/published/unfitted")).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|file| file.extension().is_some_and(|extension| extension == "csv"));
    let name = |file: &PathBuf| file.file_stem().unwrap().to_str().unwrap().to_owned();
    tables.map(|file| (name(&file), runs::read(File::open(&file).unwrap()).unwrap())).collect()
}

pub struct Scored {
    pub rows: Vec<Row>,
    pub crossed: Vec<Prediction>,
    pub report: Report,
    /// Each source predicted with constants fitted without it.
    pub without: Report,
    pub fitted: Report,
    /// Files of runs that no constant is fitted to.
    pub unfitted: BTreeMap<String, Report>,
    pub specification: Report,
    /// Runs inside intervals that were derived without their source, by source.
    pub coverage: BTreeMap<String, InsideOfSource>,
    pub peaks: Vec<SourceCoverage>,
}

impl Scored {
    fn new() -> Self {
        let rows = rows();
        let sets = fit();
        let filters = only(&["purpose=pretrain"]);
        let crossed = cross::predict(&rows, &sets);
        let witnesses = witnesses();
        let of = |predictions: &[Prediction]| score(&samples(&rows, predictions), &filters, &witnesses);
        let report = of(&crossed);
        let fits = source_fits();
        let predicted = sources::predict(&rows, &sets, &fits);
        let (own, apart): (Vec<Row>, Vec<Prediction>) =
            rows.iter().cloned().zip(predicted).filter_map(|(row, of)| Some((row, of?))).unzip();
        let without = score(&samples(&own, &apart), &filters, &witnesses);
        let fitted = of(&runs::predict_all_with(&rows, &sets));
        let of_others = |rows: &[Row]| score(&samples(rows, &runs::predict_all_with(rows, &sets)), &filters, &[]);
        let unfitted = unfitted().into_iter().map(|(name, rows)| (name, of_others(&rows))).collect();
        let specification = of(&runs::predict_all_with(&rows, &Overrides::specification()));
        let counts = |sample: &PredictedRun| filters.iter().all(|filter| filter.admits(sample));
        let measured = CalibrationRuns { fitted: &rows, unfitted: &for_intervals() };
        let coverage = coverage(measured, &sets, &fits, &counts).unwrap();
        let all = samples(&rows, &crossed);
        let counted: Vec<PredictedRun> =
            all.into_iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample)).collect();
        let peaks = memory_coverage(&counted);
        drop(counted);
        Self { rows, crossed, report, without, fitted, unfitted, specification, coverage, peaks }
    }
}

/// A headline figure: what it is, what was asked, and how to read it off a report.
pub struct Headline {
    pub key: &'static str,
    pub words: &'static str,
    pub bar: f64,
    /// Whether more is better.
    pub more: bool,
    pub of: fn(&Report) -> Option<f64>,
}

pub fn mean(report: &Report, by: &str, class: &str) -> Option<f64> {
    report.time.iter().find(|of| of.by == by && of.class == class)?.errors.map(|errors| errors.mean_ape)
}

fn memory(report: &Report, kind: &str) -> Option<f64> {
    report.memory.iter().find(|of| of.kind == kind).map(|of| of.errors.mean_ape)
}

pub const HEADLINES: [Headline; 17] = [
    Headline {
        key: "coverage",
        words: "share of runs predicted",
        bar: 0.97,
        more: true,
        of: |r| Some(r.time[0].coverage),
    },
    Headline {
        key: "mean",
        words: "step time, mean error, all",
        bar: 0.075,
        more: false,
        of: |r| mean(r, "all", "all"),
    },
    Headline {
        key: "megatron_dense",
        words: "the same, Megatron-Core dense",
        bar: 0.055,
        more: false,
        of: |r| mean(r, "family", "Megatron-Core dense"),
    },
    Headline { key: "moe", words: "the same, MoE", bar: 0.08, more: false, of: |r| mean(r, "experts", "MoE") },
    Headline { key: "fsdp", words: "the same, FSDP sets", bar: 0.08, more: false, of: |r| mean(r, "family", "FSDP") },
    Headline {
        key: "median",
        words: "step time, median error",
        bar: 0.042,
        more: false,
        of: |r| r.time[0].errors.map(|e| e.median_ape),
    },
    Headline {
        key: "bias",
        words: "step time, absolute bias",
        bar: 0.02,
        more: false,
        of: |r| r.time[0].errors.map(|e| e.bias.abs()),
    },
    Headline { key: "memory", words: "peak memory, mean error, all", bar: 0.06, more: false, of: |r| memory(r, "all") },
    Headline {
        key: "memory_allocated",
        words: "the same, allocated",
        bar: 0.02,
        more: false,
        of: |r| memory(r, "allocated"),
    },
    Headline {
        key: "memory_reserved",
        words: "the same, reserved",
        bar: 0.05,
        more: false,
        of: |r| memory(r, "reserved"),
    },
    Headline {
        key: "false_fits_of_fits",
        words: "predicted to fit, ran out (of what is predicted to fit)",
        bar: 0.03,
        more: false,
        of: |r| Some(r.oom.false_fit_share()),
    },
    Headline {
        key: "false_fits",
        words: "predicted to fit, ran out (of what ran out)",
        bar: 0.03,
        more: false,
        of: |r| Some(r.oom.missed_share()),
    },
    Headline {
        key: "regret",
        words: "plan regret, mean",
        bar: 0.05,
        more: false,
        of: |r| r.choice.classes.first().map(|c| c.mean_regret),
    },
    Headline {
        key: "regret_uncontradicted",
        words: "the same, without runs that others contradict",
        bar: 0.05,
        more: false,
        of: |r| r.choice_uncontradicted.as_ref().map(|c| c.mean_regret),
    },
    Headline {
        key: "best_of_three",
        words: "plan regret, best of 3",
        bar: 0.02,
        more: false,
        of: |r| r.choice.classes.first().map(|c| c.mean_best_of_three),
    },
    Headline {
        key: "spearman",
        words: "rank correlation",
        bar: 0.0,
        more: true,
        of: |r| r.choice.classes.first().and_then(|c| c.mean_spearman),
    },
    Headline {
        key: "pair_order",
        words: "measured pairs in order",
        bar: 0.92,
        more: true,
        of: |r| r.order.first().and_then(PairOrder::share),
    },
];

/// Figures of sources that the constants were fitted without: key, words, bar and value.
pub fn of_sources(scored: &Scored) -> Vec<(&'static str, &'static str, f64, f64)> {
    let of = |class: &str| scored.without.by_source.iter().find(|of| of.class == class).unwrap();
    vec![
        ("source_all", "median over sources of their mean error, all", 0.14, of("all").median_of_means),
        ("source_dense", "the same, dense", 0.10, of("dense").median_of_means),
        ("source_moe", "the same, MoE", 0.16, of("MoE").median_of_means),
        ("source_runs", "mean error over their runs", 0.14, of("all").errors.mean_ape),
        ("source_runs_dense", "the same, dense", 0.10, of("dense").errors.mean_ape),
        ("source_runs_moe", "the same, MoE", 0.16, of("MoE").errors.mean_ape),
    ]
}

fn headlines(scored: &Scored) -> BTreeMap<String, f64> {
    let tenth = |value: f64| (value * 1e3).round() / 1e3;
    let of_sources = of_sources(scored).into_iter().map(|(key, _, _, value)| (key.to_owned(), tenth(value)));
    let of_runs =
        HEADLINES.iter().map(|headline| (headline.key.to_owned(), tenth((headline.of)(&scored.report).unwrap())));
    let of_unfitted = scored.unfitted.iter();
    let of_unfitted =
        of_unfitted.map(|(name, report)| (format!("unfitted_{name}"), tenth(mean(report, "all", "all").unwrap())));
    of_runs.chain(of_sources).chain(of_unfitted).collect()
}

#[test]
fn accuracy_is_as_recorded() {
    let scored = Scored::new();
    let now = headlines(&scored);
    let record = path("tests/published/accuracy.json");
    let text = std::fs::read_to_string(&record).unwrap_or_else(|_| "{}".into());
    let known: BTreeMap<String, f64> = serde_json::from_str(&text).unwrap();
    let more = |key: &str| HEADLINES.iter().any(|headline| headline.key == key && headline.more);
    let moved = |better: bool| -> Vec<String> {
        now.iter()
            .filter_map(|(key, value)| {
                let before = known.get(key)?;
                let gain = if more(key) { value - before } else { before - value };
                (if better { gain > SHOWN } else { gain < -SHOWN }).then(|| format!("{key}: {before} -> {value}"))
            })
            .collect()
    };
    let worse = moved(false);
    assert!(
        worse.is_empty(),
        "accuracy got worse: {worse:#?}\nif it must, say why in the change and edit {}",
        record.display()
    );
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&record, serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
    } else {
        let better = moved(true);
        assert!(better.is_empty() && known.len() == now.len(), "record what got better (UPDATE_EXPECT=1): {better:#?}");
    }
    expect_test::expect_file![path("docs/accuracy.md")].assert_eq(&document(&scored));
}

/// The constants by source are those of these runs, this list and these stated constants.
#[test]
fn constants_by_source_are_fresh() {
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let (sets, fits) = (fit(), source_fits());
    let fit = sets.fit().unwrap();
    let free = read(&format!("clusters/fits/free/{}.toml", fit.name));
    assert_eq!(fits.fit, fit.name);
    assert_eq!(
        fits.basis,
        basis(&read("tests/published/runs.csv"), &free, fit),
        "run `meshwright fit --sources` again (docs/cost-model.md)"
    );
}

/// Sanity check of the scorer: a perfect model has no error.
/// The command of docs/cost-model.md makes the built-in file, so that what it names as known is what published runs have.
#[test]
fn intervals_are_fresh() {
    let (rows, others, sets, built_in) = (rows(), for_intervals(), fit(), table());
    let filters = only(&["purpose=pretrain"]);
    let counts = |sample: &PredictedRun| filters.iter().all(|filter| filter.admits(sample));
    let runs = CalibrationRuns { fitted: &rows, unfitted: &others };
    let made = calibrate(runs, &sets, &source_fits(), &built_in.name, &built_in.date, &counts).unwrap();
    assert_eq!(&made, built_in, "run `meshwright intervals` again");
}

#[test]
fn a_perfect_model_would_have_no_error() {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.step_time_canon_s.is_some()).collect();
    let predictions: Vec<Prediction> =
        rows.iter().map(|row| Prediction { step_time_s: row.step_time_canon_s, ..runs::predict(row) }).collect();
    let report = score(&samples(&rows, &predictions), &[], &[]);
    let errors = report.time[0].errors.unwrap();
    assert!(errors.mean_ape < 1e-12 && errors.bias.abs() < 1e-12);
    let choice = &report.choice.classes[0];
    assert!(choice.mean_regret < 1e-12 && (choice.mean_spearman.unwrap() - 1.0).abs() < 1e-12);
    let twice: Vec<Prediction> = predictions
        .iter()
        .map(|prediction| Prediction {
            step_time_s: prediction.step_time_s.map(|time| time * 2.0),
            ..prediction.clone()
        })
        .collect();
    let report = score(&samples(&rows, &twice), &[], &[]);
    let errors = report.time[0].errors.unwrap();
    assert!((errors.mean_ape - 1.0).abs() < 1e-12 && (errors.bias - 1.0).abs() < 1e-12);
    assert!(report.choice.classes[0].mean_regret < 1e-12, "regret does not depend on scale");
}
