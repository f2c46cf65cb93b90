//! Formats of files that configure training: the keys by which each is recognised, its reader, or the reason why it is refused.
//!
//! One table decides. The first format whose evidence a file has is its format, so that specific formats stand before those
//! that share keys with them; a file without any evidence is refused rather than read as something near.

mod documents;
mod foreign;
mod format;
mod programs;

use super::context::{Context, ImportError};
use super::kind::FileKind;
use crate::megatron::MEGATRON;
use crate::readers::document::{self, Document, Form};

use format::{Evidence, Format, Outcome, Syntax};

pub(crate) use programs::refuse_program;

/// All formats.
fn formats() -> impl Iterator<Item = &'static Format> {
    foreign::FOREIGN.iter().chain(documents::DOCUMENTS).chain(programs::PYTHON)
}

/// The kind of a file by its name and content.
///
/// # Errors
/// A format that is not supported, by its name; a file in which no format is recognised; a file that does not parse.
pub fn kind_of(file: &str, text: &str) -> Result<FileKind, ImportError> {
    let extension = std::path::Path::new(file).extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let syntax = match extension.to_ascii_lowercase().as_str() {
        "yaml" | "yml" => Syntax::Yaml,
        "json" => Syntax::Json,
        "toml" => Syntax::Toml,
        "py" => Syntax::Python,
        _ if start.starts_with("--") => return Ok(FileKind::Of(&MEGATRON)),
        _ if start.starts_with('{') => Syntax::Json,
        _ => return Ok(FileKind::Script),
    };
    let context = Context::alone(file);
    let form = match syntax {
        Syntax::Python => None,
        Syntax::Json => Some(Form::Json),
        Syntax::Toml => Some(Form::Toml),
        Syntax::Yaml => Some(Form::Yaml),
    };
    let document = form.map(|form| document::parse(text, form, &context)).transpose()?;
    let found = find(syntax, document.as_ref(), text);
    let bad = |why: String, expected: &str| ImportError { file: file.into(), line: 1, why, expected: expected.into() };
    match found.map(|format| (format.title, format.outcome)) {
        Some((_, Outcome::Read(framework))) => Ok(FileKind::Of(framework)),
        Some((title, Outcome::Refused(instead))) => Err(bad(format!("this is {title}, which is not read"), instead)),
        None => Err(bad("the file has the keys of no known format".into(), &known(syntax))),
    }
}

/// Refuses a document of a format that is not supported: what a launch script names is judged as a file on its own is.
///
/// # Errors
/// The format by its name.
pub(crate) fn refuse_foreign(document: &Document, file: &str) -> Result<(), ImportError> {
    let Some(Format { title, outcome: Outcome::Refused(instead), .. }) = find(Syntax::Yaml, Some(document), "") else {
        return Ok(());
    };
    let why = format!("this is {title}, which is not read");
    Err(ImportError { file: file.into(), line: 1, why, expected: (*instead).into() })
}

/// The first format of a syntax with evidence.
fn find(syntax: Syntax, document: Option<&Document>, text: &str) -> Option<&'static Format> {
    let of_syntax = formats().filter(|format| format.syntaxes.contains(&syntax));
    let holds = |evidence: &Evidence| match (document, *evidence) {
        (Some(document), Evidence::Key(path)) => paths(document, path).any(|path| document.has(&path)),
        (Some(document), Evidence::Table(path)) => paths(document, path).any(|path| !document.keys(&path).is_empty()),
        (Some(document), Evidence::Says(path, part)) => {
            paths(document, path).any(|path| document.peek(&path).is_some_and(|word| word.contains(part)))
        }
        (_, Evidence::Code(part)) => {
            text.lines().any(|line| !line.trim_start().starts_with('#') && has_words(line, part))
        }
        (None, Evidence::Key(_) | Evidence::Table(_) | Evidence::Says(..)) => false,
    };
    of_syntax.into_iter().find(|format| format.evidence.iter().any(|row| row.iter().all(holds)))
}

/// Whether a line has these words and not just a longer one: `from nemo` is no `from nemotron`.
fn has_words(line: &str, words: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(words).any(|(at, _)| !line[at + words.len()..].starts_with(goes_on))
}

/// Paths that a pattern with at most one `*` stands for.
fn paths<'d>(document: &'d Document, pattern: &'static str) -> impl Iterator<Item = String> + 'd {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    let keys = if pattern.contains('*') { document.keys(before.trim_end_matches('.')) } else { vec![String::new()] };
    keys.into_iter().map(move |key| format!("{before}{key}{after}"))
}

/// Formats of a syntax that are read.
fn known(syntax: Syntax) -> String {
    let read = |format: &&Format| !matches!(format.outcome, Outcome::Refused(_)) && format.syntaxes.contains(&syntax);
    let titles: Vec<&str> = formats().filter(read).map(|format| format.title).collect();
    format!("one of: {}; --kind names it where only a part of it is set", titles.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_evidence_that_is_found() {
        for format in formats() {
            assert!(
                !format.evidence.is_empty() && format.evidence.iter().all(|row| !row.is_empty()),
                "{}",
                format.title
            );
            for evidence in format.evidence.iter().copied().flatten() {
                let of_python = matches!(evidence, Evidence::Code(_));
                assert_eq!(of_python, format.syntaxes == [Syntax::Python], "{}: {evidence:?}", format.title);
            }
        }
    }

    #[test]
    fn a_star_is_any_key() {
        let text = "modules:\n  pre_trainer:\n    framework: megatron\n";
        let document = document::parse(text, Form::Yaml, &Context::alone("a.yaml")).unwrap();
        assert_eq!(paths(&document, "modules.*.framework").collect::<Vec<_>>(), ["modules.pre_trainer.framework"]);
        assert_eq!(paths(&document, "*.x").collect::<Vec<_>>(), ["modules.x"]);
    }
}
