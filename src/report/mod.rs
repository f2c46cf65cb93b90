//! Reports: text sheets for people, versioned JSON and CSV for programs, all from the library's own types.

pub mod answer;
pub mod basis;
pub mod bill;
pub mod calibration;
pub mod compare;
pub mod csv;
#[cfg(test)]
pub(crate) mod example;
pub mod explain;
pub mod hosts;
pub mod html;
pub mod import;
pub mod json;
pub mod lint;
pub mod markdown;
mod markup;
pub mod placed;
pub mod plans;
pub mod pools;
pub mod pools_advice;
pub mod pools_document;
mod prediction;
pub mod recalibrated;
mod recommended;
pub mod refined;
pub mod sweep;
pub mod sweep_csv;
#[cfg(feature = "parquet")]
pub mod sweep_parquet;
#[cfg(feature = "cli")]
pub mod table;
pub mod ties;
pub mod trace;
pub mod transfers;
pub mod validate;
pub mod verify;
pub mod why;

/// Table independent of its output format: a title, the columns, the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// Title; empty for none.
    pub title: String,
    /// Names of the columns, with their units.
    pub columns: Vec<String>,
    /// Cells by row, as many as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Creates a sheet with these columns and no rows.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self { title: title.into(), columns: columns.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// The sheet without a column; itself if it has none of that name.
    #[must_use]
    pub fn without(mut self, column: &str) -> Self {
        if let Some(at) = self.columns.iter().position(|name| name == column) {
            self.columns.remove(at);
            self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
        self
    }

    /// Appends a row of cells.
    pub fn push<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }
}
