//! Constants of a fit, and the entries that they apply to.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::error::{CatalogError, EntryKind, SECTIONS};
use super::table_path::place;

/// Name of the fit that applies by default.
pub const DEFAULT: &str = "2026-11";

/// Name that selects the specification's own constants.
pub const NONE: &str = "none";

/// Set of fitted constants.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Name as printed.
    pub name: String,
    /// Day of the fit.
    pub date: String,
    /// Key of the source of the fitted data.
    pub source: String,
    /// Constants in order; a later one overrides an earlier one of the same value.
    #[serde(default, rename = "constant")]
    pub constants: Vec<Constant>,
}

/// Fitted constant with its provenance.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Key of the value: `gpu.NAME.key`, `stack.NAME.key` or `transport.NAME.key`; a trailing `*` in NAME matches anything.
    pub key: String,
    /// Value, in the form of the file that it overrides.
    pub value: Value,
    /// Key of its source in `docs/sources.toml`.
    pub source: String,
    /// Data and method of the fit, or the place where the value is stated.
    pub from: String,
    /// Number of rows or samples behind it.
    pub rows: Option<u32>,
    /// Standard deviation of the value over the cross-validation folds.
    pub spread: Option<f64>,
    /// Value fitted without the runs of each fold, in the order of the folds; empty if it was not fitted to runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folds: Vec<Value>,
    /// Value in the specification, for comparison.
    pub was: Option<Value>,
    /// Day of the constant, if it differs from the file's.
    pub date: Option<String>,
}

/// Number of cross-validation folds.
pub const FOLDS: usize = 5;

impl Constant {
    /// Constant without provenance, for experiments only.
    pub const fn plain(key: String, value: Value) -> Self {
        Self {
            key,
            value,
            source: String::new(),
            from: String::new(),
            rows: None,
            spread: None,
            folds: Vec::new(),
            was: None,
            date: None,
        }
    }

    /// Section, entry, and keys below it, of the key.
    pub(super) fn parts(&self) -> Result<(EntryKind, &str, &str), &'static str> {
        let (section, rest) = self.key.split_once('.').unwrap_or((&self.key, ""));
        let kind = section_kind(section).ok_or("must start with `gpu.`, `stack.` or `transport.`")?;
        let (entry, keys) = rest.split_once('.').unwrap_or((rest, ""));
        if entry.is_empty() || keys.split('.').any(str::is_empty) {
            return Err("must name a value: `gpu.NAME.key` or `stack.NAME.key`");
        }
        Ok((kind, entry, keys))
    }

    /// Overrides the value in the text of an entry.
    pub(super) fn place(&self, table: &mut Table) -> Result<(), CatalogError> {
        let (_, _, keys) = self.parts().map_err(|why| self.error(why))?;
        let path: Vec<String> = keys.split('.').map(ToOwned::to_owned).collect();
        place(table, &path, self.value.clone(), &self.source).map_err(|why| self.error(why))
    }

    /// Error that names this constant.
    pub(super) fn error(&self, why: impl Into<String>) -> CatalogError {
        CatalogError::Invalid { origin: format!("the constant `{}` of the fit", self.key), why: why.into() }
    }
}

/// Kind of the entries that a constant's first word names.
fn section_kind(section: &str) -> Option<EntryKind> {
    let (_, kind) = *SECTIONS.iter().find(|(known, _)| *known == section)?;
    matches!(kind, EntryKind::Gpu | EntryKind::Stack | EntryKind::Transport).then_some(kind)
}

/// Whether the constant of a key applies to an entry.
pub(super) fn is_key_of(key: &str, kind: EntryKind, name: &str) -> bool {
    let mut words = key.split('.');
    words.next().and_then(section_kind) == Some(kind) && words.next().is_some_and(|pattern| covers(pattern, name))
}

/// Whether a pattern, which may end in `*`, matches a name.
pub(super) fn covers(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

impl Fit {
    /// A fit without constants.
    pub const fn empty() -> Self {
        Self { name: String::new(), date: String::new(), source: String::new(), constants: Vec::new() }
    }

    /// Constants of one catalogue entry, in the order of the file.
    pub(super) fn of_entry<'a>(&'a self, kind: EntryKind, name: &'a str) -> impl Iterator<Item = &'a Constant> {
        self.constants.iter().filter(move |constant| is_key_of(&constant.key, kind, name))
    }

    /// Fit without the constants that were fitted to runs: the starting point of the next fit.
    #[must_use]
    pub fn stated(&self) -> Self {
        let constants = self.constants.iter().filter(|constant| constant.spread.is_none()).cloned().collect();
        Self { constants, ..self.clone() }
    }

    /// Fit with the values obtained without one fold, to score that fold.
    #[must_use]
    pub fn without_fold(&self, fold: usize) -> Self {
        let mut fit = self.clone();
        for constant in &mut fit.constants {
            if let Some(value) = constant.folds.get(fold) {
                constant.value = value.clone();
            }
        }
        fit
    }
}
