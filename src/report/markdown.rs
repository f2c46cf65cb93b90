//! Sheets as Markdown.

use std::fmt::Write;

use super::{Sheet, markup};

/// Renders a sheet as a heading and a pipe table.
pub fn render(sheet: &Sheet) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| markup::markdown(cell)).collect();
        writeln!(text, "| {} |", cells.join(" | ")).expect("a String takes any text");
    };
    line(&sheet.columns);
    line(&vec!["---".to_owned(); sheet.columns.len()]);
    sheet.rows.iter().for_each(|row| line(row));
    if sheet.title.is_empty() { text } else { format!("## {}\n\n{text}", markup::markdown(&sheet.title)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_do_not_break_a_row() {
        let mut sheet = Sheet::new("t", &["a", "b"]);
        sheet.push(["x|y".into(), "1".into()]);
        assert_eq!(render(&sheet), "## t\n\n| a | b |\n| --- | --- |\n| x\\|y | 1 |\n");
    }
}
