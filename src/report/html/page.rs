//! Report as one file: style, heading, sections; no script, and nothing that is loaded.

use super::drawing::rules;
use super::element::{HtmlElement, element, style_sheet, worded};
use crate::report::Sheet;

/// Style of the page and of reports.
const STYLE: &str = include_str!("style.css");
/// Most rows of a table that is open from the start.
const MOST_OPEN: usize = 40;
/// Most bytes of a cell that is not given room of its own.
const LONG: usize = 40;
/// A report loads nothing and runs nothing, whatever its texts are.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Report on its way: a title, and its sections.
#[derive(Clone, Debug)]
pub struct HtmlReport {
    title: String,
    lead: Vec<String>,
    sections: Vec<HtmlElement>,
}

impl HtmlReport {
    /// Report without sections; `lead` is the text below its title.
    pub fn new(title: impl Into<String>, lead: Vec<String>) -> Self {
        Self { title: title.into(), lead, sections: Vec::new() }
    }

    /// Appends a section with a heading; one without content is left out.
    pub fn section(&mut self, heading: &str, content: impl IntoIterator<Item = HtmlElement>) {
        self.card("card", heading, content);
    }

    /// Appends the section that answers the question.
    pub fn answer(&mut self, heading: &str, content: impl IntoIterator<Item = HtmlElement>) {
        self.card("card best", heading, content);
    }

    /// Appends a table under its own title; a long one opens on demand, an empty one is left out.
    pub fn sheet(&mut self, sheet: &Sheet) {
        let rows = sheet.rows.len();
        if rows > MOST_OPEN {
            self.section(&sheet.title, [folded(&format!("{rows} rows"), table(sheet))]);
        } else if rows > 0 {
            self.section(&sheet.title, [table(sheet)]);
        }
    }

    fn card(&mut self, class: &str, heading: &str, content: impl IntoIterator<Item = HtmlElement>) {
        let content: Vec<HtmlElement> = content.into_iter().collect();
        if !content.is_empty() {
            let section = element("section").with("class", class).child(worded("h2", heading));
            self.sections.push(section.children(content));
        }
    }

    /// Text of the file.
    pub fn text(&self) -> String {
        let meta = |key, value| element("meta").with(key, value);
        let head = element("head")
            .child(meta("charset", "utf-8"))
            .child(meta("name", "viewport").with("content", "width=device-width, initial-scale=1"))
            .child(meta("name", "color-scheme").with("content", "light dark"))
            .child(meta("http-equiv", "Content-Security-Policy").with("content", POLICY))
            .child(worded("title", format!("{} · meshwright", self.title)))
            .child(style_sheet(STYLE))
            .child(rules());
        let header = element("header").child(worded("h1", self.title.clone()));
        let header = header.children(self.lead.iter().map(|line| paragraph(line).with("class", "heading")));
        let foot = format!(
            "meshwright {}. Predictions of an analytic model, with intervals that hold nine of ten published runs.",
            env!("CARGO_PKG_VERSION")
        );
        let main = element("main").with("class", "report").child(header).children(self.sections.iter().cloned());
        let main = main.child(paragraph(&foot).with("class", "foot"));
        let html = element("html").with("lang", "en").child(head).child(element("body").child(main));
        format!("<!doctype html>\n{html}\n")
    }
}

/// Paragraph of a text.
pub fn paragraph(text: &str) -> HtmlElement {
    worded("p", text)
}

/// List of sentences.
pub fn list(sentences: &[String]) -> Option<HtmlElement> {
    let items = sentences.iter().map(|sentence| worded("li", sentence.clone()));
    (!sentences.is_empty()).then(|| element("ul").with("class", "list").children(items))
}

/// Line to copy.
pub fn code(line: &str) -> HtmlElement {
    element("pre").child(worded("code", line))
}

