//! How right the model is on published runs: `docs/accuracy.md`, and a ratchet under its headline figures.
//!
//! `UPDATE_EXPECT=1 cargo test --test evidence accuracy` writes both files anew. A headline figure that got worse is refused even
//! then: who means it edits `tests/published/accuracy.json` by hand, where it shows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::path::PathBuf;

use crate::missed::Causes;
use meshwright::catalog::Overrides;
use meshwright::catalog::fits::{self, FOLDS};
use meshwright::report::{Sheet, markdown, validate as sheets};
use meshwright::runs::{self, Prediction, Row};
use meshwright::units::percent;
use meshwright::validate::calibrate::coverage;
use meshwright::validate::filter::Filter;
use meshwright::validate::order::PairOrder;
use meshwright::validate::sample::{PredictedRun, outcome, samples};
use meshwright::validate::sources::{self, SourceFits, basis};
use meshwright::validate::{Report, SourceCoverage, cross, memory_coverage, score};

/// Smallest change of a headline figure that counts: figures are shown to a tenth of a per cent.
const SHOWN: f64 = 0.000_5;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn rows() -> Vec<Row> {
    runs::read(File::open(path("tests/published/runs.csv")).unwrap()).unwrap()
}

/// Further runs of the nanotron sweep, which are not scored: they show which of the scored ones contradict another.
fn witnesses() -> Vec<Row> {
    runs::read(File::open(path("tests/published/witnesses.csv")).unwrap()).unwrap()
}

fn only(items: &[&str]) -> Vec<Filter> {
    items.iter().map(|item| Filter::parse(item).unwrap()).collect()
}

/// The default fit, from its file: new constants can be scored before they are built in.
fn fit() -> Overrides {
    let file = path("clusters/fits").join(format!("{}.toml", fits::DEFAULT));
    Overrides::specification().with_fit(fits::fit(file.to_str().unwrap()).unwrap())
}

/// Constants fitted without each source.
fn source_fits() -> SourceFits {
    toml::from_str(&std::fs::read_to_string(path("tests/published/without-source.toml")).unwrap()).unwrap()
}

struct Scored {
    rows: Vec<Row>,
    crossed: Vec<Prediction>,
    report: Report,
    /// Each source predicted with constants fitted without it.
    without: Report,
    fitted: Report,
    specification: Report,
    coverage: f64,
    peaks: Vec<SourceCoverage>,
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
        let specification = of(&runs::predict_all_with(&rows, &Overrides::specification()));
        let counts = |sample: &PredictedRun| filters.iter().all(|filter| filter.admits(sample));
        let coverage = coverage(&rows, &sets, &fits, &counts).unwrap();
        let all = samples(&rows, &crossed);
        let counted: Vec<PredictedRun> =
            all.into_iter().filter(|sample| outcome(sample.row) == "ok" && counts(sample)).collect();
        let peaks = memory_coverage(&counted);
        drop(counted);
        Self { rows, crossed, report, without, fitted, specification, coverage, peaks }
    }
}

/// A headline figure: what it is, what was asked, and how to read it off a report.
struct Headline {
    key: &'static str,
    words: &'static str,
    bar: f64,
    /// Whether more is better.
    more: bool,
    of: fn(&Report) -> Option<f64>,
}

fn mean(report: &Report, by: &str, class: &str) -> Option<f64> {
    report.time.iter().find(|of| of.by == by && of.class == class)?.errors.map(|errors| errors.mean_ape)
}

fn memory(report: &Report, kind: &str) -> Option<f64> {
    report.memory.iter().find(|of| of.kind == kind).map(|of| of.errors.mean_ape)
}

