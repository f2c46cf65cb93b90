//! Sheets as tables that fit the terminal.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, Width};

use super::Sheet;
use meshwright_planner::catalog::visible;

/// Width in characters without a terminal.
const WIDTH: u16 = 100;

/// Renders a sheet under its title: as a table, or as records below each other if the terminal is too narrow.
pub fn render(sheet: &Sheet) -> String {
    let sheet = &seen(sheet);
    let words: u16 = (0..sheet.columns.len()).map(|at| longest_word(sheet, at) + GAP).fold(0, u16::saturating_add);
    let body = if words > width() + GAP { records(sheet) } else { table(sheet) };
    if sheet.title.is_empty() { format!("{body}\n") } else { format!("{}\n{body}\n", wrapped(&sheet.title)) }
}

/// The sheet with everything escaped that would steer a terminal; cells keep their line breaks.
fn seen(sheet: &Sheet) -> Sheet {
    let text = |text: &String| text.split('\n').map(visible).collect::<Vec<_>>().join("\n");
    let texts = |cells: &Vec<String>| cells.iter().map(text).collect();
    Sheet { title: text(&sheet.title), columns: texts(&sheet.columns), rows: sheet.rows.iter().map(texts).collect() }
}

/// Renders each row as lines of `column: cell`, with an empty line between rows.
fn records(sheet: &Sheet) -> String {
    let record = |row: &Vec<String>| {
        let lines = sheet.columns.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        lines.map(|(column, cell)| wrapped(&format!("{column}: {cell}"))).collect::<Vec<_>>().join("\n")
    };
    sheet.rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
}

/// Renders a sheet as a table as wide as the terminal, whose columns are at least as wide as their longest words.
fn table(sheet: &Sheet) -> String {
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
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, padding));
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(words[at] + padding)));
        if !sheet.rows.is_empty() && sheet.rows.iter().all(|row| row.get(at).is_some_and(|cell| is_figure(cell))) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Renders a sheet as one line a row under its heads, without rules: figures to the right, nothing wrapped.
pub fn plain_lines(sheet: &Sheet) -> Vec<String> {
    lines(plain(sheet).set_content_arrangement(ContentArrangement::Disabled))
}

/// A sheet as a table without rules, with figures to the right: numbers with a unit at most, which prose is longer than.
fn plain(sheet: &Sheet) -> Table {
    let is_short = |cell: &str| is_figure(cell) && cell.split_whitespace().count() <= 3;
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(&sheet.columns).add_rows(&sheet.rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, COLUMN_GAP));
        if sheet.rows.iter().all(|row| row.get(at).is_some_and(|cell| is_short(cell.trim_start_matches('>')))) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn lines(table: &Table) -> Vec<String> {
    table.to_string().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Gap between two columns of a table without rules.
const COLUMN_GAP: u16 = 2;

/// Fewest characters that the widest column of a table without rules is wrapped to.
const LEAST_WRAPPED: usize = 16;

/// Renders rows as lines that fit into the width of the terminal: one each, or else with the widest column wrapped; as
/// records below each other where that column would be too narrow to read.
pub fn lines_or_records(sheet: &Sheet) -> String {
    lines_within(sheet, usize::from(width())).unwrap_or_else(|| records(sheet))
}

/// Rows as lines of at most `most` characters; none if the widest column would be too narrow.
fn lines_within(sheet: &Sheet, most: usize) -> Option<String> {
    let unwrapped = plain_lines(sheet);
    let longest = unwrapped.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    if longest <= most {
        return Some(unwrapped.join("\n"));
    }
    let widths = (0..sheet.columns.len()).map(|at| widest_cell(sheet, at));
    let (wrapped, widest) = widths.enumerate().max_by_key(|(_, width)| *width)?;
    let left = (widest + most).checked_sub(longest).filter(|left| *left >= LEAST_WRAPPED)?;
    let mut table = plain(sheet);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(u16::try_from(longest).ok()?);
    for (at, column) in table.column_iter_mut().enumerate() {
        let content = if at == wrapped { left } else { widest_cell(sheet, at) };
        let outer = u16::try_from(content).ok()?.saturating_add(COLUMN_GAP);
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(outer)));
    }
    Some(lines(&table).join("\n"))
}

