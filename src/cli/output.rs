//! Output: data to stdout, messages to stderr. A closed pipe ends the process without an error.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

use super::format::OutputFormat;
use crate::question::Noted;
use crate::report::{Sheet, csv, markdown, table};
use meshwright_planner::catalog;

/// Prints data; if stdout is closed, ends the process with success.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("cannot write to stdout"),
    }
}

/// Prints a message to stderr; a closed stderr is ignored.
pub fn talk(text: &str) {
    // A name in a message must not steer the terminal.
    let lines: Vec<_> = text.split('\n').map(catalog::visible).collect();
    let _ = writeln!(std::io::stderr().lock(), "{}", lines.join("\n"));
}

/// The value, with its notes printed to stderr.
pub fn noted<T>(noted: Noted<T>) -> T {
    for note in &noted.notes {
        talk(note);
    }
    noted.value
}

/// Text of sheets in an output format; JSON comes from the commands' own types, not from sheets.
pub fn sheets(sheets: &[Sheet], format: OutputFormat) -> Result<String> {
    let parts: Vec<String> = match format {
        OutputFormat::Table => sheets.iter().map(table::render).collect(),
        OutputFormat::Markdown => sheets.iter().map(markdown::render).collect(),
        OutputFormat::Csv => sheets.iter().map(csv::render).collect::<Result<_, _>>()?,
        OutputFormat::Json => sheets.iter().map(objects).collect::<Result<_, _>>()?,
    };
    Ok(parts.join("\n"))
}

/// Sheet as a JSON document, for lists that have no type of their own.
fn objects(sheet: &Sheet) -> Result<String> {
    let rows: Vec<serde_json::Map<String, serde_json::Value>> = sheet
        .rows
        .iter()
        .map(|row| sheet.columns.iter().cloned().zip(row.iter().map(|cell| cell.clone().into())).collect())
        .collect();
    Ok(crate::report::json::text(&serde_json::json!({ "schema": crate::report::json::SCHEMA, "rows": rows }))?)
}
