//! Cells of a row as text, for the keys that group runs and for filters.

/// Text of a cell; empty for a blank one.
pub(super) fn text(cell: Option<&String>) -> String {
    cell.cloned().unwrap_or_default()
}

/// Number of a cell as text; `blank` for a blank one.
pub(super) fn number(cell: Option<f64>, blank: &str) -> String {
    cell.map_or_else(|| blank.to_owned(), |value| value.to_string())
}
