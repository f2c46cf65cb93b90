//! Data to stdout, talk to stderr. A reader that has gone ends us quietly.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

use super::OutputFormat;
use crate::report::{Sheet, csv, markdown, table};

/// Prints data; when nobody reads any more, ends the process with success.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("cannot write to stdout"),
    }
}

/// Says something to the user. If stderr is closed, nobody wanted to hear it.
pub fn talk(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Sheets as text of this form; JSON is made of types, not of sheets, by who asks.
pub fn sheets(sheets: &[Sheet], format: OutputFormat) -> Result<String> {
    let parts: Vec<String> = match format {
        OutputFormat::Table => sheets.iter().map(table::render).collect(),
        OutputFormat::Markdown => sheets.iter().map(markdown::render).collect(),
        OutputFormat::Csv => sheets.iter().map(csv::render).collect::<Result<_, _>>()?,
        OutputFormat::Json => sheets.iter().map(objects).collect::<Result<_, _>>()?,
    };
    Ok(parts.join("\n"))
}

/// A sheet as a JSON document, for lists that have no type of their own.
fn objects(sheet: &Sheet) -> Result<String> {
    let rows: Vec<serde_json::Map<String, serde_json::Value>> = sheet
        .rows
        .iter()
        .map(|row| sheet.columns.iter().cloned().zip(row.iter().map(|cell| cell.clone().into())).collect())
        .collect();
    Ok(crate::report::json::text(&serde_json::json!({ "schema": crate::report::json::SCHEMA, "rows": rows }))?)
}
