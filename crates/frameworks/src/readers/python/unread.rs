//! Lines of a configuration that were not read, as findings.

use super::value::made;
use crate::import::context::Context;
use crate::import::decisive::is_decisive;
use crate::import::finding::{Finding, Place, Severity};
use crate::readers::document::{CALLED, Document};

/// Notes the lines that depend on running the program, and a configuration that begins as another module's.
pub(super) fn note_unread(document: &Document, text: &str, mut unread: Vec<u32>, context: &Context) {
    unread.sort_unstable();
    unread.dedup();
    for line in unread {
        let place = Place { file: context.file.to_owned(), line };
        let finding = Finding::warning("not-read", "what this line sets depends on running the program").at(&place);
        let finding = finding.expected("a constant, or the setting on the command line");
        document.note(if decides(text, line) { Finding { level: Severity::Error, ..finding } } else { finding });
    }
    if let Some(base) = document.peek(CALLED).filter(|base| !made(base)).map(str::to_owned) {
        let message = format!("`{base}` is of another module: what it sets, and is not set again here, is not read");
        let place = Place { file: context.file.to_owned(), line: document.place(CALLED).map_or(1, |place| place.line) };
        document.note(
            Finding::error(OTHER_MODULE, message).at(&place).expected("import the file that has it, or set it here"),
        );
    }
}

/// Rule of a configuration that begins as another module's.
pub(crate) const OTHER_MODULE: &str = "other-module";

/// Whether a line, or what is indented below it, sets a degree, a batch, a length, a stage or a precision.
fn decides(text: &str, line: u32) -> bool {
    let mut lines = text.lines().skip(line as usize - 1);
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(first) = lines.next() else { return false };
    let below = lines.take_while(|next| next.trim().is_empty() || indent(next) > indent(first));
    let code = std::iter::once(first).chain(below).map(|line| line.split('#').next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))).any(is_decisive)
}
