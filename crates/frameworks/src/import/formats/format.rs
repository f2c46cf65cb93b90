//! A format as data.

use crate::framework::Framework;

/// A piece of evidence.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evidence {
    /// The file has a key, given by its dotted path; `*` is any one key.
    Key(&'static str),
    /// A key's value contains a text.
    Says(&'static str, &'static str),
    /// A key holds a table.
    Table(&'static str),
    /// A line of code, not a comment, contains a text.
    Code(&'static str),
}

/// Syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Json,
    Python,
    Toml,
    Yaml,
}

/// Reader of a format, or the way out for its user.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The framework whose reader takes it.
    Read(&'static Framework),
    /// No reader takes it; the text is the remedy.
    Refused(&'static str),
}

/// A format: its name in messages, its syntaxes, and its evidence, of which one row must hold in full.
pub(super) struct Format {
    pub title: &'static str,
    pub syntaxes: &'static [Syntax],
    pub evidence: &'static [&'static [Evidence]],
    pub outcome: Outcome,
}