/// Drawing with a caption; it scrolls where a screen is narrow.
pub fn figure(drawing: HtmlElement, caption: &str) -> HtmlElement {
    let figure = element("figure").with("tabindex", 0).with("role", "group").with("aria-label", caption).child(drawing);
    if caption.is_empty() { figure } else { figure.child(worded("figcaption", caption)) }
}

/// Content that opens on demand; a printed page shows it if it is open.
pub fn folded(summary: &str, content: HtmlElement) -> HtmlElement {
    element("details").child(worded("summary", summary)).child(content)
}

/// Figure of an answer, in large letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFigure {
    /// Name.
    pub name: &'static str,
    /// Value with its unit.
    pub value: String,
    /// Note below it.
    pub note: String,
}

/// Large figures beside each other.
pub fn figures(shown: &[LargeFigure]) -> HtmlElement {
    let entries = shown.iter().map(|LargeFigure { name, value, note }| {
        let value = worded("dd", value.clone()).child(worded("small", note.clone()));
        element("div").child(worded("dt", *name)).child(value)
    });
    element("dl").with("class", "figures").children(entries)
}

/// Table of a sheet: columns of numbers are aligned at their end, the recommended row is marked.
pub fn table(sheet: &Sheet) -> HtmlElement {
    let numeric: Vec<bool> = (0..sheet.columns.len()).map(|at| is_numeric(sheet, at)).collect();
    let class = |cell: HtmlElement, at: usize| if numeric[at] { cell.with("class", "number") } else { cell };
    let heads = sheet.columns.iter().enumerate();
    let heads = heads.map(|(at, name)| class(worded("th", name.clone()).with("scope", "col"), at));
    let rows = sheet.rows.iter().map(|row| {
        let is_marked = row.first().is_some_and(|cell| cell.starts_with('>'));
        let tr = if is_marked { element("tr").with("class", "chosen") } else { element("tr") };
        tr.children(row.iter().enumerate().map(|(at, cell)| {
            let td = worded("td", if at == 0 { cell.trim_start_matches('>') } else { cell });
            if cell.len() > LONG { td.with("class", "long") } else { class(td, at) }
        }))
    });
    let rows = element("tbody").children(rows);
    let table = element("table").child(element("thead").child(element("tr").children(heads))).child(rows);
    let name = if sheet.title.is_empty() { "table" } else { &sheet.title };
    element("div")
        .with("class", "scroll")
        .with("tabindex", 0)
        .with("role", "region")
        .with("aria-label", name)
        .child(table)
}

/// Whether every filled cell of a column begins as a number does.
fn is_numeric(sheet: &Sheet, at: usize) -> bool {
    let mut filled = sheet.rows.iter().map(|row| row[at].as_str()).filter(|cell| !cell.is_empty()).peekable();
    let begins = |cell: &str| {
        cell.trim_start_matches(['+', '-', '−', '$', '<', '>', '~', ' ']).starts_with(|c: char| c.is_ascii_digit())
    };
    filled.peek().is_some() && filled.all(|cell| begins(cell) && cell.len() < 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_file_that_runs_nothing() {
        let mut report = HtmlReport::new("</title><script>alert(1)</script>", vec!["a & b".to_owned()]);
        let mut sheet = Sheet::new("T\"><img src=x>", &["name", "s"]);
        sheet.push(["<b>".to_owned(), "-1.5 ms".to_owned()]);
        sheet.push([">2".to_owned(), String::new()]);
        report.sheet(&sheet);
        report.section("empty", []);
        let text = report.text();
        assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("<b>"), "{text}");
        assert!(text.contains("default-src 'none'") || text.contains("default-src &#39;none&#39;"), "{text}");
        assert!(text.contains("<td class=\"number\">-1.5 ms</td>") && text.contains("<td>&lt;b&gt;</td>"), "{text}");
        assert!(!text.contains(">empty<") && text.contains("a &amp; b"), "{text}");
        assert!(text.contains("<tr class=\"chosen\"><td>2</td>"), "{text}");
    }
}
