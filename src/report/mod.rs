//! What is shown: sheets of text for people, versioned JSON and CSV for programs, all from the library's own types.

pub mod basis;
pub mod bill;
pub mod calibration;
pub mod compare;
pub mod csv;
pub mod explain;
pub mod hosts;
pub mod import;
pub mod json;
pub mod lint;
pub mod markdown;
pub mod page;
pub mod placed;
pub mod plans;
pub mod pools;
pub mod refined;
pub mod scatter;
pub mod svg;
pub mod sweep;
pub mod sweep_csv;
#[cfg(feature = "parquet")]
pub mod sweep_parquet;
#[cfg(feature = "cli")]
pub mod table;
pub mod ties;
pub mod trace;
pub mod validate;
pub mod verify;
pub mod why;

/// A table before it has a form: a heading, the columns, the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// Heading; empty for none.
    pub title: String,
    /// Name of each column, with its unit.
    pub columns: Vec<String>,
    /// As many cells in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// A sheet with these columns and no row yet.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self { title: title.into(), columns: columns.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }
}
