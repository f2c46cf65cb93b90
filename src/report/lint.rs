//! Findings of `lint` as tables, as versioned JSON, and as SARIF 2.1.0 for code review.

use meshwright_engine::units::{percent, significant};
use serde::Serialize;
use serde_json::{Value, json};

use super::Sheet;
#[cfg(feature = "cli")]
use super::answer::{describe, figures};
use super::json::{Priced, ProblemDocument, RankMemory};
#[cfg(feature = "cli")]
use super::table;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::import::{Finding, Imported, Place, Severity};
use meshwright_frameworks::lint::measured::{Diagnosis, MeasuredDiagnosis};
use meshwright_frameworks::lint::rules::{RULES, named};
use meshwright_frameworks::lint::{Crossing, LintReport, Suggestion};
use meshwright_planner::confidence::Confidence;

/// Table of findings, one per row; positions omit the file name, which is in the title.
pub fn sheet(findings: &[Finding], file: &str) -> Sheet {
    let count = |level: Severity| findings.iter().filter(|finding| finding.level == level).count();
    let title = format!(
        "{file}: {} errors, {} warnings, {} notes",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Note)
    );
    let mut sheet = Sheet::new(title, &["level", "line", "what", "expected, or to do", "rule"]);
    for finding in findings {
        let line = |place: &Place| if place.file == file { place.line.to_string() } else { place.to_string() };
        sheet.push([
            finding.level.to_string(),
            finding.place.as_ref().map_or_else(String::new, line),
            finding.message.clone(),
            finding.expected.clone(),
            finding.rule.to_owned(),
        ]);
    }
    sheet
}

/// Rules whose notes repeat the predicted figures.
#[cfg(feature = "cli")]
const PREDICTED: [&str; 2] = ["predicted", "fits"];

/// The question, the verdict with the predicted figures, the plan, and then each finding as a line of its own.
#[cfg(feature = "cli")]
pub fn at_a_glance(answer: &LintAnswer) -> String {
    let priced = answer.problem.zip(answer.report.evaluation.as_ref());
    let findings = &answer.report.findings;
    let mut parts: Vec<String> = Vec::new();
    if let Some(problem) = answer.problem {
        parts.push(format!("{}\n", table::wrapped(&problem.heading())));
    }
    let is_shown = |finding: &&Finding| {
        let repeats = priced.is_some() && finding.level == Severity::Note && PREDICTED.contains(&finding.rule);
        !repeats
    };
    let shown: Vec<&Finding> = findings.iter().filter(is_shown).collect();
    parts.push(table::labelled("Verdict  ", &[verdict_of(&shown)]));
    if let Some((problem, evaluation)) = priced {
        parts.push(table::labelled("Predicted", &[describe(problem, &evaluation.plan), figures(problem, evaluation)]));
        parts.push(table::labelled("--plan   ", &[format!("\"{}\"", evaluation.plan)]));
    }
    let lines: Vec<String> = shown.into_iter().map(|finding| line(finding, answer.file)).collect();
    if !lines.is_empty() {
        parts.push(format!("\n{}", lines.join("\n")));
    }
    parts.join("\n") + "\n"
}

/// Number of findings of each level, in words.
#[cfg(feature = "cli")]
fn verdict_of(findings: &[&Finding]) -> String {
    let count = |level: Severity, name: &str| match findings.iter().filter(|finding| finding.level == level).count() {
        0 => format!("no {name}s"),
        1 => format!("1 {name}"),
        many => format!("{many} {name}s"),
    };
    let levels = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    levels.map(|(level, name)| count(level, name)).join(", ")
}

/// A finding with its level, its place, what to do and its rule. Of the path of the file itself, the place has the name alone.
#[cfg(feature = "cli")]
fn line(finding: &Finding, file: &str) -> String {
    let name = std::path::Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    let place = finding.place.as_ref().map_or_else(String::new, |place| {
        if place.file == file { format!("{name}:{}", place.line) } else { place.to_string() }
    });
    let todo = if finding.expected.is_empty() { String::new() } else { format!("; {}", finding.expected) };
    let label = format!("{:7}  {place:5}", finding.level.to_string());
    table::labelled(&label, &[format!("{}{todo} [{}]", finding.message, finding.rule)])
}

/// Table of the diagnosed causes of measured steps, one per row.
pub fn verdict(verdict: &MeasuredDiagnosis) -> Sheet {
    let seconds = |times: &[f64]| times.iter().map(|time| significant(*time)).collect::<Vec<_>>().join(" / ");
    let title = format!(
        "Measured {} s, predicted {} s{}",
        seconds(&verdict.measured_s),
        seconds(&verdict.predicted_s),
        if verdict.within_error { ": within the model's own error" } else { "" }
    );
    let mut sheet = Sheet::new(title, &["cause", "likelihood", "best-fitting severity", "lost s", "explains s"]);
    for cause in shown(verdict) {
        sheet.push([
            cause.cause.to_owned(),
            percent(cause.likelihood),
            match cause.with {
                Some(other) => format!("{}, beside {other}", cause.grade),
                None => cause.grade.clone(),
            },
            seconds(&cause.lost_s),
            seconds(&cause.explains_s),
        ]);
    }
    sheet
}

