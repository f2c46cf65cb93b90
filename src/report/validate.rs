//! Scores of a validation.

use super::Sheet;
use meshwright_engine::units::{percent, significant};
use meshwright_lab::validate::choice::ChoiceScore;
use meshwright_lab::validate::metrics::Errors;
use meshwright_lab::validate::omitted::{Unmeasured, Unpredicted};
use meshwright_lab::validate::order::LEAST_DIFFERENCE;
use meshwright_lab::validate::{Oom, Report, TooLarge};

/// Table of step-time errors by class.
pub fn time(report: &Report) -> Sheet {
    let columns = ["by", "class", "timed", "predicted", "mean", "median", "p90", "worst", "bias", "inside 90 %"];
    let mut sheet = Sheet::new("Step time: |predicted / measured - 1|; repeats count once", &columns);
    for class in &report.time {
        let shown = |figure: fn(&Errors) -> f64| {
            class.errors.as_ref().map_or_else(String::new, |errors| percent(figure(errors)))
        };
        sheet.push([
            class.by.to_owned(),
            class.class.clone(),
            class.timed.to_string(),
            percent(class.coverage),
            shown(|errors| errors.mean_ape),
            shown(|errors| errors.median_ape),
            shown(|errors| errors.p90_ape),
            shown(|errors| errors.worst_ape),
            shown(|errors| errors.bias),
            class.inside.map_or_else(String::new, percent),
        ]);
    }
    sheet
}

/// Table of errors over sources, each counted once whatever the number of its runs.
pub fn by_source(report: &Report) -> Sheet {
    let columns = ["runs", "sources", "median of their mean errors", "mean over runs", "bias", "inside 90 %"];
    let mut sheet = Sheet::new("Each source predicted with constants fitted without it", &columns);
    for class in &report.by_source {
        sheet.push([
            format!("{}: {}", class.class, class.errors.n),
            class.sources.to_string(),
            percent(class.median_of_means),
            percent(class.errors.mean_ape),
            percent(class.errors.bias),
            class.inside.map_or_else(String::new, percent),
        ]);
    }
    sheet
}

/// Table of peak-memory errors by kind of figure.
pub fn memory(report: &Report) -> Sheet {
    let mut sheet = Sheet::new("Peak memory", &["kind of figure", "n", "mean", "median", "p90", "worst", "bias"]);
    for class in &report.memory {
        let Errors { n, weight: _, mean_ape, median_ape, p90_ape, worst_ape, bias } = class.errors;
        sheet.push([
            class.kind.clone(),
            n.to_string(),
            percent(mean_ape),
            percent(median_ape),
            percent(p90_ape),
            percent(worst_ape),
            percent(bias),
        ]);
    }
    sheet
}

/// Table of out-of-memory predictions.
pub fn oom(report: &Report) -> Sheet {
    let oom = &report.oom;
    let Oom { true_fits, false_fits, true_ooms, false_ooms } = *oom;
    let mut sheet = Sheet::new("Out of memory", &["", "predicted to fit", "predicted not to", "wrong"]);
    let row =
        |name: &str, a: usize, b: usize, wrong: f64| [name.to_owned(), a.to_string(), b.to_string(), percent(wrong)];
    sheet.push(row("ran", true_fits, false_ooms, oom.false_oom_share()));
    sheet.push(row("ran out", false_fits, true_ooms, oom.missed_share()));
    let Oom { true_fits, false_ooms, .. } = report.oom_stated;
    let wrong = report.oom_stated.false_oom_share();
    sheet.push(row("ran, recomputation stated", true_fits, false_ooms, wrong));
    sheet
}

