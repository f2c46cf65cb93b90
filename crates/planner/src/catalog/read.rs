//! Reading of an entry: its text, then TOML, then the user's overrides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::constants::Constant;
use super::error::{CatalogError, EntryKind, nearest_expected};
use super::one_line::is_one_line;
use super::overrides::{Overrides, Setting};
use super::streams::open;
use super::typed::{Misfit, typed};
use meshwright_engine::suggest::nearest;

/// Largest file that is read: a hundred times the longest of the catalogue would still be far below.
const MOST_BYTES: u64 = 16 << 20;

/// Text of an entry and its origin.
pub struct EntryText {
    /// Path or name, for messages.
    pub origin: String,
    /// Folder that relative paths refer to; `None` for built-in entries.
    pub folder: Option<PathBuf>,
    /// Content of the file.
    pub content: Cow<'static, str>,
}

impl EntryText {
    /// Whether the text is built in, not a file of the user's.
    pub const fn is_built_in(&self) -> bool {
        self.folder.is_none()
    }

    /// The content as TOML. That of a built-in file is parsed once.
    ///
    /// # Errors
    ///
    /// Names line and column.
    pub fn table(&self) -> Result<Arc<Table>, toml::de::Error> {
        static PARSED: RwLock<BTreeMap<&str, Arc<Table>>> = RwLock::new(BTreeMap::new());
        let Cow::Borrowed(text) = self.content else { return toml::from_str(&self.content).map(Arc::new) };
        if let Some(known) = PARSED.read().expect("no writer panics").get(text) {
            return Ok(Arc::clone(known));
        }
        let table = Arc::new(toml::from_str(text)?);
        Ok(Arc::clone(PARSED.write().expect("no writer panics").entry(text).or_insert(table)))
    }
}

/// Text that is given for a name, else that of a catalogue name, or of the user's own file.
///
/// # Errors
///
/// Neither exists, or the file cannot be read.
pub fn find(
    kind: EntryKind,
    built_in: &'static [(&'static str, &'static str)],
    name: &str,
    folder: Option<&Path>,
    given: Option<&str>,
) -> Result<EntryText, CatalogError> {
    if let Some(text) = given {
        let content = text.to_owned().into();
        return Ok(EntryText { origin: name.to_owned(), folder: Some(PathBuf::new()), content });
    }
    if let Some((name, text)) = built_in.iter().find(|(known, _)| *known == name) {
        let origin = format!("built-in {kind} `{name}`");
        return Ok(EntryText { origin, folder: None, content: Cow::Borrowed(text) });
    }
    let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    if is_toml || name.contains(['/', '\\']) || path.is_file() {
        let content = read(&path)?.into();
        let folder = path.parent().map(Path::to_owned);
        return Ok(EntryText { origin: path.display().to_string(), folder, content });
    }
    let names: Vec<&'static str> = built_in.iter().map(|(name, _)| *name).collect();
    Err(CatalogError::Unknown { kind, name: name.to_owned(), nearest: nearest(name, names.iter().copied()), names })
}

/// Text of a file.
///
/// # Errors
///
/// The file cannot be read, is a folder, is empty, is too large, is not UTF-8, or is a pipe that gives nothing.
pub fn read(path: &Path) -> Result<String, CatalogError> {
    let text = read_long(path, MOST_BYTES)?;
    if text.trim_ascii().is_empty() {
        return Err(CatalogError::NotText { path: path.display().to_string(), why: "is empty".to_owned() });
    }
    Ok(text)
}

/// Text of a file that may be long, or empty.
///
/// # Errors
///
/// As for [`read`], with another limit in bytes.
pub fn read_long(path: &Path, most: u64) -> Result<String, CatalogError> {
    let unreadable = |why| CatalogError::Unreadable { path: path.display().to_string(), why };
    let not_text = |why: &str| Err(CatalogError::NotText { path: path.display().to_string(), why: why.to_owned() });
    let mut bytes = Vec::new();
    let file = match open(path) {
        Err(why) if why.kind() == ErrorKind::IsADirectory => return not_text("is a folder, not a file"),
        file => file.map_err(unreadable)?,
    };
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return not_text(&format!("is over {} MiB: too large for what it should be", most >> 20));
    }
    String::from_utf8(bytes).or_else(|_| not_text("is not UTF-8 text"))
}

/// Value of a text, with the user's overrides.
///
/// # Errors
///
/// Names line, column and key, or the `--set` that does not fit.
pub fn parse<'a, T: DeserializeOwned>(
    text: &EntryText,
    settings: impl IntoIterator<Item = &'a Setting>,
) -> Result<T, CatalogError> {
    parse_fitted(text, [], settings)
}