/// Likelihood from which a cause is shown.
const WORTH_A_LINE: f64 = 0.01;

fn shown(verdict: &MeasuredDiagnosis) -> impl Iterator<Item = &Diagnosis> {
    verdict.causes.iter().filter(|cause| cause.likelihood >= WORTH_A_LINE)
}

/// Sentences about the likely causes and the next measurement to take.
pub fn next(verdict: &MeasuredDiagnosis) -> Sheet {
    let mut sheet = Sheet::new("What to measure next", &["cause", "what it means", "measure next"]);
    for cause in shown(verdict) {
        sheet.push([cause.cause.to_owned(), cause.means.to_owned(), cause.next.to_owned()]);
    }
    if let Some(run) = &verdict.next_run {
        let says = run.says.iter().map(|(cause, time)| format!("{} s if it is {cause}", significant(*time)));
        sheet.push([
            run.says.iter().map(|(cause, _)| *cause).collect::<Vec<_>>().join(" or "),
            format!("another batch size distinguishes them: {} sequences on {} GPUs", run.global_batch, run.gpus),
            says.collect::<Vec<_>>().join(", "),
        ]);
    }
    sheet
}

/// Input and result of one run of `lint`.
pub struct LintAnswer<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Model, workload and plan read from it.
    pub imported: &'a Imported,
    /// Problem on the cluster, if the file defines one.
    pub problem: Option<&'a Problem>,
    /// Findings and faster plans.
    pub report: &'a LintReport,
    /// Diagnosis of the measured steps.
    pub verdict: Option<&'a MeasuredDiagnosis>,
    /// Command line that evaluates the plan.
    pub command: &'a str,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    file: &'a str,
    kind: &'static str,
    framework: meshwright_engine::stack::Family,
    command: &'a str,
    ok: bool,
    problem: Option<ProblemDocument>,
    prediction: Option<Priced>,
    chance_of_oom: Option<f64>,
    ranks: Vec<RankMemory>,
    crossings: &'a [Crossing],
    changes: &'a [Suggestion],
    best: Option<Priced>,
    diagnosis: Option<&'a MeasuredDiagnosis>,
    findings: &'a [Finding],
}

/// JSON answer of `lint`.
///
/// # Errors
///
/// A value has no JSON form.
pub fn json(answer: &LintAnswer) -> serde_json::Result<String> {
    let LintAnswer { file, imported, problem, report, verdict, command } = answer;
    super::json::text(&Document {
        schema: super::json::SCHEMA,
        file,
        kind: imported.kind,
        framework: imported.family,
        command,
        ok: !report.failed(),
        problem: problem.map(ProblemDocument::new),
        prediction: problem
            .zip(report.evaluation.as_ref())
            .map(|(problem, evaluation)| Priced::new(problem, evaluation)),
        chance_of_oom: problem
            .zip(report.evaluation.as_ref())
            .map(|(problem, evaluation)| Confidence::new(problem, evaluation).oom_probability),
        ranks: report.footprints.iter().map(RankMemory::new).collect(),
        crossings: &report.crossings,
        changes: &report.changes,
        best: problem.zip(report.best.as_ref()).map(|(problem, best)| Priced::new(problem, best)),
        diagnosis: *verdict,
        findings: &report.findings,
    })
}

/// Findings as SARIF 2.1.0.
///
/// # Errors
///
/// A value has no JSON form.
pub fn sarif(findings: &[Finding], file: &str) -> serde_json::Result<String> {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|rule| json!({ "id": rule.name, "shortDescription": { "text": rule.says }, "help": { "text": rule.source } }))
        .collect();
    let results: Vec<Value> = findings.iter().map(|finding| result(finding, file)).collect();
    super::json::text(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "meshwright",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    }))
}

fn result(finding: &Finding, file: &str) -> Value {
    let text = if finding.expected.is_empty() {
        finding.message.clone()
    } else {
        format!("{}; {}", finding.message, finding.expected)
    };
    let (uri, line) = finding.place.as_ref().map_or((file, 1), |place| (place.file.as_str(), place.line));
    let mut result = json!({
        "ruleId": finding.rule,
        "level": finding.level.to_string(),
        "message": { "text": text },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri_of(uri) },
            "region": { "startLine": line.max(1) },
        } }],
    });
    if let Some(index) = named(finding.rule).and_then(|rule| RULES.iter().position(|known| known == rule)) {
        result["ruleIndex"] = index.into();
    }
    if let Some(share) = finding.step_share {
        result["properties"] = json!({ "stepShare": share });
    }
    result
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase()
}

/// Path as a percent-encoded URI.
fn uri_of(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_in_the_document() {
        let names: std::collections::BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len(), "a rule stands twice");
        assert_eq!(uri_of("a b/ü.sh"), "a%20b/%C3%BC.sh");
        let page = include_str!("../../docs/lint.md");
        for rule in RULES {
            let row = format!("| `{}` | {} | {} |", rule.name, rule.says, rule.source);
            assert!(page.contains(&row), "docs/lint.md has no row: {row}");
        }
    }
}
