//! Findings in a file: place, rule, text that was read and text that was expected.

use std::fmt;

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The framework refuses it, or it does not run.
    Error,
    /// It runs, but not as it was meant or as fast as it could.
    Warning,
    /// Worth knowing: an assumption, something that has no effect here.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// Rule of packed documents whose length no file states.
pub const DOCUMENTS: &str = "documents";

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Finding in a launch or configuration file, or about its plan on a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Name of the rule (docs/lint.md).
    pub rule: &'static str,
    /// Severity.
    pub level: Severity,
    /// File and line, where one line is the cause.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// Text that was read, and its error.
    pub message: String,
    /// Text that was expected, or the remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// Effect on the step time, as a share of it: +0.38 is 38 % lost, or to be won.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_share: Option<f64>,
}

impl Finding {
    /// Note of a setting by which attention stays within the documents of a sequence.
    pub(crate) fn of_documents(setting: &str) -> Self {
        let message =
            format!("`{setting}` packs documents, within which attention stays; it is priced over whole sequences");
        Self::note(DOCUMENTS, message).expected("--document-len, their length")
    }

    /// A finding without a place.
    pub fn new(rule: &'static str, level: Severity, message: impl Into<String>) -> Self {
        Self { rule, level, place: None, message: message.into(), expected: String::new(), step_share: None }
    }

    /// Finding of an error.
    pub fn error(rule: &'static str, message: impl Into<String>) -> Self {
        Self::new(rule, Severity::Error, message)
    }

    /// Finding of a warning.
    pub fn warning(rule: &'static str, message: impl Into<String>) -> Self {
        Self::new(rule, Severity::Warning, message)
    }

    /// Finding of a note.
    pub fn note(rule: &'static str, message: impl Into<String>) -> Self {
        Self::new(rule, Severity::Note, message)
    }

    /// Error of a setting whose value is malformed: `name` is the flag or the key, `expected` the form of its value, such as
    /// "a whole number".
    pub fn wrong_value(name: &str, value: &str, expected: &str) -> Self {
        Self::error("wrong-value", format!("`{name}` has the value `{value}`")).expected(format!("{expected} expected"))
    }

    /// The finding with its place in the file.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Self {
        self.place = Some(place.clone());
        self
    }

    /// The finding with its place in the file, if that is known.
    #[must_use]
    pub fn at_maybe(mut self, place: Option<&Place>) -> Self {
        self.place = place.cloned();
        self
    }

    /// Whether a model that the user names answers it.
    pub fn asks_for_model(&self) -> bool {
        self.rule == "unknown-model" || self.rule == "missing-flag" && self.expected.contains("--model")
    }

    /// The finding with the expected value, or the remedy.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = expected.into();
        self
    }

    /// The finding with its effect on the step time, as a share of it.
    #[must_use]
    pub const fn costing(mut self, share: f64) -> Self {
        self.step_share = Some(share);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}: {}", self.level, self.message)?;
        if !self.expected.is_empty() {
            write!(f, "; {}", self.expected)?;
        }
        write!(f, " [{}]", self.rule)
    }
}
