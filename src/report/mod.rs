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

pub use crate::cost::Figures;

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

/// Three significant digits, as every predicted figure is shown.
pub fn significant(value: f64) -> String {
    let digits = match value.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A share as a percentage; what rounds to nothing has no sign.
pub fn percent(share: f64) -> String {
    match format!("{:.1} %", share * 100.0) {
        nothing if nothing == "-0.0 %" => "0.0 %".into(),
        text => text,
    }
}

/// A term's name in words: `tp_comm` is `tp comm`.
pub fn in_words(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_enough() {
        assert_eq!(significant(1234.5), "1234");
        assert_eq!(significant(12.345), "12.3");
        assert_eq!(significant(1.2345), "1.23");
        assert_eq!(significant(0.0), "0");
        assert_eq!(percent(0.4321), "43.2 %");
        assert_eq!(percent(-0.0004), "0.0 %");
    }
}