/// Value of a text with the constants of a fit, then with the user's overrides.
///
/// # Errors
///
/// Names line, column and key, or the constant or `--set` that does not fit.
pub fn parse_fitted<'a, T: DeserializeOwned>(
    text: &EntryText,
    fitted: impl IntoIterator<Item = &'a Constant>,
    settings: impl IntoIterator<Item = &'a Setting>,
) -> Result<T, CatalogError> {
    let in_file = |error: toml::de::Error| CatalogError::Toml {
        origin: text.origin.clone(),
        nearest: nearest_expected(error.message()),
        error: Box::new(error),
    };
    let mut fitted = fitted.into_iter().peekable();
    let parsed = text.table().map_err(in_file)?;
    let mut table = Cow::Borrowed(&*parsed);
    let mut value: T;
    if fitted.peek().is_none() {
        value = typed(&table).map_err(|misfit| in_file(misfit.in_text(&text.content)))?;
        if let Some(why) = bad_entry(&table) {
            return Err(CatalogError::Invalid { origin: text.origin.clone(), why });
        }
    } else {
        // Only entries of the catalogue are fitted, and they are valid without a fit, as its tests say.
        for constant in fitted {
            constant.place(table.to_mut())?;
        }
        let invalid = |why| CatalogError::Invalid { origin: format!("{} with a fit", text.origin), why };
        if let Some(why) = bad_entry(&table) {
            return Err(invalid(why));
        }
        value = typed(&table).map_err(|misfit| invalid(misfit.message))?;
    }
    for setting in settings {
        let (set_value, set_table) = set(&table, setting)?;
        (value, table) = (set_value, Cow::Owned(set_table));
    }
    Ok(value)
}

/// First reading of a `--set` that yields a valid value, or the error of the first reading.
fn set<T: DeserializeOwned>(table: &Table, setting: &Setting) -> Result<(T, Table), CatalogError> {
    let mut first: Option<Misfit> = None;
    for (plain, sourced) in setting.candidates(table)? {
        let mut wrong = None;
        for candidate in [sourced, plain] {
            match typed(&candidate) {
                Ok(value) => {
                    return match bad_entry(&candidate) {
                        Some(why) => Err(setting.error(why, None)),
                        None => Ok((value, candidate)),
                    };
                }
                Err(error) => wrong = Some(error),
            }
        }
        first = first.or(wrong);
    }
    let message = first.map_or_else(|| "has no value".to_owned(), |misfit| misfit.message);
    let near = nearest_expected(&message);
    // Serde lists every key there is; the nearest says more.
    let short = message.split_once(", expected").map_or(message.as_str(), |(wrong, _)| wrong);
    Err(setting.error(if near.is_some() { short } else { &message }, near))
}

/// First number that is negative or not finite; no quantity of the catalogue may be.
fn bad_entry(table: &Table) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        if !is_one_line(key) {
            return Some(several_lines(&format!("the key {key:?}")));
        }
        bad_value(&mut vec![key], value)
    })
}

fn several_lines(what: &str) -> String {
    format!("{what} holds a line break or another control character, and must be one line of printable characters")
}

/// Fault of the value at a path of keys; none where it is sound.
fn bad_value<'t>(keys: &mut Vec<&'t str>, value: &'t Value) -> Option<String> {
    match value {
        Value::Float(number) if !number.is_finite() || *number < 0.0 => {
            Some(format!("`{}` is {number}, and must be a finite number, 0 or more", keys.join(".")))
        }
        Value::Table(table) => table.iter().find_map(|(inner, value)| {
            keys.push(inner);
            let bad = bad_value(keys, value);
            keys.pop();
            bad
        }),
        Value::Array(array) => array.iter().find_map(|value| bad_value(keys, value)),
        Value::Integer(number) if *number < 0 => {
            Some(format!("`{}` is {number}, and must be 0 or more", keys.join(".")))
        }
        Value::String(text) if !is_one_line(text) => Some(several_lines(&format!("`{}`", keys.join(".")))),
        Value::Integer(_) | Value::Float(_) | Value::String(_) | Value::Boolean(_) | Value::Datetime(_) => None,
    }
}

/// Constants of the fit for an entry of the catalogue. They do not apply to the user's own files.
pub fn fitted<'a>(
    text: &EntryText,
    kind: EntryKind,
    name: &'a str,
    sets: &'a Overrides,
) -> impl Iterator<Item = &'a Constant> {
    text.is_built_in().then(|| sets.constants_of(kind, name)).into_iter().flatten()
}
