//! `docs/accuracy.md`: its sections and tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::accuracy::{HEADLINES, Headline, OF_INTERVALS, Scored, fit, mean, of_sources, only, path, unfitted};
use crate::missed::Causes;
use meshwright::catalog::fits::FOLDS;
use meshwright::confidence::Interval;
use meshwright::report::{Sheet, markdown, validate as sheets};
use meshwright::runs::{Prediction, Row};
use meshwright::units::percent;
use meshwright::validate::calibrate::{self, InsideOfSource, share_inside};
use meshwright::validate::sample::{PredictedRun, samples};
use meshwright::validate::{Report, SourceCoverage, score};

/// Table of [`of_sources`], with the share of runs inside their interval.
fn table_of_sources(scored: &Scored) -> Sheet {
    let mut sheet = Sheet::new("", &["figure", "target", "now", "met"]);
    let yes = |met: bool| if met { "yes" } else { "no" }.to_owned();
    for (_, words, bar, value) in of_sources(scored) {
        sheet.push([words.to_owned(), format!("at most {}", percent(bar)), percent(value), yes(value <= bar)]);
    }
    let inside = share_inside(calibrate::of_sources(&scored.coverage, &scored.rows)).unwrap();
    let met = (0.85..=0.95).contains(&inside);
    sheet.push(["runs inside the 90 % interval".into(), "85 % to 95 %".into(), percent(inside), yes(met)]);
    sheet
}

/// Table of the runs of each file without a fitted constant that are inside intervals derived without their source.
fn table_of_intervals(scored: &Scored) -> Sheet {
    let mut sheet = Sheet::new("", &["file", "sources", "runs", "inside"]);
    let mut row = |name: &str, rows: &[Row]| {
        let of: Vec<&InsideOfSource> = calibrate::of_sources(&scored.coverage, rows).collect();
        let runs = of.iter().map(|of| of.runs).sum::<f64>();
        let inside = share_inside(of.iter().copied()).map_or_else(String::new, percent);
        sheet.push([name.to_owned(), of.len().to_string(), format!("{runs:.0}"), inside]);
    };
    let files = unfitted();
    for name in OF_INTERVALS {
        row(&format!("`{name}.csv`"), &files[name]);
    }
    let all: Vec<Row> = OF_INTERVALS.iter().flat_map(|name| files[*name].clone()).collect();
    row("all", &all);
    sheet
}

/// Table of the peaks of each source against the interval that is made without it.
fn table_of_peaks(peaks: &[SourceCoverage]) -> Sheet {
    let mut sheet = Sheet::new("", &["source", "family", "interval", "peaks", "inside", "above"]);
    let share = |part: f64, all: f64| if all > 0.0 { percent(part / all) } else { String::new() };
    for of in peaks {
        let Interval { low, high } = of.interval;
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
fn missed_targets(scored: &Scored, causes: &Causes) -> String {
    let filters = only(&["purpose=pretrain"]);
    let all = samples(&scored.rows, &scored.crossed);
    let kept: Vec<PredictedRun> =
        all.into_iter().filter(|sample| filters.iter().all(|filter| filter.admits(sample))).collect();
    crate::missed::document(&scored.report, &kept, causes)
}

/// Text of `docs/accuracy.md`.
pub fn document(scored: &Scored) -> String {
    let sets = fit();
    let fit = sets.fit().unwrap();
    let with_folds = fit.constants.iter().filter(|constant| !constant.folds.is_empty()).count();
    let clean = without_anomalies(scored);
    let mut out = String::new();
    let _ = write!(
        out,
        "# Accuracy\n\n\
         Written by `UPDATE_EXPECT=1 cargo test --test evidence accuracy`; do not edit. Errors are \
         |predicted/measured − 1| of runs \
         that pre-trained and finished (`purpose=pretrain`, `outcome=ok`) in `tests/published/runs.csv`; repeats \
         of one run count once. `meshwright validate --runs tests/published/runs.csv --only purpose=pretrain \
         --witnesses tests/published/witnesses.csv --cross-validated` prints the same.\n\n\
         *Cross-validated*: each run is predicted with constants that were fitted without its configuration (`config_group`) \
         and without the other plans of its choice ({FOLDS} folds; decisions/0006-folds-by-choice.md). Of the {} \
         constants of fit `{}`, {with_folds} are fitted to runs and have a value for each fold; the \
         others are stated by their source, or were chosen with these runs in view. The specification's own constants, \
         on which the fit builds, were fitted to these runs too, and its rules were chosen with them in view: \
         only held-out runs show how optimistic the figures are.\n\n",
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
        "The error to expect for a new publisher: every source of five runs or more is predicted with \
         constants fitted without any of its runs (`tests/published/without-source.toml`, written by `meshwright fit \
         --sources`); `meshwright validate --sources` prints the same.\n\n",
        &table_of_sources(scored),
    );
    section(&mut out, "Without the source, by class", "", &sheets::time(&scored.without));
    let _ = write!(
        out,
        "\n## Runs that no constant is fitted to\n\n\
         Files of [tests/published/unfitted](../tests/published/unfitted/README.md), predicted with the default fit: \
         none of their runs is used in it. Corrections of a stack or of the mapping that they led to \
         are taken from the frameworks' code, and stated with that source.\n"
    );
    section(
        &mut out,
        "Their share inside the 90 % interval derived without their source",
        "Errors of these files make the intervals, of dense models and mixtures, of stacks of their own and generic ones; for this table \
         each source is left out in turn. Low trust does not count, and runs of one measurement weigh as one. In the tables below a run's own source is \
         among those that made its interval.\n\n",
        &table_of_intervals(scored),
    );
    for (name, report) in &scored.unfitted {
        let sheet = Sheet { title: String::new(), ..sheets::time(report) };
        let _ = write!(out, "\n### `{name}.csv`\n\n{}", markdown::render(&sheet).trim_start());
    }
    let _ = write!(out, "\n## Configurations that the constants were fitted without\n\n");
    let _ = write!(out, "{}\n{}\n", markdown::render(&table(scored)).trim_start(), noise(&scored.rows));
    let causes = Causes::read(&path("tests/published/causes.csv"), &scored.rows);
    let _ = write!(out, "\n## Targets that are missed, run by run\n\n{}", missed_targets(scored, &causes));
    section(&mut out, "Step time by class", "", &sheets::time(&scored.report));
    section(&mut out, "Peak memory by kind of figure", "", &sheets::memory(&scored.report));
    section(
        &mut out,
        "Peaks of sources whose interval was derived without them",
        "The 90 % interval of a family's peaks, derived from the other sources; a family that no other source has takes that of \
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
         always the best: the last column leaves those groups out.\n\n",
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
            "Found by comparing rows with each other, and with the rows of the nanotron sweep that are not scored \
             (`tests/published/witnesses.csv`), without predictions. They count in every figure above. Without them \
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
