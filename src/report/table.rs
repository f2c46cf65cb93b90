//! Sheets as tables that fit the terminal.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::Sheet;

/// Width where there is no terminal.
const WIDTH: u16 = 100;

/// A sheet under its heading.
pub fn render(sheet: &Sheet) -> String {
    let mut table = Table::new();
    table
        .load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(&sheet.columns)
        .add_rows(&sheet.rows);
    if !std::io::stdout().is_terminal() {
        table.set_width(WIDTH);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        if !sheet.rows.is_empty() && sheet.rows.iter().all(|row| row.get(at).is_some_and(|cell| is_figure(cell))) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    let body = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    if sheet.title.is_empty() { format!("{body}\n") } else { format!("{}\n{body}\n", sheet.title) }
}

/// Figures stand to the right, words to the left.
fn is_figure(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}
