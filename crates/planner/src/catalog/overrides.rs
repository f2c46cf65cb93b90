//! Overrides of catalogue values for one run: a fit, then `--set section.key=value`.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::{Table, Value};

use super::constants::{Constant, Fit};
use super::default_fit::{self, default_fit};
use super::error::{CatalogError, EntryKind, SECTIONS};
use super::one_line::is_one_line;
use super::table_path::place;
use meshwright_engine::sources::SET_SOURCE;
use meshwright_engine::suggest::nearest;

/// Parsed `--set` item.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The item as written.
    pub item: String,
    /// Kind of the entry that it changes.
    pub kind: EntryKind,
    /// Keys below the section.
    pub path: Vec<String>,
    /// Value as text.
    pub text: String,
}

/// Fit, `--set` items and texts in place of files of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Overrides {
    fit: FitInUse,
    settings: Vec<Setting>,
    texts: Arc<BTreeMap<String, String>>,
}

/// Fit of a run.
#[derive(Clone, Debug, PartialEq)]
enum FitInUse {
    /// The default one, of which only the constants that apply are read.
    Default,
    /// Another.
    Given(Arc<Fit>),
    /// None: the specification's own constants.
    Specification,
}

impl Default for Overrides {
    /// Overrides with the default fit and no `--set`.
    fn default() -> Self {
        Self::specification().with_default_fit()
    }
}

impl Overrides {
    /// Overrides that change nothing: the specification's own constants, without a fit.
    pub fn specification() -> Self {
        Self { fit: FitInUse::Specification, settings: Vec::new(), texts: Arc::default() }
    }

    /// Replaces the fit, or removes it.
    #[must_use]
    pub fn with_fit(self, fit: Option<Arc<Fit>>) -> Self {
        Self { fit: fit.map_or(FitInUse::Specification, FitInUse::Given), ..self }
    }

    /// Replaces the fit by the default one.
    #[must_use]
    pub(super) fn with_default_fit(self) -> Self {
        Self { fit: FitInUse::Default, ..self }
    }

    /// Texts to read in place of files of these names, where there is no file system or the files are not on it.
    #[must_use]
    pub fn with_texts(self, texts: BTreeMap<String, String>) -> Self {
        Self { texts: Arc::new(texts), ..self }
    }

    /// Text to read in place of the file of this name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Fit in use; `None` means the specification's own constants.
    pub fn fit(&self) -> Option<&Fit> {
        match &self.fit {
            FitInUse::Default => Some(default_fit()),
            FitInUse::Given(fit) => Some(fit),
            FitInUse::Specification => None,
        }
    }

    /// Constants of the fit for one catalogue entry, in the order of its file.
    pub(super) fn constants_of<'a>(&'a self, kind: EntryKind, name: &'a str) -> impl Iterator<Item = &'a Constant> {
        let (default, given) = match &self.fit {
            FitInUse::Default => (Some(default_fit::of_entry(kind, name)), None),
            FitInUse::Given(fit) => (None, Some(fit.of_entry(kind, name))),
            FitInUse::Specification => (None, None),
        };
        default.into_iter().flatten().chain(given.into_iter().flatten())
    }

    /// Parses the text of each `--set`, with the default fit.
    ///
    /// # Errors
    ///
    /// Names the item that is not of the form `section.key=value`.
    pub fn parse<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Result<Self, CatalogError> {
        let settings = items.into_iter().map(|item| setting(item.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { settings, ..Self::default() })
    }

    /// These overrides and, before them, items that they may change again.
    ///
    /// # Errors
    ///
    /// Names the item that is not of the form `section.key=value`.
    pub fn after<S: AsRef<str>>(&self, items: impl IntoIterator<Item = S>) -> Result<Self, CatalogError> {
        let before = items.into_iter().map(|item| setting(item.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let settings = before.into_iter().chain(self.settings.iter().cloned()).collect();
        Ok(Self { settings, ..self.clone() })
    }

    /// Settings of one kind of entry, in the order given.
    pub fn of_kind(&self, kind: EntryKind) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(move |setting| setting.kind == kind)
    }
}

fn setting(item: &str) -> Result<Setting, CatalogError> {
    let bad = |why: &str, nearest| Err(CatalogError::Set { item: item.to_owned(), why: why.to_owned(), nearest });
    if !is_one_line(item) {
        return bad(
            "it holds a line break or another control character, and must be one line of printable characters",
            None,
        );
    }
    let Some((key, text)) = item.split_once('=') else {
        return bad("write `section.key=value`, such as `cluster.nic=800 Gb/s`", None);
    };
    let mut keys = key.trim().split('.').map(|key| key.trim().to_owned());
    let section = keys.next().unwrap_or_default();
    let path: Vec<String> = keys.collect();
    let Some(&(_, kind)) = SECTIONS.iter().find(|(name, _)| *name == section) else {
        let near = nearest(&section, SECTIONS.map(|(name, _)| name));
        return bad(
            &format!("there is no section `{section}`: cluster, gpu, stack, model, market and transport are"),
            near,
        );
    };
    if path.is_empty() || path.iter().any(String::is_empty) {
        return bad(&format!("the key below `{section}` is missing"), None);
    }
    Ok(Setting { item: item.to_owned(), kind, path, text: text.trim().to_owned() })
}

impl Setting {
    /// Possible readings of the text: a TOML literal if it is one, then a string.
    fn values(&self) -> Vec<Value> {
        let literal = toml::from_str::<Table>(&format!("value = {}", self.text)).ok();
        let literal = literal.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        literal.into_iter().chain([Value::String(self.text.clone())]).collect()
    }

    /// The text without the quotes of a TOML string.
    pub fn plain(&self) -> String {
        match self.values().swap_remove(0) {
            Value::String(text) => text,
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_) => self.text.clone(),
        }
    }

    /// Error that names this item.
    pub fn error(&self, why: impl Into<String>, nearest: Option<String>) -> CatalogError {
        CatalogError::Set { item: self.item.clone(), why: why.into(), nearest }
    }

    /// Copies of `table` with the item applied, one for each reading of its value, the likeliest first.
    ///
    /// # Errors
    ///
    /// A key on the path is not a table.
    pub fn candidates(&self, table: &Table) -> Result<Vec<(Table, Table)>, CatalogError> {
        let candidate = |value: Value| {
            let sourced = Table::from_iter([
                ("value".to_owned(), value.clone()),
                ("source".to_owned(), Value::String(SET_SOURCE.to_owned())),
            ]);
            Ok((self.placed(table, value)?, self.placed(table, Value::Table(sourced))?))
        };
        self.values().into_iter().map(candidate).collect()
    }

    /// `table` with `value` at the item's path.
    fn placed(&self, table: &Table, value: Value) -> Result<Table, CatalogError> {
        let mut table = table.clone();
        place(&mut table, &self.path, value, SET_SOURCE).map_err(|why| self.error(why, None))?;
        Ok(table)
    }
}
