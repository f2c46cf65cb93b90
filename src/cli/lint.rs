//! `meshwright lint`: checks a launch file against a cluster.

use anyhow::Result;
use clap::ValueEnum;

use super::format::OutputFormat;
use super::{Outcome, output};
use crate::question::LintQuestion;
use crate::report::lint as report;

/// Output format of the findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Table for people, fitted to the terminal.
    #[default]
    Table,
    /// Versioned JSON for programs.
    Json,
    /// SARIF 2.1.0 for code review.
    Sarif,
    /// Markdown for documents.
    Markdown,
    /// CSV for spreadsheets.
    Csv,
}

/// Arguments of `lint`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    asked: LintQuestion,
    /// Show every figure of the prediction, and the memory of each pipeline rank.
    #[arg(long)]
    wide: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
}

/// Runs the command; the exit code is 1 if there are errors.
pub fn run(args: &Args) -> Result<Outcome> {
    let result = args.asked.solve()?;
    let file = args.asked.file.name();
    output::print(&text(args, &result.contents(&file))?)?;
    Ok(if result.report.failed() { Outcome::NoPlan } else { Outcome::Answered })
}

fn text(args: &Args, answer: &report::LintAnswer) -> Result<String> {
    let form = match args.format {
        Form::Json => return Ok(report::json(answer)?),
        Form::Sarif => return Ok(report::sarif(&answer.report.findings, answer.file)?),
        Form::Table => OutputFormat::Table,
        Form::Markdown => OutputFormat::Markdown,
        Form::Csv => return output::sheets(&[report::sheet(&answer.report.findings, answer.file)], OutputFormat::Csv),
    };
    let glance = form == OutputFormat::Table;
    let head = if glance { report::at_a_glance(answer) } else { String::new() };
    let mut sheets = Vec::new();
    let wide = args.wide || !glance;
    if let Some((problem, evaluation)) = answer.problem.zip(answer.report.evaluation.as_ref()).filter(|_| wide) {
        sheets.push(crate::report::explain::figures(problem, evaluation));
    }
    if let Some(problem) = answer.problem.filter(|_| wide && !answer.report.footprints.is_empty()) {
        sheets.push(crate::report::explain::memory(problem, &answer.report.footprints));
    }
    if !glance {
        sheets.push(report::sheet(&answer.report.findings, answer.file));
    }
    sheets.extend(answer.verdict.iter().flat_map(|verdict| [report::verdict(verdict), report::next(verdict)]));
    let gap = if glance && !sheets.is_empty() { "\n" } else { "" };
    Ok(head + gap + &output::sheets(&sheets, form)?)
}