/// Table of runs that ran and were predicted not to fit.
pub fn too_large(report: &Report) -> Sheet {
    let mut sheet =
        Sheet::new("Ran, predicted not to fit", &["run", "predicted GiB", "measured GiB", "recomputation stated"]);
    for TooLarge { id, predicted_gib, measured_gib, recompute } in &report.too_large {
        sheet.push([
            id.clone(),
            format!("{predicted_gib:.1}"),
            measured_gib.map_or_else(String::new, |peak| format!("{peak:.1}")),
            recompute.clone(),
        ]);
    }
    sheet
}

/// Table of runs without a prediction, by reason.
pub fn unpredicted(report: &Report) -> Sheet {
    const NAMED: usize = 5;
    let mut sheet = Sheet::new("Not predicted", &["runs", "why", "which"]);
    for Unpredicted { reason, status: _, runs, ids } in &report.unpredicted {
        let more = if ids.len() > NAMED { format!(" and {} more", ids.len() - NAMED) } else { String::new() };
        let named = ids.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        sheet.push([runs.to_string(), reason.clone(), named + &more]);
    }
    sheet
}

/// Table of cells that are not measurements.
pub fn unmeasured(report: &Report) -> Sheet {
    let columns = ["run", "line", "column", "value"];
    let mut sheet = Sheet::new("Invalid measured cells, read as blank", &columns);
    for Unmeasured { id, line, column, value } in &report.unmeasured {
        let line = line.map_or_else(String::new, |line| line.to_string());
        sheet.push([id.clone(), line, (*column).to_owned(), value.clone()]);
    }
    sheet
}

/// Table of ranking quality and regret.
pub fn choice(report: &Report) -> Sheet {
    let columns =
        ["set", "groups", "plans", "Spearman", "mean regret", "worst", "best of 3", "best of 3 of more than 3"];
    let mut sheet = Sheet::new("Choosing among measured plans of one model, GPUs, batch and sequence", &columns);
    let mut all: Vec<(String, &ChoiceScore)> =
        report.choice.classes.iter().map(|score| (score.class.clone(), score)).collect();
    if let Some(score) = &report.choice_uncontradicted {
        all.insert(1, (format!("{}, without contradicted runs", score.class), score));
    }
    for (name, class) in all {
        sheet.push([
            name,
            class.groups.to_string(),
            class.plans.to_string(),
            class.mean_spearman.map_or_else(String::new, |rho| format!("{rho:.2}")),
            percent(class.mean_regret),
            percent(class.worst_regret),
            percent(class.mean_best_of_three),
            class.mean_best_of_three_of_more.map_or_else(String::new, percent),
        ]);
    }
    sheet
}

/// Table of measured pairs that are predicted in order.
pub fn order(report: &Report) -> Sheet {
    let title = format!(
        "Measured pairs of one model, GPUs, batch, precision and framework that differ by {} or more",
        percent(LEAST_DIFFERENCE)
    );
    let mut sheet = Sheet::new(&title, &["set", "pairs", "in order", "share"]);
    for order in &report.order {
        let share = order.share().map_or_else(String::new, percent);
        sheet.push([order.class.clone(), order.pairs.to_string(), order.ordered.to_string(), share]);
    }
    sheet
}

/// Table of runs that other runs contradict.
pub fn anomalies(report: &Report) -> Sheet {
    let title = "Runs that another run contradicts, independent of predictions";
    let mut sheet = Sheet::new(title, &["run", "slower", "than", "although"]);
    for anomaly in &report.anomalies {
        sheet.push([
            anomaly.id.clone(),
            format!("{:.1} times", anomaly.factor),
            anomaly.against.clone(),
            anomaly.rule.words().to_owned(),
        ]);
    }
    sheet
}

/// Table of the runs with the largest errors.
pub fn worst(report: &Report, most: usize) -> Sheet {
    let mut sheet = Sheet::new("Largest errors", &["run", "measured s", "predicted s", "error"]);
    for point in report.points.iter().take(most) {
        sheet.push([
            point.id.clone(),
            significant(point.measured_s),
            significant(point.predicted_s),
            percent(point.error),
        ]);
    }
    sheet
}