/// Length in characters of the longest cell of a column, its head included.
fn widest_cell(sheet: &Sheet, at: usize) -> usize {
    let cells = sheet.rows.iter().filter_map(|row| row.get(at)).chain(sheet.columns.get(at));
    cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// Width of the gap between two columns, in addition to the cell padding.
const GAP: u16 = 1;

/// Width of the terminal, or 100 characters without one.
pub fn width() -> u16 {
    let terminal = if std::io::stdout().is_terminal() { Table::new().width() } else { None };
    terminal.unwrap_or(WIDTH)
}

/// Prose wrapped to the width of the terminal.
pub fn wrapped(text: &str) -> String {
    wrapped_to(text, usize::from(width())).join("\n")
}

/// Prose as lines of at most `most` characters.
fn wrapped_to(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= most => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Paragraphs wrapped beside a label: the label stands before the first line, the others are indented below it.
pub fn labelled(label: &str, paragraphs: &[String]) -> String {
    let indent = label.chars().count() + 2;
    let most = usize::from(width()).saturating_sub(indent).max(20);
    let lines = paragraphs.iter().flat_map(|paragraph| wrapped_to(paragraph, most));
    let shown = lines.enumerate().map(|(at, line)| {
        let head = if at == 0 { label } else { "" };
        format!("{head:indent$}{line}")
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Length in characters of the longest word of a column, its head included.
fn longest_word(sheet: &Sheet, at: usize) -> u16 {
    let cells = sheet.rows.iter().filter_map(|row| row.get(at)).chain(sheet.columns.get(at));
    let longest = cells.flat_map(|cell| cell.split_whitespace()).map(|word| word.chars().count()).max();
    u16::try_from(longest.unwrap_or(1).max(1)).unwrap_or(WIDTH)
}

/// Whether a cell is a figure, which is aligned to the right.
fn is_figure(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '<')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_narrow_for_its_words_a_table_becomes_records() {
        let mut sheet = Sheet::new("", &["plan", "step time", "note"]);
        sheet.push(["tp=8 pp=16".into(), "5.06 s".into(), String::new()]);
        sheet.push(["tp=4 pp=8".into(), "5.07 s".into(), "tie".into()]);
        assert_eq!(
            records(&sheet),
            "plan: tp=8 pp=16\nstep time: 5.06 s\n\nplan: tp=4 pp=8\nstep time: 5.07 s\nnote: tie"
        );
        assert!(render(&sheet).contains('═'), "100 columns hold it");
        let wide = Sheet::new(
            "",
            &[
                "a-column-of-more-than-sixty-characters-that-nobody-would-ever-write",
                "another-column-of-more-than-thirty",
            ],
        );
        assert_eq!(render(&wide), "\n", "no rows, no records");
    }

    #[test]
    fn too_wide_for_one_line_a_row_wraps_its_widest_column() {
        let mut sheet = Sheet::new("", &["#", "with", "step s"]);
        sheet.push([">1".into(), "100 % opt. on host, interleaved, cost-balanced".into(), "83.7".into()]);
        sheet.push(["2".into(), "1F1B".into(), "99.2".into()]);
        assert_eq!(
            lines_within(&sheet, 36).unwrap(),
            " #  with                      step s\n\
             >1  100 % opt. on host,         83.7\n\
             \x20   interleaved,\n\
             \x20   cost-balanced\n \
             2  1F1B                        99.2"
        );
        assert_eq!(lines_within(&sheet, 25), None, "sixteen characters are the fewest");
        assert_eq!(lines_within(&sheet, 60).unwrap().lines().count(), 3);
    }
}