const HEADLINES: [Headline; 16] = [
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
        bar: 0.085,
        more: false,
        of: |r| mean(r, "all", "all"),
    },
    Headline {
        key: "megatron_dense",
        words: "the same, Megatron-Core dense",
        bar: 0.05,
        more: false,
        of: |r| mean(r, "family", "Megatron-Core dense"),
    },
    Headline { key: "moe", words: "the same, MoE", bar: 0.10, more: false, of: |r| mean(r, "experts", "MoE") },
    Headline { key: "fsdp", words: "the same, FSDP sets", bar: 0.08, more: false, of: |r| mean(r, "family", "FSDP") },
    Headline {
        key: "median",
        words: "step time, median error",
        bar: 0.055,
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
    Headline { key: "memory", words: "peak memory, mean error, all", bar: 0.07, more: false, of: |r| memory(r, "all") },
    Headline {
        key: "memory_stated",
        words: "the same, allocated or reserved",
        bar: 0.03,
        more: false,
        of: |r| memory(r, "allocated or reserved"),
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
fn of_sources(scored: &Scored) -> Vec<(&'static str, &'static str, f64, f64)> {
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

/// Table of [`of_sources`], with the share of runs inside their interval.
fn table_of_sources(scored: &Scored) -> Sheet {
    let mut sheet = Sheet::new("", &["figure", "target", "now", "met"]);
    let yes = |met: bool| if met { "yes" } else { "no" }.to_owned();
    for (_, words, bar, value) in of_sources(scored) {
        sheet.push([words.to_owned(), format!("at most {}", percent(bar)), percent(value), yes(value <= bar)]);
    }
    let inside = scored.coverage;
    let met = (0.85..=0.95).contains(&inside);
    sheet.push(["runs inside the 90 % interval".into(), "85 % to 95 %".into(), percent(inside), yes(met)]);
    sheet
}

/// Table of the peaks of each source against the interval that is made without it.
fn table_of_peaks(peaks: &[SourceCoverage]) -> Sheet {
    let mut sheet = Sheet::new("", &["source", "family", "interval", "peaks", "inside", "above"]);
    let share = |part: f64, all: f64| if all > 0.0 { percent(part / all) } else { String::new() };
    for of in peaks {
        let (low, high) = of.interval;
        sheet.push([
            of.source.clone(),
            serde_json::to_value(of.family).unwrap().as_str().unwrap().to_owned(),
            format!("{low:.2} to {high:.2}"),
            format!("{:.0}", of.runs),
            share(of.inside, of.runs),
            share(of.above, of.runs),
        ]);
    }
    let sum = |part: fn(&SourceCoverage) -> f64| peaks.iter().map(part).sum::<f64>();
    let (all, inside, above) = (sum(|of| of.runs), sum(|of| of.inside), sum(|of| of.above));
    let total =
        ["all".to_owned(), String::new(), String::new(), format!("{all:.0}"), share(inside, all), share(above, all)];
    sheet.push(total);
    sheet
}

fn headlines(scored: &Scored) -> BTreeMap<String, f64> {
    let tenth = |value: f64| (value * 1e3).round() / 1e3;
    let of_sources = of_sources(scored).into_iter().map(|(key, _, _, value)| (key.to_owned(), tenth(value)));
    let of_runs =
        HEADLINES.iter().map(|headline| (headline.key.to_owned(), tenth((headline.of)(&scored.report).unwrap())));
    of_runs.chain(of_sources).collect()
}

fn table(scored: &Scored) -> Sheet {
    let columns =
        ["figure", "target", "cross-validated", "on the runs fitted to", "specification (`--fit none`)", "met"];
    let mut sheet = Sheet::new("", &columns);
    for Headline { key: _, words, bar, more, of } in &HEADLINES {
        let shown = |value: Option<f64>| {
            value.map_or_else(String::new, |v| if *bar > 0.0 { percent(v) } else { format!("{v:.2}") })
        };
        let value = of(&scored.report).unwrap();
        let met = if *more { value >= *bar } else { value <= *bar };
        let target = if *bar > 0.0 {
            format!("{} {}", if *more { "at least" } else { "at most" }, percent(*bar))
        } else {
            String::new()
        };
        sheet.push([
            (*words).to_owned(),
            target,
            shown(Some(value)),
            shown(of(&scored.fitted)),
            shown(of(&scored.specification)),
            if *bar <= 0.0 {
                String::new()
            } else if met {
                "yes".into()
            } else {
                "no".into()
            },
        ]);
    }
    sheet
}

/// Runs without those that other runs contradict.
fn without_anomalies(scored: &Scored) -> Report {
    let flagged: Vec<&String> = scored.report.anomalies.iter().map(|anomaly| &anomaly.id).collect();
    let kept = |row: &Row| !row.id.as_ref().is_some_and(|id| flagged.contains(&id));
    let places: Vec<usize> = (0..scored.rows.len()).filter(|&at| kept(&scored.rows[at])).collect();
    let rows: Vec<Row> = places.iter().map(|&at| scored.rows[at].clone()).collect();
    let predictions: Vec<Prediction> = places.iter().map(|&at| scored.crossed[at].clone()).collect();
    score(&samples(&rows, &predictions), &only(&["purpose=pretrain"]), &[])
}

/// How far repeats of one run are apart: the floor under every error.
fn noise(rows: &[Row]) -> String {
    let mut repeats: BTreeMap<String, (bool, Vec<f64>)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.outcome.as_deref() == Some("ok")) {
        let (Some(seconds), Some(gpus), Some(batch)) = (row.step_time_canon_s, row.gpus_total, row.global_batch) else {
            continue;
        };
        let key = format!("{}|{gpus}|{batch}|{:?}", row.config_group.as_deref().unwrap_or_default(), row.dtype_detail);
        let group = repeats.entry(key).or_insert_with(|| (row.experts.is_some_and(|e| e > 1.0), Vec::new()));
        group.1.push(seconds);
    }
    let middle = |moe: bool| {
        let mut spreads: Vec<f64> = repeats
            .values()
            .filter(|(experts, times)| *experts == moe && times.len() > 1)
            .map(|(_, times)| {
                let most = times.iter().fold(0.0_f64, |a, b| a.max(*b));
                most / times.iter().fold(f64::INFINITY, |a, b| a.min(*b)) - 1.0
            })
            .collect();
        spreads.sort_by(f64::total_cmp);
        (spreads.len(), spreads.get(spreads.len() / 2).copied().unwrap_or_default())
    };
    let ((dense_n, dense), (moe_n, moe)) = (middle(false), middle(true));
    format!(
        "Runs of one layout, GPUs and batch that were published more than once differ by {} in the median when dense \
         ({dense_n} groups) and by {} with experts ({moe_n} groups), longest over shortest.",
        percent(dense),
        percent(moe)
    )
}

/// The runs with the largest errors, and their causes.
fn largest_errors(scored: &Scored, causes: &Causes) -> Sheet {
    let mut sheet = Sheet::new("", &["run", "measured s", "predicted s", "error", "what is known"]);
    for point in scored.report.points.iter().take(40) {
        let flagged = scored.report.anomalies.iter().find(|anomaly| anomaly.id == point.id);
        let flag =
            flagged.map(|anomaly| format!("{:.1} times {}: {}", anomaly.factor, anomaly.against, anomaly.rule.words()));
        let cause = causes.of_time(&point.id).map(str::to_owned);
        let words: Vec<String> = flag.into_iter().chain(cause).collect();
        sheet.push([
            point.id.clone(),
            format!("{:.3}", point.measured_s),
            format!("{:.3}", point.predicted_s),
            percent(point.error),
            if words.is_empty() { "not known".into() } else { words.join("; ") },
        ]);
    }
    sheet
}

/// Every bar that is missed, row by row.
fn missed_bars(scored: &Scored, causes: &Causes) -> String {
    let filters = only(&["purpose=pretrain"]);
    let all = samples(&scored.rows, &scored.crossed);
    let kept: Vec<PredictedRun> =
        all.into_iter().filter(|sample| filters.iter().all(|filter| filter.admits(sample))).collect();
    crate::missed::document(&scored.report, &kept, causes)
}

fn document(scored: &Scored) -> String {
    let sets = fit();
    let fit = sets.fit().unwrap();
    let with_folds = fit.constants.iter().filter(|constant| !constant.folds.is_empty()).count();
    let clean = without_anomalies(scored);
    let mut out = String::new();
    let _ = write!(
        out,
        "# Accuracy\n\n\
         Written by `UPDATE_EXPECT=1 cargo test --test evidence accuracy`; do not edit. Errors are |predicted/measured − 1| of runs \
         that trained from scratch and ended well (`purpose=pretrain`, `outcome=ok`) in `tests/published/runs.csv`; repeats \
         of one run count once. `meshwright validate --runs tests/published/runs.csv --only purpose=pretrain \
         --witnesses tests/published/witnesses.csv --cross-validated` prints the same.\n\n\
         *Cross-validated*: each run is predicted with constants that were fitted without its configuration (`config_group`) \
         and without the other plans of its choice ({FOLDS} folds; decisions/0006-folds-by-choice.md). Of the {} constants of fit `{}`, {with_folds} are fitted to runs and have a value for each fold; the \
         others are stated by their source, or were chosen while these runs were at hand. The specification's own constants, \
         which stay under all of this, were fitted to this half of the runs too, and its rules were made with it in view: \
         only runs kept aside can say how much that flatters.\n\n",
        fit.constants.len(),
        fit.name,
    );
    let section = |out: &mut String, title: &str, text: &str, sheet: &Sheet| {
        let sheet = Sheet { title: String::new(), ..sheet.clone() };
        let _ = write!(out, "\n## {title}\n\n{text}{}", markdown::render(&sheet).trim_start());
    };
    section(
        &mut out,
        "Sources that the constants were fitted without",
        "What to expect on runs of a publisher that nobody tuned for: every source of five runs or more is predicted with \
         constants fitted without all of its runs (`tests/published/without-source.toml`, written by `meshwright fit \
         --sources`); `meshwright validate --sources` prints the same.\n\n",
        &table_of_sources(scored),
    );
    section(&mut out, "The same by class", "", &sheets::time(&scored.without));
    let _ = write!(out, "\n## Configurations that the constants were fitted without\n\n");
    let _ = write!(out, "{}\n{}\n", markdown::render(&table(scored)).trim_start(), noise(&scored.rows));
    let causes = Causes::read(&path("tests/published/causes.csv"), &scored.rows);
    let _ = write!(out, "\n## Bars that are missed, run by run\n\n{}", missed_bars(scored, &causes));
    section(&mut out, "Step time by class", "", &sheets::time(&scored.report));
    section(&mut out, "Peak memory by kind of figure", "", &sheets::memory(&scored.report));
    section(
        &mut out,
        "Peaks of sources that their interval was made without",
        "The 90 % interval of a family's peaks, made from the other sources alone; a family that no other source has takes that of \
         all of them. A share above it of 5 % is what `--risk` accepts by default.\n\n",
        &table_of_peaks(&scored.peaks),
    );
    section(&mut out, "Running out of memory", "", &sheets::oom(&scored.report));
    section(&mut out, "Ran, predicted not to fit", "", &sheets::too_large(&scored.report));
    section(
        &mut out,
        "Choosing a plan",
        "Groups of three measured layouts or more that share set, model, GPUs, format, batch and sequence. Regret is the \
         measured time of the plan predicted fastest over the best measured, less 1. With three layouts the best of three is \
         the best by itself: the last column leaves those groups out.\n\n",
        &sheets::choice(&scored.report),
    );
    section(
        &mut out,
        "Order of measured pairs",
        "Pairs of runs of one model, GPU, number of GPUs, batch, precision and framework whose measured step times differ by \
         5 % or more: the share whose faster run is predicted faster.\n\n",
        &sheets::order(&scored.report),
    );
    section(
        &mut out,
        "Runs that other runs contradict",
        &format!(
            "Found by comparing rows with rows, and with the rows of the nanotron sweep that are not scored \
             (`tests/published/witnesses.csv`); no prediction is looked at. They count in every figure above. Without them \
             the mean error is {}, and the mean regret {} over {} groups.\n\n",
            percent(mean(&clean, "all", "all").unwrap_or_default()),
            percent(clean.choice.classes.first().map_or(0.0, |choice| choice.mean_regret)),
            clean.choice.classes.first().map_or(0, |choice| choice.groups),
        ),
        &sheets::anomalies(&scored.report),
    );
    section(&mut out, "Largest errors", "", &largest_errors(scored, &causes));
    out
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
