//! Sheets as tables that fit the terminal.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, Width};

use super::Sheet;

/// Width where there is no terminal.
const WIDTH: u16 = 100;

/// A sheet under its heading.
pub fn render(sheet: &Sheet) -> String {
    let mut table = Table::new();
    table
        .load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(&sheet.columns)
        .add_rows(&sheet.rows);
    table.set_width(width());
    let words: Vec<u16> = (0..sheet.columns.len()).map(|at| longest_word(sheet, at)).collect();
    let needed =
        |padding: u16| words.iter().map(|word| word.saturating_add(padding + GAP)).fold(0, u16::saturating_add);
    let padding = u16::from(needed(1) <= width() + GAP);
    let whole_words_fit = needed(padding) <= width() + GAP;
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, padding));
        if whole_words_fit {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(words[at] + padding)));
        }
        if !sheet.rows.is_empty() && sheet.rows.iter().all(|row| row.get(at).is_some_and(|cell| is_figure(cell))) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    let body = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    if sheet.title.is_empty() { format!("{body}\n") } else { format!("{}\n{body}\n", wrapped(&sheet.title)) }
}

/// Width of the gap between two columns, beside the padding of a cell.
const GAP: u16 = 1;

fn width() -> u16 {
    let terminal = if std::io::stdout().is_terminal() { Table::new().width() } else { None };
    terminal.unwrap_or(WIDTH)
}

/// Prose in lines that fit.
pub fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let most = usize::from(width());
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= most => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

fn longest_word(sheet: &Sheet, at: usize) -> u16 {
    let cells = sheet.rows.iter().filter_map(|row| row.get(at)).chain(sheet.columns.get(at));
    let longest = cells.flat_map(|cell| cell.split_whitespace()).map(|word| word.chars().count()).max();
    u16::try_from(longest.unwrap_or(1).max(1)).unwrap_or(WIDTH)
}

/// Figures stand to the right, words to the left.
fn is_figure(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}
